//! `cargo xtask status`: the state of `vendor/mlx`.

use cli::println;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use patchset::Workspace;
use patchset::bump::Waiting;
use patchset::state::{PatchState, Status, status};

use crate::progress::Line;

/// Show the state of vendor/mlx, patch by patch.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask status
  cargo xtask status --json | jq -r .state")]
pub struct Args {
    /// Print one JSON object with stable fields
    ///
    /// state (absent, pristine, applied, partly-applied, stale, tampered), version, source, base_tree, final_tree
    /// (computed from the files; null if there are none), lock_tree, changed_lines, budget_lines, patches (each with
    /// name, state, changed_lines), edited (paths, if the state is tampered), pin (the version, and the commit of a pin
    /// that is not a release), bump (null, or patch, to, worktree and stale of a bump that waits), bump_error (null, or
    /// why the state of a bump cannot be read)
    #[arg(long)]
    json: bool,
}

/// Prints the state of the tree.
pub fn run(args: Args) -> anyhow::Result<()> {
    let workspace = Workspace::discover()?;
    let line = Line::new();
    let (state, status) = status(&workspace, &|event| line.show(event))?;
    drop(line);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
        return Ok(());
    }
    println!("MLX {}: {state}", status.pin);
    println!("{}", pin_table(&status));
    println!("{}", patch_table(&status));
    if let Some(bump) = &status.bump {
        let go_on = match bump.stale {
            true => "",
            false => "`cargo xtask bump-pin --continue`, or ",
        };
        println!("\n{}", waiting(bump));
        println!("then {go_on}`cargo xtask bump-pin --abort`");
    }
    if let Some(error) = &status.bump_error {
        println!("\na bump waits, but its state cannot be read: {error}");
        println!("abort it with `cargo xtask bump-pin --abort`");
    }
    Ok(())
}

/// Describes a bump that waits.
pub(crate) fn waiting(bump: &Waiting) -> String {
    let Waiting {
        patch,
        to,
        worktree,
        stale,
    } = bump;
    let stale = match stale {
        true => "; the project has changed since, so it cannot continue",
        false => "",
    };
    format!("a bump to MLX {to} waits: resolve {patch} in {worktree}{stale}")
}

fn pin_table(status: &Status) -> Table {
    let mut table = plain_table();
    let source = status.source.as_deref().unwrap_or("nothing fetched yet");
    let found = status.final_tree.as_deref().unwrap_or("none");
    let rows = [
        ("source", source),
        ("base tree", &status.base_tree),
        ("lock's tree", &status.lock_tree),
        ("found tree", found),
    ];
    for (name, value) in rows {
        table.add_row([name, value]);
    }
    table
}

fn patch_table(status: &Status) -> Table {
    let mut table = plain_table();
    table.set_header(["patch", "state", "changed lines"]);
    for patch in &status.patches {
        let state = match patch.state {
            PatchState::Applied => "applied",
            PatchState::PartlyApplied => "partly applied",
            PatchState::NotApplied => "not applied",
            PatchState::Unknown => "unknown",
        };
        table.add_row([patch.name.as_str(), state, &patch.changed_lines.to_string()]);
    }
    let total = format!(
        "{} of at most {}",
        status.changed_lines, status.budget_lines
    );
    table.add_row(["all", "", &total]);
    table
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table
}
