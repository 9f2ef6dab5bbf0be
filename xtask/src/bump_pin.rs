//! `cargo xtask bump-pin`: moves the pin and takes the patches along.

use anyhow::bail;
use cli::{print, println};
use patchset::bump::{self, Options, Outcome, Report};
use patchset::{Oid, Workspace};

use crate::progress::Line;

/// Move the pin to another MLX and put every patch onto it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each patch is put onto the new pin by a 3-way merge. mlx.toml, mlx.lock, patches/ and a summary in \
                  docs/pin-moves/ change together, last. If a patch does not fit, nothing changes: a worktree in \
                  target/bump/ waits for a decision.",
    after_long_help = "\
Each patch is put onto the new pin by a 3-way merge. mlx.toml, mlx.lock, patches/ and a summary in docs/pin-moves/ change \
together, last. If a patch does not fit, nothing changes: a worktree in target/bump/ waits for a decision. Decisions are \
remembered in target/resolutions/ and used again when the same lines meet.

Examples:
  cargo xtask bump-pin v0.33.0 --dry-run    what would happen, and what upstream changed
  cargo xtask bump-pin v0.33.0
  cargo xtask bump-pin --continue           after a conflict was settled in target/bump/
  cargo xtask bump-pin --back               decide the conflict before that one again"
)]
pub struct Args {
    /// The version (0.32.4), tag (v0.32.4) or commit to move to
    #[arg(required_unless_present_any = ["continue_", "back", "abort"])]
    wanted: Option<String>,
    /// Take it from this folder, archive, git repository, or address of a git repository
    #[arg(long, value_name = "PATH|URL")]
    source: Option<String>,
    /// The tree id that it must have
    #[arg(long, value_name = "ID", value_parser = tree_id)]
    tree: Option<Oid>,
    /// Take patches of which nothing is left out of the series: upstream has absorbed them
    #[arg(long)]
    drop_absorbed: bool,
    /// Report only; write nothing but the report and the cache below target/
    #[arg(long)]
    dry_run: bool,
    /// Use no network; packages that cargo has already still count
    #[arg(long)]
    offline: bool,
    /// Go on with what was decided in the worktree
    #[arg(long = "continue", conflicts_with_all = ["wanted", "source", "tree", "dry_run", "offline", "back", "abort"])]
    continue_: bool,
    /// Take the last decision back: its patch waits again, with what was decided in its files
    #[arg(long, conflicts_with_all = ["wanted", "source", "tree", "drop_absorbed", "dry_run", "offline", "abort"])]
    back: bool,
    /// With --back: lose what is not finished in the worktree
    #[arg(long, requires = "back", conflicts_with = "continue_")]
    discard: bool,
    /// Give up: remove the worktree; the project is as it was
    #[arg(long, conflicts_with_all = ["wanted", "source", "tree", "drop_absorbed", "dry_run", "offline"])]
    abort: bool,
}

fn tree_id(text: &str) -> Result<Oid, String> {
    let whole = text.len() == 40;
    let id = Oid::from_str(text).ok().filter(|_| whole);
    id.ok_or_else(|| "expected a git tree id of 40 hexadecimal digits".to_owned())
}

/// Moves the pin, goes on, or gives up.
pub fn run(args: Args) -> anyhow::Result<()> {
    let workspace = Workspace::discover()?;
    let line = Line::new();
    let progress: patchset::progress::Progress<'_> = &|event| line.show(event);
    if args.abort {
        bump::abort(&workspace, progress)?;
        drop(line);
        println!(
            "given up: the worktree is gone, the project is as it was; decided conflicts are remembered"
        );
        return Ok(());
    }
    if args.back {
        let (patch, worktree) = bump::back(&workspace, args.discard, progress)?;
        drop(line);
        println!("{patch} waits again, with what was decided in its files, in\n  {worktree}");
        println!("`git checkout --conflict=diff3 <file>` there brings a conflict back; then");
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
    println!("\nthe whole report: {}\n", report.file());
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
        Outcome::DryRun => println!("dry run: this would go through; the project was not changed"),
        Outcome::Absorbed { names, waits } => {
            let command = match waits {
                true => "`cargo xtask bump-pin --continue --drop-absorbed`",
                false => "the same command with --drop-absorbed",
            };
            bail!(
                "nothing is left of {}, so the project was not changed; to take it out of the series, run {command}",
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
             resolve the files there, with the markers gone, then go on with\n  cargo xtask bump-pin --continue\n\
             or give up with\n  cargo xtask bump-pin --abort"
        ),
    }
    Ok(())
}
