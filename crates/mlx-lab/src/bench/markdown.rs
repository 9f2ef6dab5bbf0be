//! The measurements as a page.

use std::fmt::Write;

use super::{Cell, DENSE, Report, Spread, WORTH, Wide, grouped, wide_lines};
use crate::machine::Condition;

/// The text for the terminal, if the page goes to a file: everything except the tables.
pub fn summary(report: &Report) -> String {
    let page = markdown(report);
    let head = page.lines().filter_map(|line| line.strip_prefix("- "));
    let mut text: String = head.map(|line| format!("{line}\n")).collect();
    for limit in &report.limits {
        let _ = writeln!(
            text,
            "{}: `exact` pays from {}, and recovers {}",
            limit.product,
            limit
                .pays_from
                .map_or_else(|| "no M".to_owned(), |m| format!("M = {m}")),
            percent(limit.recovered, "nothing, as there is no gap")
        );
    }
    let _ = writeln!(text, "{} times", report.cells.len());
    text
}

/// The complete page.
pub fn markdown(report: &Report) -> String {
    let mut page = "# Quantized products of several rows\n\n".to_owned();
    let simulated = report.machines.iter().any(|machine| machine.simulated);
    // Writing to a String cannot fail.
    for machine in &report.machines {
        let _ = writeln!(page, "- {}", machine.line());
    }
    if let Some(caveat) = &report.caveat {
        let _ = writeln!(page, "- **{caveat}**");
    }
    let _ = writeln!(
        page,
        "- chains of dependent products, arms interleaved B A A B, {} rounds; medians, and the \
         quartiles as spread; bytes are those of weights, scales and biases, counted once",
        report.rounds
    );
    if let Some(outputs) = report.outputs {
        let _ = writeln!(
            page,
            "- only {outputs} outputs of each product were computed"
        );
        for merged in &report.merged {
            let _ = writeln!(page, "- {merged}: measured once");
        }
    }
    condition(&mut page, "before", &report.before);
    condition(&mut page, "after", &report.after);
    let _ = writeln!(page, "- written by `{}`\n", report.command);
    times(&mut page, report, simulated);
    if !report.gaps.is_empty() {
        recovered(&mut page, report);
    }
    if !report.wide.is_empty() {
        wide(&mut page, report);
    }
    if let Some((what, long)) = &report.sustained {
        let _ = writeln!(
            page,
            "## A long run\n\n{what}: {} runs of a chain in {:.0} s. Median of the first tenth {:.3} \
             ms, of the last {:.3} ms; the slowest took {:.3} ms, {:.0} s in.\n",
            long.runs,
            long.asked,
            long.first * 1e3,
            long.last * 1e3,
            long.slowest * 1e3,
            long.slowest_at
        );
    }
    if !report.refused.is_empty() {
        let _ = writeln!(page, "## Not compared\n");
        for refused in &report.refused {
            let _ = writeln!(page, "- {refused}");
        }
        page.push('\n');
    }
    page
}

fn condition(page: &mut String, when: &str, condition: &Condition) {
    let flat = |text: &String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (what, text) in [("power", &condition.power), ("heat", &condition.thermal)] {
        if let Some(text) = text {
            let _ = writeln!(page, "- {what} {when}: {}", flat(text));
        }
    }
}

fn times(page: &mut String, report: &Report, simulated: bool) {
    let unit = if simulated { "simulator's µs" } else { "µs" };
    let _ = writeln!(
        page,
        "## Times\n\n| product | rows | arm | {unit} | spread | GB/s | kernel |\n|---|--:|---|--:|--:|--:|---|"
    );
    for cells in grouped(&report.cells).into_values() {
        for cell in cells {
            let seconds = &cell.seconds;
            let _ = writeln!(
                page,
                "| {} | {} | {} | {:.1} | {:.1} to {:.1} | {} | {} |",
                cell.product,
                rows(cell),
                cell.arms().collect::<Vec<_>>().join(", "),
                seconds.median * 1e6,
                seconds.low * 1e6,
                seconds.high * 1e6,
                cell.gb_per_s
                    .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")),
                match (cell.arm.as_str(), cell.kernel.as_str()) {
                    (DENSE, _) => "bf16 weights",
                    (_, "") => "unknown",
                    (_, kernel) => kernel,
                }
            );
        }
    }
    page.push('\n');
}

fn rows(cell: &Cell) -> String {
    if cell.batch == 1 {
        cell.rows.to_string()
    } else {
        format!("{} x {}", cell.batch, cell.rows)
    }
}

fn recovered(page: &mut String, report: &Report) {
    let _ = writeln!(
        page,
        "## What `exact` recovers\n\nThe part of the time between `narrow` and `default` that \
         `exact` saves: 100% is all of it, with the bits of one row.\n\n\
         | product | rows | narrow, µs | default, µs | exact, µs | recovered | pays |\n\
         |---|--:|--:|--:|--:|--:|---|"
    );
    for gap in &report.gaps {
        let _ = writeln!(
            page,
            "| {} | {} | {:.1} | {:.1} | {:.1} | {} | {} |",
            gap.product,
            gap.rows,
            gap.narrow.median * 1e6,
            gap.default.median * 1e6,
            gap.exact.median * 1e6,
            percent(gap.recovered, "no gap"),
            if gap.pays { "yes" } else { "no" }
        );
    }
    let _ = writeln!(
        page,
        "\nA kernel that recovers less than {:.0}% is not worth carrying.\n\n\
         | product | pays from | stops at | recovered, median | worth carrying |\n|---|--:|--:|--:|---|",
        WORTH * 100.0
    );
    for limit in &report.limits {
        let count = |count: Option<usize>| {
            count.map_or_else(|| "never".to_owned(), |count| format!("M = {count}"))
        };
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} |",
            limit.product,
            count(limit.pays_from),
            count(limit.stops_at),
            percent(limit.recovered, "no gap"),
            match limit.worth_carrying {
                Some(true) => "yes",
                Some(false) => "no",
                None => "nothing to recover",
            }
        );
    }
    page.push('\n');
}

fn wide(page: &mut String, report: &Report) {
    let _ = writeln!(
        page,
        "## What `wide` costs and saves\n\nUnder `wide` rows have the bits of `qmv_wide` at any number of rows, one \
         included.\n\n\
         | product | rows | default, µs | exact, µs | wide, µs | against default | against exact |\n\
         |---|--:|--:|--:|--:|--:|--:|"
    );
    for of in &report.wide {
        let _ = writeln!(
            page,
            "| {} | {} | {:.1} | {:.1} | {:.1} | {} | {} |",
            of.product,
            of.rows,
            of.default.median * 1e6,
            of.exact.median * 1e6,
            of.wide.median * 1e6,
            against(of, &of.default),
            against(of, &of.exact)
        );
    }
    page.push('\n');
    for line in wide_lines(&report.wide) {
        let _ = writeln!(page, "- {line}");
    }
    page.push('\n');
}

fn against(of: &Wide, other: &Spread) -> String {
    match of.more_than(other) {
        Some(more) => format!("{:+.0}%", more * 100.0),
        None if of.wide == *other => "same kernel".to_owned(),
        None => "within the spread".to_owned(),
    }
}

fn percent(part: Option<f64>, none: &str) -> String {
    part.map_or_else(|| none.to_owned(), |part| format!("{:.0}%", part * 100.0))
}
