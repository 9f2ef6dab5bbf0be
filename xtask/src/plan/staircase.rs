//! How often the weights are read, as steps over the number of rows.

use svg::Document;
use svg::node::element::path::Data;
use svg::node::element::{Group, Line, Path, Rectangle, Text};

use super::Ladder;

const WIDTH: f32 = 760.0;
const HEIGHT: f32 = 420.0;
const LEFT: f32 = 50.0;
const TOP: f32 = 40.0;
const RIGHT: f32 = 150.0;
const BOTTOM: f32 = 50.0;
/// Colours that stay apart for colour-blind readers (Okabe and Ito, 2008), then greys.
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442",
    "#777777", "#bbbbbb",
];

/// The axes: rows from 1, passes from 0.
struct Scale {
    rows: usize,
    passes: u32,
}

impl Scale {
    /// Where the column of `m` begins.
    fn x(&self, m: usize) -> f32 {
        LEFT + (WIDTH - LEFT - RIGHT) * (m - 1) as f32 / self.rows as f32
    }

    fn y(&self, passes: u32) -> f32 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * passes as f32 / self.passes as f32
    }
}

/// An SVG document; a line is solid where every row has the bits of M = 1 and dashed where not.
pub(super) fn draw(title: &str, ladders: &[Ladder]) -> String {
    let plans = || ladders.iter().flat_map(|ladder| &ladder.plans);
    let scale = Scale {
        rows: ladders
            .iter()
            .map(|ladder| ladder.plans.len())
            .max()
            .unwrap_or(1),
        passes: plans()
            .map(|plan| plan.weight_passes)
            .max()
            .unwrap_or(1)
            .max(1),
    };
    let mut document = Document::new()
        .set("viewBox", (0.0, 0.0, WIDTH, HEIGHT))
        .set("font-family", "sans-serif")
        .set("font-size", 12)
        // Black text, wherever the picture is shown.
        .add(
            Rectangle::new()
                .set("width", WIDTH)
                .set("height", HEIGHT)
                .set("fill", "#ffffff"),
        )
        .add(text(LEFT, TOP - 18.0, "start", title))
        .add(text(
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 12.0,
            "middle",
            "rows (M)",
        ))
        .add(text(0.0, 0.0, "middle", "reads of the weights").set(
            "transform",
            format!("translate(14 {}) rotate(-90)", HEIGHT / 2.0),
        ))
        .add(axes(&scale));
    for (i, ladder) in ladders.iter().enumerate() {
        document = document.add(steps(&scale, ladder, COLOURS[i % COLOURS.len()], i));
    }
    format!("{document}\n")
}

fn axes(scale: &Scale) -> Group {
    let mut group = Group::new()
        .set("stroke", "#999999")
        .set("stroke-width", 0.5);
    let step = scale.rows.div_ceil(20);
    for m in (1..=scale.rows).step_by(step) {
        let middle = (scale.x(m) + scale.x(m + 1)) / 2.0;
        group = group.add(label(middle, HEIGHT - BOTTOM + 16.0, "middle", m));
    }
    for passes in (0..=scale.passes).step_by(scale.passes.div_ceil(10) as usize) {
        let y = scale.y(passes);
        group = group
            .add(
                Line::new()
                    .set("x1", LEFT)
                    .set("x2", WIDTH - RIGHT)
                    .set("y1", y)
                    .set("y2", y),
            )
            .add(label(LEFT - 6.0, y + 4.0, "end", passes));
    }
    group
}

fn steps(scale: &Scale, ladder: &Ladder, colour: &str, index: usize) -> Group {
    let mut group = Group::new()
        .set("fill", "none")
        .set("stroke", colour)
        .set("stroke-width", 2);
    let mut before: Option<u32> = None;
    for (i, plan) in ladder.plans.iter().enumerate() {
        // A hair apart, so that equal ladders do not cover each other.
        let shift = index as f32 * 1.5;
        let y = scale.y(plan.weight_passes) - shift;
        let start = scale.y(before.unwrap_or(plan.weight_passes)) - shift;
        let data = Data::new()
            .move_to((scale.x(i + 1), start))
            .vertical_line_to(y)
            .horizontal_line_to(scale.x(i + 2));
        let mut path = Path::new().set("d", data);
        if !plan.identical {
            path = path.set("stroke-dasharray", "3 3");
        }
        group = group.add(path);
        before = Some(plan.weight_passes);
    }
    let y = TOP + 16.0 * index as f32;
    group
        .add(
            Line::new()
                .set("x1", WIDTH - RIGHT + 12.0)
                .set("x2", WIDTH - RIGHT + 34.0)
                .set("y1", y)
                .set("y2", y),
        )
        .add(label(WIDTH - RIGHT + 40.0, y + 4.0, "start", &ladder.name))
}

/// Text inside a group that draws lines.
fn label(x: f32, y: f32, anchor: &str, content: impl ToString) -> Text {
    text(x, y, anchor, content)
        .set("fill", "#000000")
        .set("stroke", "none")
}

fn text(x: f32, y: f32, anchor: &str, content: impl ToString) -> Text {
    Text::new(content.to_string())
        .set("x", x)
        .set("y", y)
        .set("text-anchor", anchor)
}
