//! The report page of the main comparison.

use std::fmt::Write;

use mlx_prefix::Stamp;

use crate::identity::{ARCHITECTURE, Outcome, Tally};

/// The page, in Markdown.
pub fn render(outcome: &Outcome, stamp: &Stamp, pristine: bool, command: &str) -> String {
    let mut page = String::new();
    let total = outcome.total();
    let [done, all] = outcome.cases;
    let part = if done == all {
        "all of them".to_owned()
    } else {
        format!("{done} of them; the run was cut short")
    };
    let reference = if pristine {
        "the rows alone were also evaluated by a library built from the pristine pin, with equal bits"
    } else {
        "the rows alone come from the patched library itself"
    };
    // Writing to a String does not fail.
    let _ = write!(
        page,
        "# Each row of several has the bits that it has alone\n\n\
         MLX {}, tree `{}`, on the simulated `{ARCHITECTURE}`: it shows what the kernels' text and the \
         dispatch do, not what Apple's compiler and GPU make of them.\n\n\
         Written by `{command}`: this tier of the matrix (`Tier` in `crates/proofs/src/identity.rs` \
         states the rule) has {all} cases ({part}); each evaluates the same rows one by one and in \
         products of several rows, and compares all bits. For every product the kernel that ran is the planned \
         one and the one that its K is named for, and its error against float64 is within the \
         type's. Here {reference}.\n\n\
         **{} products, {} outputs, {} differing; {} rows alone confirmed by pristine MLX; {} \
         findings.**\n\n",
        stamp.version,
        stamp.final_tree,
        total.products,
        total.outputs,
        total.differing,
        total.pristine_rows,
        outcome.findings.len(),
    );
    let rows = outcome
        .by_setting
        .iter()
        .map(|((policy, contraction, order), tally)| {
            (format!("{policy} | {contraction} | {order}"), tally)
        });
    table(&mut page, "policy | contraction | simd_sum", 3, rows);
    let rows = outcome
        .by_kind
        .iter()
        .map(|((weights, kind, policy), tally)| {
            (format!("{weights} | {} | {policy}", kind.name()), tally)
        });
    table(&mut page, "weights | one-row kernel | policy", 3, rows);
    let rows = outcome
        .by_type
        .iter()
        .map(|((dtype, group), tally)| (format!("{dtype} | {group}"), tally));
    table(&mut page, "type | group", 2, rows);
    if !outcome.control.is_empty() {
        page.push_str(
            "The same comparison under the policy `default`, on the seeds of the sweep, where MLX takes `qmv_wide`:\n\n",
        );
        let rows = outcome
            .control
            .iter()
            .map(|(names, tally)| (names.join(" | "), tally));
        table(&mut page, "mode | type", 2, rows);
    }
    for finding in outcome.findings.iter().take(50) {
        let _ = writeln!(page, "- {finding}");
    }
    page
}

fn table<'t>(
    page: &mut String,
    heads: &str,
    columns: usize,
    rows: impl Iterator<Item = (String, &'t Tally)>,
) {
    let _ = writeln!(page, "| {heads} | products | outputs | differing |");
    let _ = writeln!(page, "|{}--:|--:|--:|", "---|".repeat(columns));
    for (names, tally) in rows {
        let _ = writeln!(
            page,
            "| {names} | {} | {} | {} |",
            tally.products, tally.outputs, tally.differing
        );
    }
    page.push('\n');
}
