//! `cargo xtask patch`: edits, exports, lists and checks the patches.

use anyhow::bail;
use camino::Utf8PathBuf;
use clap::Subcommand;
use cli::println;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use patchset::edit::{self, Opened};
use patchset::series::Series;
use patchset::{Project, Workspace, check};

use crate::progress::Line;
use crate::remedy;

/// Edit, export, list and check the patches.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask patch edit qmv-streamed       lay it out in a worktree, ready to amend
  cargo xtask patch export                  write patches/ and mlx.lock from the worktree
  cargo xtask patch lint")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lay out the patches in a git worktree, one commit each, with the files they add
    ///
    /// Edit there, amend or add commits with any tool, then run `cargo xtask patch export`. If a name is given, that
    /// patch is the last commit, ready to amend; the export rebases the later ones onto it.
    Edit {
        /// The last patch to lay out [default: all patches]
        name: Option<String>,
        /// Discard an earlier worktree that was not exported
        #[arg(long)]
        discard: bool,
    },
    /// Turn the commits of the worktree back into patches/ and mlx.lock
    ///
    /// If a later patch no longer fits, its conflict is laid out there; resolve it before the next export.
    Export {
        /// Remove later patches from the series that have no changes left
        #[arg(long)]
        drop_empty: bool,
    },
    /// List the patches
    List,
    /// Check headers, series, lock, budget, canonical form and the format of added lines
    Lint {
        /// The clang-format to use [default: the one on PATH]
        #[arg(long, value_name = "PROGRAM")]
        clang_format: Option<Utf8PathBuf>,
    },
}

/// Runs a subcommand.
pub fn run(args: Args) -> anyhow::Result<()> {
    let workspace = Workspace::discover()?;
    let line = Line::new();
    let progress: patchset::progress::Progress<'_> = &|event| line.show(event);
    match args.command {
        Command::Edit { name, discard } => {
            let opened = edit::open(&workspace, name.as_deref(), discard, progress)?;
            drop(line);
            print_opened(&opened);
        }
        Command::Export { drop_empty } => {
            let exported = edit::export(&workspace, drop_empty, progress)?;
            drop(line);
            if exported.changed.is_empty() {
                println!(
                    "the patches have not changed: {}",
                    exported.patches.join(", ")
                );
            } else {
                println!("changed: {}", exported.changed.join(", "));
                println!(
                    "next: `cargo xtask patch lint`, `cargo xtask apply-overlay`, test, commit"
                );
            }
        }
        Command::List => {
            let project = Project::open(&workspace, progress)?;
            drop(line);
            println!("{}", table(&project.series));
        }
        Command::Lint { clang_format } => {
            let program = clang_format.or_else(self::clang_format);
            let findings = check::patches(&workspace, program.as_deref(), progress);
            drop(line);
            for note in &findings.notes {
                println!("note: {note}");
            }
            if !findings.faults.is_empty() {
                let faults: Vec<_> = findings.faults.iter().map(remedy::described).collect();
                bail!("patches/ is not in order:\n  - {}", faults.join("\n  - "));
            }
            println!("patches/ is in order");
        }
    }
    Ok(())
}

/// The clang-format on PATH.
pub(crate) fn clang_format() -> Option<Utf8PathBuf> {
    which::which("clang-format").ok()?.try_into().ok()
}

fn print_opened(opened: &Opened) {
    println!("{} in\n  {}", opened.patches.join(", "), opened.worktree);
    if !opened.later.is_empty() {
        println!("the export will rebase {} onto it", opened.later.join(", "));
    }
    println!(
        "edit and `git commit` there (the message is the patch's name, an empty line, and its header), then run"
    );
    println!("  cargo xtask patch export");
}

fn table(series: &Series) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["patch", "lines", "edits", "adds", "upstream"]);
    for patch in &series.patches {
        let edits: Vec<_> = patch.edits.iter().map(|edit| edit.path.as_str()).collect();
        let adds: Vec<_> = patch.header.adds().collect();
        let upstream = patch.header.field("Upstream").join(" ");
        let lines = patch.changed_lines.to_string();
        table.add_row([
            &patch.name,
            &lines,
            &edits.join("\n"),
            &adds.join("\n"),
            &upstream,
        ]);
    }
    table
}
