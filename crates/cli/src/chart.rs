//! Plots as SVG: a title, two axes, lines, and a legend next to them.

use std::fmt;

pub use svg::node::element::path::Data;
use svg::node::element::{Circle, Group, Line, Path, Rectangle, Text};
use svg::{Document, Node};

const WIDTH: f32 = 800.0;
const HEIGHT: f32 = 420.0;
const LEFT: f32 = 60.0;
const TOP: f32 = 56.0;
const RIGHT: f32 = 205.0;
const BOTTOM: f32 = 50.0;

/// Colours that colour-blind readers can distinguish (Okabe and Ito, 2008), then greys.
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442",
    "#777777", "#bbbbbb",
];

/// The colour of line number `index`.
pub fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// One axis: its range and its labels.
#[derive(Debug, Clone)]
pub struct Axis {
    from: f32,
    to: f32,
    ticks: Vec<(f32, String)>,
}

impl Axis {
    /// From one number to a greater one, with labels at the given places.
    pub fn new(from: f32, to: f32, ticks: impl IntoIterator<Item = (f32, String)>) -> Self {
        Self {
            from,
            to: if to > from { to } else { from + 1.0 },
            ticks: ticks.into_iter().collect(),
        }
    }

    /// From 0 to just past `most`, labelled at round numbers.
    pub fn up_to(most: f32) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let rough = most / 6.0;
        let power = 10f32.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|&step| step >= rough)
            .unwrap_or(rough);
        let count = (most / step).ceil() as usize;
        let decimals = usize::try_from(-step.log10().floor() as i64).unwrap_or(0);
        let ticks = (0..=count).map(|i| {
            let value = i as f32 * step;
            (value, format!("{value:.decimals$}"))
        });
        Self::new(0.0, count as f32 * step, ticks)
    }
}

/// The style of a line.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub colour: &'static str,
    /// Lengths of dashes and gaps; solid if `None`.
    pub dashes: Option<&'static str>,
}

impl Style {
    /// Solid, in the colour of that number.
    pub fn solid(index: usize) -> Self {
        Self {
            colour: colour(index),
            dashes: None,
        }
    }

    /// The same colour, dashed.
    #[must_use]
    pub fn dashed(self) -> Self {
        Self {
            dashes: Some("3 3"),
            ..self
        }
    }
}

/// A plot. Its `Display` is the SVG document.
#[derive(Debug, Clone)]
pub struct Plot {
    document: Document,
    x: Axis,
    y: Axis,
    legends: usize,
}

impl Plot {
    /// Axes without lines. `note` is in small print below the title.
    pub fn new(title: &str, note: &str, [x_title, y_title]: [&str; 2], x: Axis, y: Axis) -> Self {
        let plot = Self {
            document: Document::new(),
            x,
            y,
            legends: 0,
        };
        let document = Document::new()
            .set("viewBox", (0.0, 0.0, WIDTH, HEIGHT))
            .set("font-family", "sans-serif")
            .set("font-size", 12)
            // Black text on any background.
            .add(
                Rectangle::new()
                    .set("width", WIDTH)
                    .set("height", HEIGHT)
                    .set("fill", "#ffffff"),
            )
            .add(text(LEFT, TOP - 32.0, "start", title))
            .add(
                text(LEFT, TOP - 16.0, "start", note)
                    .set("font-size", 10)
                    .set("fill", "#555555"),
            )
            .add(text(
                (LEFT + WIDTH - RIGHT) / 2.0,
                HEIGHT - 12.0,
                "middle",
                x_title,
            ))
            .add(text(0.0, 0.0, "middle", y_title).set(
                "transform",
                format!("translate(14 {}) rotate(-90)", HEIGHT / 2.0),
            ))
            .add(plot.axes());
        Self { document, ..plot }
    }

    /// The position of a point in the picture.
    pub fn at(&self, x: f32, y: f32) -> (f32, f32) {
        let part = |axis: &Axis, value: f32| (value - axis.from) / (axis.to - axis.from);
        (
            LEFT + (WIDTH - LEFT - RIGHT) * part(&self.x, x),
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part(&self.y, y),
        )
    }

    /// Adds a path whose points come from [`Plot::at`].
    pub fn path(&mut self, data: Data, style: Style) {
        let path = styled(Path::new().set("d", data).set("fill", "none"), style);
        self.add(path);
    }

    /// Adds a line through points, with a mark at each.
    pub fn line(&mut self, points: &[(f32, f32)], style: Style) {
        let mut data = Data::new();
        for (i, &(x, y)) in points.iter().enumerate() {
            let at = self.at(x, y);
            data = if i == 0 {
                data.move_to(at)
            } else {
                data.line_to(at)
            };
            let mark = Circle::new()
                .set("cx", at.0)
                .set("cy", at.1)
                .set("r", 2.5)
                .set("fill", style.colour);
            self.add(mark);
        }
        self.path(data, style);
    }

    /// Adds a vertical bar, from one value to another.
    pub fn bar(&mut self, x: f32, [from, to]: [f32; 2], style: Style) {
        let ((x, from), (_, to)) = (self.at(x, from), self.at(x, to));
        let line = Line::new()
            .set("x1", x)
            .set("x2", x)
            .set("y1", from)
            .set("y2", to);
        self.add(line.set("stroke", style.colour).set("stroke-width", 1));
    }

    /// Adds a line to the legend.
    pub fn legend(&mut self, label: &str, style: Style) {
        let y = TOP + 16.0 * self.legends as f32;
        self.legends += 1;
        let sample = Path::new().set(
            "d",
            Data::new()
                .move_to((WIDTH - RIGHT + 12.0, y))
                .horizontal_line_to(WIDTH - RIGHT + 34.0),
        );
        self.add(styled(sample, style));
        self.add(text(WIDTH - RIGHT + 40.0, y + 4.0, "start", label));
    }

    fn axes(&self) -> Group {
        let mut lines = Group::new()
            .set("stroke", "#999999")
            .set("stroke-width", 0.5);
        let mut labels = Group::new();
        for (value, label) in &self.x.ticks {
            let (x, _) = self.at(*value, self.y.from);
            labels = labels.add(text(x, HEIGHT - BOTTOM + 16.0, "middle", label));
        }
        for (value, label) in &self.y.ticks {
            let (_, y) = self.at(self.x.from, *value);
            lines = lines.add(
                Line::new()
                    .set("x1", LEFT)
                    .set("x2", WIDTH - RIGHT)
                    .set("y1", y)
                    .set("y2", y),
            );
            labels = labels.add(text(LEFT - 6.0, y + 4.0, "end", label));
        }
        Group::new().add(lines).add(labels)
    }

    fn add(&mut self, node: impl Node) {
        self.document.append(node);
    }
}

impl fmt::Display for Plot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.document)
    }
}

fn styled(path: Path, style: Style) -> Path {
    let path = path.set("stroke", style.colour).set("stroke-width", 2);
    match style.dashes {
        Some(dashes) => path.set("stroke-dasharray", dashes),
        None => path,
    }
}

fn text(x: f32, y: f32, anchor: &str, content: &str) -> Text {
    Text::new(content)
        .set("x", x)
        .set("y", y)
        .set("text-anchor", anchor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let labels = |most| -> Vec<String> {
            let axis = Axis::up_to(most);
            axis.ticks.into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(6.0), ["0", "1", "2", "3", "4", "5", "6"]);
        assert_eq!(labels(0.9), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(1234.0), ["0", "500", "1000", "1500"]);
        assert_eq!(labels(0.0).len(), 6);
    }

    #[test]
    fn names_are_escaped() {
        let axis = || Axis::up_to(1.0);
        let plot = Plot::new("a < b & c", "", ["", ""], axis(), axis());
        assert!(plot.to_string().contains("a &lt; b &amp; c"), "{plot}");
    }
}
