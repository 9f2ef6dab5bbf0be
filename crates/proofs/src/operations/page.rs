//! The report page of a comparison.

use std::fmt::Write;

use mlx_prefix::Stamp;

use super::run::Comparison;

/// The page, in Markdown.
pub fn render_operations(
    title: &str,
    rule: &str,
    comparison: &Comparison,
    stamp: &Stamp,
    command: &str,
    minutes: f64,
) -> String {
    let [done, all] = comparison.jobs;
    let part = if done == all {
        "all of them".to_owned()
    } else {
        format!("{done} of them; the run was cut short")
    };
    let mut page = format!(
        "# {title}\n\n\
         MLX {}, tree `{}`, on the simulated device: it shows what the kernels' text and the dispatch \
         do, not what Apple's compiler and GPU make of them.\n\n\
         Written by `{command}` in {minutes:.0} minutes: {all} cases ({part}). {rule}\n\n\
         Each case evaluates rows one by one under `default`, and blocks of them under each policy. \
         `default` is the control: it must differ somewhere.\n\n\
         | operation | type | policy | blocks | outputs | differing |\n|---|---|---|--:|--:|--:|\n",
        stamp.version, stamp.final_tree,
    );
    for ((operation, dtype, policy), compared) in &comparison.by_policy {
        // Writing to a String does not fail.
        let _ = writeln!(
            page,
            "| {operation} | {dtype} | {policy} | {} | {} | {} |",
            compared.blocks, compared.outputs, compared.differing
        );
    }
    let _ = writeln!(page, "\n**{} findings.**", comparison.findings.len());
    for finding in comparison.findings.iter().take(50) {
        let _ = writeln!(page, "- {finding}");
    }
    page
}
