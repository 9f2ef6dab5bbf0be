//! `cargo xtask apply-overlay`: makes `vendor/mlx`.

use camino::Utf8PathBuf;
use cli::println;
use patchset::apply::{self, Options, Target};
use patchset::{Oid, Workspace};

use crate::progress::Line;

/// Make vendor/mlx: the pinned MLX with the overlay.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask apply-overlay                 make vendor/mlx, or confirm that it is right
  cargo xtask apply-overlay --check         fail unless it is right
  cargo xtask apply-overlay --update-lock   after a change of mlx.toml or patches/")]
pub struct Args {
    /// Change nothing; fail if the overlay is not applied
    #[arg(long, conflicts_with_all = ["revert", "discard_edits", "update_lock", "source", "offline", "accept_tree"])]
    check: bool,
    /// Make vendor/mlx the pinned MLX without the overlay
    #[arg(long)]
    revert: bool,
    /// Discard edits made by hand; a copy is kept in vendor/
    #[arg(long)]
    discard_edits: bool,
    /// Write mlx.lock again from mlx.toml and patches/
    #[arg(long)]
    update_lock: bool,
    /// Use no network; packages that cargo has already still count
    #[arg(long)]
    offline: bool,
    /// Use MLX from this folder, git repository or archive; it must hash to the pinned tree id
    #[arg(long, value_name = "PATH")]
    source: Option<Utf8PathBuf>,
    /// Use this tree instead of the reconstructed one that mlx.toml pins; mlx.lock records it as replaced
    #[arg(long, value_name = "ID", value_parser = crate::fetch::parse_tree)]
    accept_tree: Option<Oid>,
}

/// Makes, checks or reverts the tree.
pub fn run(args: Args) -> anyhow::Result<()> {
    let workspace = Workspace::discover()?;
    let line = Line::new();
    let progress: patchset::progress::Progress<'_> = &|event| line.show(event);
    if args.check {
        let tree = apply::check(&workspace, progress)?;
        drop(line);
        println!("applied: tree {tree}");
        return Ok(());
    }
    let target = if args.revert {
        Target::Pristine
    } else {
        Target::Applied
    };
    let options = Options {
        target,
        discard_edits: args.discard_edits,
        update_lock: args.update_lock,
        offline: args.offline,
        source: args.source,
        accept: args.accept_tree,
    };
    let outcome = apply::apply(&workspace, &options, progress)?;
    drop(line);

    if let Some(mlx) = &outcome.fetched {
        crate::fetch::print_verdict(mlx);
    }
    let name = if args.revert { "pristine" } else { "applied" };
    if outcome.written == 0 && outcome.removed == 0 {
        println!("{name} already: tree {}", outcome.tree);
    } else {
        println!(
            "{name}: tree {} ({} files written, {} removed)",
            outcome.tree, outcome.written, outcome.removed
        );
    }
    if let Some(folder) = &outcome.kept_edits {
        println!("edited files were kept in {folder}");
    }
    if outcome.lock_written {
        println!("mlx.lock has changed; commit it together with the change that caused it");
    }
    Ok(())
}
