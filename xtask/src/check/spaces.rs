//! Checks the language of the kernels: code that is not Metal, and address spaces.

use anyhow::{Context, Result, bail};
use camino::Utf8Path;
use cli::Progress;
use metal_sim::{
    Compiler, Library, Options, Toolchain, Verdict, default_cache_folder, library_of_tree,
};

/// Checks one kernel of every kernel function, or those with `part` in their host name, with address spaces as types.
pub(super) fn check(tree: &Utf8Path, part: Option<&str>) -> Result<String> {
    let toolchain = Toolchain::find(default_cache_folder())?;
    let line = Progress::spinning();
    line.set("reading the kernels' sources");
    let path =
        library_of_tree(&toolchain, tree.as_std_path()).context("cannot read the kernels")?;
    drop(line);
    let names = chosen(&Library::read(&path)?, part);
    if names.is_empty() {
        bail!(
            "no kernel in {tree} has {:?} in its name",
            part.unwrap_or_default()
        );
    }
    let line = Progress::counted("kernels");
    line.count(0, names.len());
    let findings =
        Compiler::new(toolchain, Options::default())
            .check_telling(&path, &names, &|done| line.count(done, names.len()))?;
    drop(line);
    let verdict = Verdict::of(findings);
    for finding in &verdict.new {
        eprintln!("{finding} [{}]", finding.kernel);
    }
    // A part of the kernels cannot show everything in the baseline.
    let stale: &[String] = if part.is_none() { &verdict.stale } else { &[] };
    for line in stale {
        eprintln!("msl/check-baseline.txt has a line that no longer matches; remove it: {line}");
    }
    if !verdict.new.is_empty() || !stale.is_empty() {
        bail!(
            "{} errors in {} kernels, {} stale lines in msl/check-baseline.txt",
            verdict.new.len(),
            names.len(),
            stale.len()
        );
    }
    Ok(format!(
        "no errors in {} kernels (except {} in stock MLX, which Metal accepts)",
        names.len(),
        verdict.known
    ))
}

fn chosen(library: &Library, part: Option<&str>) -> Vec<String> {
    let names: Vec<&str> = match part {
        Some(part) => library.names().filter(|name| name.contains(part)).collect(),
        None => library.representatives(),
    };
    names.into_iter().map(str::to_owned).collect()
}
