//! How often the weights are read, as steps over the number of rows.

use cli::chart::{Axis, Plot, Style};

use super::Ladder;

/// An SVG document; a line is solid if every row has the bits of M = 1, else dashed.
pub(super) fn draw(title: &str, ladders: &[Ladder]) -> String {
    let plans = || ladders.iter().flat_map(|ladder| &ladder.plans);
    let rows = ladders
        .iter()
        .map(|ladder| ladder.plans.len())
        .max()
        .unwrap_or(1);
    let passes = plans().map(|plan| plan.weight_passes).max().unwrap_or(1);
    let passes = passes.max(1);
    let whole = (0..=passes)
        .step_by(passes.div_ceil(10) as usize)
        .map(|passes| (passes as f32, passes.to_string()));
    // One column per number of rows, labelled in the middle.
    let columns = (1..=rows)
        .step_by(rows.div_ceil(20))
        .map(|m| (m as f32 + 0.5, m.to_string()));
    let mut plot = Plot::new(
        title,
        "solid: every row has the bits of M = 1",
        ["rows (M)", "reads of the weights"],
        Axis::new(1.0, rows as f32 + 1.0, columns),
        Axis::new(0.0, passes as f32, whole),
    );
    for (i, ladder) in ladders.iter().enumerate() {
        let style = Style::solid(i);
        steps(&mut plot, ladder, style, i);
        plot.legend(&ladder.name, style);
    }
    plot.to_string()
}

fn steps(plot: &mut Plot, ladder: &Ladder, style: Style, index: usize) {
    let mut before = None;
    for (m, plan) in (1..).zip(&ladder.plans) {
        let passes = plan.weight_passes as f32;
        // Shifted slightly, so that equal ladders do not cover each other.
        let at = |m: i32, passes| {
            let (x, y) = plot.at(m as f32, passes);
            (x, y - index as f32 * 1.5)
        };
        let (x, y) = at(m, passes);
        let data = cli::chart::Data::new()
            .move_to((x, at(m, before.unwrap_or(passes)).1))
            .vertical_line_to(y)
            .horizontal_line_to(at(m + 1, passes).0);
        let style = if plan.identical {
            style
        } else {
            style.dashed()
        };
        plot.path(data, style);
        before = Some(passes);
    }
}
