//! `cargo xtask verify`: properties of the patched sources that no build shows.

use anyhow::{Context, bail};
use camino::Utf8PathBuf;
use metal_sim::{
    Compiler, Library, Options, Toolchain, Verdict, default_cache_folder, library_of_tree,
};

/// Check properties of the patched sources that no build shows
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask verify --msl
  cargo xtask verify --msl --kernel affine_qmv")]
pub struct Args {
    /// Compile the Metal kernels with their address spaces as types of their own
    ///
    /// A `device`, `constant`, `thread` or `threadgroup` that is missing or wrong is an error here as on a Mac, where the
    /// simulated device, having one address space, would not notice.
    #[arg(long, required = true)]
    msl: bool,
    /// The MLX tree to check
    #[arg(long, value_name = "FOLDER", default_value = "vendor/mlx")]
    tree: Utf8PathBuf,
    /// Kernels to check, by a part of their host name; one of every kernel function without it
    #[arg(long, value_name = "TEXT")]
    kernel: Option<String>,
}

/// Runs the checks that were asked for.
pub fn run(args: Args) -> anyhow::Result<()> {
    let tree = crate::root()?.join(&args.tree);
    if !tree.join("mlx").is_dir() {
        bail!("{tree} holds no MLX; run `cargo xtask apply-overlay` first");
    }
    let toolchain = Toolchain::find(default_cache_folder())?;
    let path =
        library_of_tree(&toolchain, tree.as_std_path()).context("cannot read the kernels")?;
    let library = Library::read(&path)?;
    let names = chosen(&library, args.kernel.as_deref());
    if names.is_empty() {
        bail!(
            "no kernel of {tree} has {:?} in its name",
            args.kernel.unwrap_or_default()
        );
    }
    let findings = Compiler::new(toolchain, Options::default()).check(&path, &names)?;
    let verdict = Verdict::of(findings);
    for finding in &verdict.new {
        eprintln!(
            "{}:{}: {} [{}]",
            finding.file, finding.line, finding.message, finding.kernel
        );
    }
    // A part of the kernels cannot show all that the baseline knows.
    if args.kernel.is_none() {
        for line in &verdict.stale {
            eprintln!("no longer found, take it out of msl/check-baseline.txt: {line}");
        }
    }
    let stale = if args.kernel.is_none() {
        verdict.stale.len()
    } else {
        0
    };
    if !verdict.new.is_empty() || stale > 0 {
        bail!(
            "{} address-space errors in {} kernels, {stale} stale lines in the baseline",
            verdict.new.len(),
            names.len()
        );
    }
    println!(
        "address spaces of {} kernels: no errors ({} of stock MLX that Metal accepts)",
        names.len(),
        verdict.known
    );
    Ok(())
}

fn chosen(library: &Library, part: Option<&str>) -> Vec<String> {
    let names: Vec<&str> = match part {
        Some(part) => library.names().filter(|name| name.contains(part)).collect(),
        None => library.representatives(),
    };
    names.into_iter().map(str::to_owned).collect()
}
