//! A probe's outcome as text.

use std::fmt::Write;

use comfy_table::Table;
use comfy_table::presets::NOTHING;

use super::{LayerVerdict, Operation, OperationVerdict, Report};

/// The complete outcome.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", report.machine.line());
    if report.machine.simulated {
        let _ = writeln!(
            text,
            "simulated: this shows what the kernels' source and the dispatch do, not what Apple's \
             compiler and GPU make of them"
        );
    }
    let _ = writeln!(
        text,
        "x of {}, and of f32; blocks of {} rows\n\n{}",
        report.dtype,
        spans(&report.rows),
        table(report)
    );
    for layer in &report.layers {
        if let Some(row) = &layer.wide {
            let _ = writeln!(
                text,
                "{}: one row takes {} under `wide`, and {} of {} outputs have other bits than under `default`",
                layer.layer.product,
                if row.function.is_empty() {
                    "its kernel"
                } else {
                    &row.function
                },
                row.differing,
                row.outputs
            );
        }
    }
    for verdict in &report.operations {
        let _ = writeln!(text, "{}", operation(verdict));
    }
    let _ = writeln!(text, "\n{}", verdict(report));
    for obstacle in &report.obstacles {
        let _ = writeln!(text, "  {obstacle}");
    }
    for skipped in &report.skipped {
        let _ = writeln!(text, "  not probed: {skipped}");
    }
    for other in &report.others {
        let _ = writeln!(text, "  not multiplied: {other}");
    }
    text
}

/// An operation, and the number of rows from which on it differs under each policy.
fn operation(verdict: &OperationVerdict) -> String {
    let differs = verdict
        .reasons
        .iter()
        .map(|(policy, _)| match verdict.differs_from(policy) {
            Some(rows) => format!("differs under {policy} from M = {rows} on"),
            None => format!("not known under {policy}"),
        });
    let exact =
        (!verdict.exact.is_empty()).then(|| format!("exact under {}", verdict.exact.join(", ")));
    let all: Vec<String> = exact.into_iter().chain(differs).collect();
    format!(
        "{} ({}): {}",
        verdict.operation,
        verdict.count,
        all.join("; ")
    )
}

fn verdict(report: &Report) -> String {
    if !report.has_products() {
        return "verdict: none, because no product was probed".to_owned();
    }
    let Some(policy) = report.recommended() else {
        return "verdict: no policy makes all of it exact".to_owned();
    };
    let exact = report.exact.join(", ");
    let take = format!("take `{policy}`, which reads the fewest bytes of weights");
    let within = within(report);
    if report.skipped.is_empty() {
        format!("verdict: exact under {exact}, {within}; {take}")
    } else {
        format!(
            "verdict: everything probed is exact under {exact}, {within} ({take}), but not everything was probed"
        )
    }
}

/// The range of the verdict: kernels change with the rows and, for attention, with the positions.
fn within(report: &Report) -> String {
    let rows = report.rows.iter().max().copied().unwrap_or(0);
    let positions = report
        .operations
        .iter()
        .filter_map(|verdict| match verdict.operation {
            Operation::Attention { context, .. } => Some(context),
            _ => None,
        });
    match positions.max() {
        None => format!("for blocks of up to {rows} rows"),
        Some(most) => format!("for blocks of up to {rows} rows and {most} positions"),
    }
}

/// A row for each product and policy.
pub fn table(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header([
        "product",
        "count",
        "policy",
        "outputs differing",
        "kernels for several rows",
    ]);
    for layer in &report.layers {
        for (i, policy) in policies(layer).into_iter().enumerate() {
            let cells = || layer.cells.iter().filter(|cell| cell.policy == policy);
            let differing: usize = cells().map(|cell| cell.differing).sum();
            let outputs: usize = cells().map(|cell| cell.outputs).sum();
            let functions = cells().map(|cell| cell.function.as_str());
            let mut functions: Vec<&str> = functions.filter(|name| !name.is_empty()).collect();
            functions.dedup();
            table.add_row([
                if i == 0 {
                    layer.layer.product.to_string()
                } else {
                    String::new()
                },
                if i == 0 {
                    layer.layer.count.to_string()
                } else {
                    String::new()
                },
                policy.to_owned(),
                if cells().any(|cell| cell.outputs == 0) && differing == 0 {
                    format!("none of {outputs}, but not all were compared")
                } else if differing == 0 {
                    format!("none of {outputs}: exact")
                } else {
                    format!("{differing} of {outputs}")
                },
                functions.join(", "),
            ]);
        }
    }
    table
}

fn policies(layer: &LayerVerdict) -> Vec<&str> {
    let mut names: Vec<&str> = layer
        .cells
        .iter()
        .map(|cell| cell.policy.as_str())
        .collect();
    names.dedup();
    names
}

/// `2-8`, `2, 4-5`.
pub(crate) fn spans(rows: &[usize]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for row in rows {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 >= row => *last = row,
            _ => spans.push((row, row)),
        }
    }
    let text = |&(from, to): &(usize, usize)| {
        if from == to {
            from.to_string()
        } else {
            format!("{from}-{to}")
        }
    };
    spans.iter().map(text).collect::<Vec<_>>().join(", ")
}
