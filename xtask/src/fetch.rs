//! `cargo xtask fetch`: fetches the pinned MLX and its build inputs.

use camino::Utf8PathBuf;
use cli::println;
use mlx_prefix::Backend;
use patchset::fetch::Options;
use patchset::lock::Verdict;
use patchset::sources::Fetched;
use patchset::{Oid, Workspace};

use crate::build::backend;
use crate::progress::Line;

/// Fetch and verify the pinned MLX and its build inputs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask fetch                         from git, or from the carrier on crates.io
  cargo xtask fetch --offline               from cargo's own cache
  cargo xtask fetch --source ../mlx         from a clone of MLX that has the pinned tree")]
pub struct Args {
    /// Use no network; packages that cargo has already still count
    #[arg(long)]
    offline: bool,
    /// Fetch again, even if the files are here
    #[arg(long)]
    refresh: bool,
    /// Use MLX from this folder, git repository or archive; it must hash to the pinned tree id
    #[arg(long, value_name = "PATH", conflicts_with = "refresh")]
    source: Option<Utf8PathBuf>,
    /// Also fetch the inputs that only this back-end needs (cuda)
    #[arg(long, value_parser = backend::parser())]
    backend: Option<Backend>,
    /// Use this tree instead of the reconstructed one that mlx.toml pins; mlx.lock records it as replaced
    #[arg(long, value_name = "ID", value_parser = parse_tree)]
    accept_tree: Option<Oid>,
}

/// Parses a complete tree id.
pub(crate) fn parse_tree(text: &str) -> Result<Oid, String> {
    patchset::tree::parse_id(text)
}

/// Fetches and verifies what is pinned.
pub fn run(args: Args) -> anyhow::Result<()> {
    let workspace = Workspace::discover()?;
    let options = Options {
        offline: args.offline,
        refresh: args.refresh,
        source: args.source,
        accept: args.accept_tree,
        backend: args.backend.map(|backend| backend.to_string()),
    };
    let line = Line::new();
    let outcome = patchset::fetch::fetch(&workspace, &options, &|event| line.show(event))?;
    drop(line);

    let here = if outcome.mlx.cached {
        "here already, from"
    } else {
        "fetched from"
    };
    println!(
        "MLX {}: tree {}, {here} {}",
        outcome.version, outcome.mlx.tree, outcome.mlx.source
    );
    print_verdict(&outcome.mlx);
    if outcome.lock_written {
        println!("mlx.lock records it; commit the change");
    }
    for input in &outcome.inputs {
        let here = if input.cached {
            "here already"
        } else {
            "fetched"
        };
        println!("{} {}: {here}, {}", input.name, input.version, input.folder);
    }
    Ok(())
}

/// Prints what is now known about a reconstructed tree, and the sources that have a different one.
pub(crate) fn print_verdict(mlx: &Fetched) {
    match &mlx.verdict {
        Some(Verdict::Confirmed(confirmed)) => println!(
            "confirmed by git: commit {} has tree {}",
            confirmed.commit, confirmed.tree
        ),
        Some(Verdict::Replaced(replaced)) => println!(
            "replaced: tree {} is used instead of the reconstructed {}",
            replaced.tree, replaced.pinned
        ),
        None => {}
    }
    for failure in &mlx.failures {
        if let Some(other) = failure.other {
            println!(
                "{} has a different tree; if it is the right one, use `--accept-tree {other}`",
                failure.source
            );
        }
    }
}
