//! `cargo xtask bump-pin`: moves the pin and rebases the patches.

use anyhow::bail;
use cli::{print, println};
use patchset::bump::{self, Options, Outcome, Report};
use patchset::{Oid, Workspace};

use crate::progress::Line;

/// Move the pin to another MLX and rebase every patch onto it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each patch is rebased onto the new pin by a 3-way merge. mlx.toml, mlx.lock, patches/ and a summary in \
                  docs/pin-moves/ change together, last. If a patch does not fit, nothing changes: a worktree in \
                  target/bump/ has the conflict for you to resolve.",
    after_long_help = "\
Each patch is rebased onto the new pin by a 3-way merge. mlx.toml, mlx.lock, patches/ and a summary in docs/pin-moves/ change \
together, last. If a patch does not fit, nothing changes: a worktree in target/bump/ has the conflict for you to resolve. \
Resolutions are \
remembered in target/resolutions/ and reused when the same lines conflict again.

Examples:
  cargo xtask bump-pin v0.33.0 --dry-run    report what would happen and what upstream changed
  cargo xtask bump-pin v0.33.0
  cargo xtask bump-pin --continue           after resolving a conflict in target/bump/
  cargo xtask bump-pin --back               go back to the conflict before that one"
)]
pub struct Args {
    /// The version (0.32.4), tag (v0.32.4) or commit to move to
    #[arg(required_unless_present_any = ["continue_", "back", "abort"])]
    wanted: Option<String>,
    /// Use this folder, archive, git repository, or address of a git repository
    #[arg(long, value_name = "PATH|URL")]
    source: Option<String>,
    /// The expected tree id
    #[arg(long, value_name = "ID", value_parser = tree_id)]
    tree: Option<Oid>,
    /// Remove patches from the series that have no changes left because upstream has absorbed them
    #[arg(long)]
    drop_absorbed: bool,
    /// Report only; write nothing but the report and the cache below target/
    #[arg(long)]
    dry_run: bool,
    /// Use no network; packages that cargo has already still count
    #[arg(long)]
    offline: bool,
    /// Continue with what was resolved in the worktree
    #[arg(long = "continue", conflicts_with_all = ["wanted", "source", "tree", "dry_run", "offline", "back", "abort"])]
    continue_: bool,
    /// Undo the last resolution: its patch is laid out again, with the resolution in its files
    #[arg(long, conflicts_with_all = ["wanted", "source", "tree", "drop_absorbed", "dry_run", "offline", "abort"])]
    back: bool,
    /// With --back: discard unfinished work in the worktree
    #[arg(long, requires = "back", conflicts_with = "continue_")]
    discard: bool,
    /// Give up: remove the worktree and leave the project as it was
    #[arg(long, conflicts_with_all = ["wanted", "source", "tree", "drop_absorbed", "dry_run", "offline"])]
    abort: bool,
}

fn tree_id(text: &str) -> Result<Oid, String> {
    let whole = text.len() == 40;
    let id = Oid::from_str(text).ok().filter(|_| whole);
    id.ok_or_else(|| "expected a git tree id of 40 hexadecimal digits".to_owned())
}

/// Moves the pin, continues, or gives up.
pub fn run(args: Args) -> anyhow::Result<()> {
    let workspace = Workspace::discover()?;
    let line = Line::new();
    let progress: patchset::progress::Progress<'_> = &|event| line.show(event);
    if args.abort {
        bump::abort(&workspace, progress)?;
        drop(line);
        println!(
            "given up: the worktree is removed, the project is unchanged; resolved conflicts are remembered"
        );
        return Ok(());
    }
    if args.back {
        let (patch, worktree) = bump::back(&workspace, args.discard, progress)?;
        drop(line);
        println!("{patch} is laid out again, with its resolution in the files, in\n  {worktree}");
        println!("`git checkout --conflict=diff3 <file>` there restores a conflict; then");
        println!("  cargo xtask bump-pin --continue");
        return Ok(());
    }
    let (report, outcome) = if args.continue_ {
        bump::resume(&workspace, args.drop_absorbed, progress)?
    } else {
        let options = Options {
            wanted: args.wanted.unwrap_or_default(),
            source: args.source,
            tree: args.tree,
            drop_absorbed: args.drop_absorbed,
            dry_run: args.dry_run,
            offline: args.offline,
        };
        bump::start(&workspace, &options, progress)?
    };
    drop(line);
    print!("{}", report.summary());
    println!("\nthe full report: {}\n", report.file());
    finish(&report, &outcome)
}

fn finish(report: &Report, outcome: &Outcome) -> anyhow::Result<()> {
    match outcome {
        Outcome::Done => {
            println!("moved: mlx.toml, mlx.lock, patches/ and docs/pin-moves/ are changed");
            println!(
                "next: `cargo xtask apply-overlay`, then test, then commit all of it together"
            );
        }
        Outcome::DryRun => println!("dry run: this would succeed; the project was not changed"),
        Outcome::Absorbed { names, waits } => {
            let command = match waits {
                true => "`cargo xtask bump-pin --continue --drop-absorbed`",
                false => "the same command with --drop-absorbed",
            };
            bail!(
                "no change is left of {}, so the project was not changed; to remove it from the series, run {command}",
                names.join(", ")
            )
        }
        Outcome::Conflict {
            patch,
            worktree: None,
        } => {
            let others = report.conflicts().count() - 1;
            let others = match others {
                0 => String::new(),
                others => format!(" (nor do {others} later ones)"),
            };
            bail!(
                "{patch} does not fit{others}; this was a dry run, so no worktree was made and the project was not changed"
            )
        }
        Outcome::Conflict {
            patch,
            worktree: Some(worktree),
        } => bail!(
            "{patch} does not fit, so the project was not changed; the conflict is laid out in\n  {worktree}\n\
             resolve the files there (no markers left), then continue with\n  cargo xtask bump-pin --continue\n\
             or give up with\n  cargo xtask bump-pin --abort"
        ),
    }
    Ok(())
}
