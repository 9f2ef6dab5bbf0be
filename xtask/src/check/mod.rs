//! `cargo xtask check`: checks whether the project is in order.

mod closure;
mod spaces;

use std::collections::BTreeSet;

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use clap::ValueEnum;
use cli::println;
use patchset::Workspace;
use patchset::check::{self, Check, Findings};
use serde::Serialize;

use crate::kernels::instantiations;
use crate::progress::Line;
use crate::{Reported, Usage, remedy};

/// Check that the pin, the patches, the lock and the patched sources are in order
///
/// Runs all checks if no names are given. Every failure is reported; the exit code is 1 if there is any.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask check
  cargo xtask check series lock budget
  cargo xtask check --json | jq '.checks[] | select(.faults != [])'
  cargo xtask check address-spaces --kernel affine_qmv")]
pub struct Args {
    /// What to check; everything if no names are given
    #[arg(value_name = "CHECK", value_enum)]
    names: Vec<Name>,
    /// The MLX tree whose kernels `closure` and `address-spaces` check
    #[arg(long, value_name = "FOLDER", default_value = "vendor/mlx")]
    tree: Utf8PathBuf,
    /// Kernels for `address-spaces`, by a part of their host name [default: one of every kernel function]
    #[arg(long, value_name = "TEXT")]
    kernel: Option<String>,
    /// The clang-format for `lint` [default: the one on PATH]
    #[arg(long, value_name = "PROGRAM")]
    clang_format: Option<Utf8PathBuf>,
    /// Accept the watched definitions in their current form: the patches were checked against them (only with `watch`)
    #[arg(long, conflicts_with = "json")]
    accept: bool,
    /// Print one JSON object with stable fields: format, checks (each with check, found, faults, notes)
    #[arg(long)]
    json: bool,
    // The flags of `verify`, an earlier name of this command.
    #[arg(long, hide = true)]
    lock: bool,
    #[arg(long, hide = true)]
    budget: bool,
    #[arg(long, hide = true)]
    closure: bool,
    #[arg(long, hide = true)]
    msl: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Name {
    /// The series, the patches, their headers and the added files are consistent
    Series,
    /// mlx.lock matches mlx.toml and patches/, and has the ids of the trees that they produce
    Lock,
    /// The patches change no more upstream lines than mlx.toml allows
    Budget,
    /// The patches apply and are in canonical form, and added lines are formatted like MLX's
    Lint,
    /// The upstream definitions that mlx.toml watches have not changed since the patches were checked against them
    Watch,
    /// vendor/mlx is the lock's final tree
    Tree,
    /// Every kernel that the dispatch can ask for is instantiated, and its function is in the sources of a JIT build
    Closure,
    /// The kernels are valid Metal, and compile with address spaces as types of their own
    ///
    /// A missing or wrong `device`, `constant`, `thread` or `threadgroup` is an error here, as on a Mac. The simulated
    /// device has one address space and would not notice. Code that the Metal specification excludes is an error too.
    AddressSpaces,
}

/// The names of all checks of vendor/mlx, or of all other checks.
pub(crate) fn names(of_the_tree: bool) -> Vec<String> {
    let needs_tree = |name: &Name| matches!(name, Name::Tree | Name::Closure | Name::AddressSpaces);
    let names = Name::value_variants().iter();
    names
        .filter(|name| needs_tree(name) == of_the_tree)
        .filter_map(|name| Some(name.to_possible_value()?.get_name().to_owned()))
        .collect()
}

const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Report {
    format: u32,
    checks: Vec<Outcome>,
}

#[derive(Serialize)]
struct Outcome {
    check: &'static str,
    /// Facts that were checked and are right; empty if there are faults.
    found: String,
    /// What is wrong, each with a remedy.
    faults: Vec<String>,
    notes: Vec<String>,
}

impl Outcome {
    fn new(check: &'static str, findings: &Findings) -> Self {
        Self {
            check,
            found: findings.found.clone(),
            faults: findings.faults.iter().map(remedy::described).collect(),
            notes: findings.notes.clone(),
        }
    }

    fn of(check: &'static str, result: Result<String>) -> Self {
        let (found, faults) = match result {
            Ok(found) => (found, Vec::new()),
            Err(error) => (String::new(), vec![remedy::shown(&error)]),
        };
        Self {
            check,
            found,
            faults,
            notes: Vec::new(),
        }
    }

    fn print(&self) {
        for note in &self.notes {
            println!("{}: note: {note}", self.check);
        }
        if self.faults.is_empty() {
            println!("{}: {}", self.check, self.found);
        }
        for fault in &self.faults {
            eprintln!("error: {}: {fault}", self.check);
        }
    }
}

/// Runs the selected checks, reports every failure, and fails once.
pub fn run(args: Args) -> Result<()> {
    let names = args.names();
    let workspace = Workspace::discover()?;
    if args.accept {
        return accept(&names, &workspace);
    }
    let mut report = Report {
        format: FORMAT,
        checks: Vec::new(),
    };
    let mut add = |outcome: Outcome| {
        if !args.json {
            outcome.print();
        }
        report.checks.push(outcome);
    };
    let clang_format = args.clang_format.clone();
    let clang_format = clang_format.or_else(crate::patch::clang_format);
    for (name, which) in names.iter().filter_map(|name| name.of_the_project()) {
        let line = Line::new();
        let program = clang_format.as_deref();
        let findings = check::check(&workspace, which, program, &|event| line.show(event));
        drop(line);
        add(Outcome::new(name, &findings));
    }
    let of_kernels = [Name::Closure, Name::AddressSpaces].map(|name| names.contains(&name));
    if of_kernels != [false, false] {
        let tree = workspace.root().join(&args.tree);
        check_kernels(&tree, of_kernels, args.kernel.as_deref(), &mut add);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    }
    if report.checks.iter().any(|check| !check.faults.is_empty()) {
        return Err(Reported.into());
    }
    Ok(())
}

/// The checks of the kernels: closure, address spaces.
fn check_kernels(
    tree: &Utf8Path,
    [closure, spaces]: [bool; 2],
    kernel: Option<&str>,
    add: &mut dyn FnMut(Outcome),
) {
    // All of them read the same library, which takes seconds to make.
    let library = instantiations(tree);
    let library = || {
        library
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error:#}"))
    };
    if closure {
        let result = library().and_then(closure::ahead_of_time);
        add(Outcome::of("closure-aot", result));
        let result = library().and_then(|library| closure::at_run_time(tree, library));
        add(Outcome::of("closure-jit", result));
    }
    if spaces {
        let result = spaces::check(tree, kernel);
        add(Outcome::of("address-spaces", result));
    }
}

fn accept(names: &BTreeSet<Name>, workspace: &Workspace) -> Result<()> {
    if *names != BTreeSet::from([Name::Watch]) {
        let message = "--accept works only with `watch`: run `cargo xtask check watch --accept`";
        return Err(Usage(message.to_owned()).into());
    }
    let line = Line::new();
    check::accept_watched(workspace, &|event| line.show(event))?;
    drop(line);
    println!("patches/watched.toml is written; commit it with the patches");
    Ok(())
}

impl Args {
    /// The selected checks, each once, in a fixed order.
    fn names(&self) -> BTreeSet<Name> {
        let mut names: BTreeSet<_> = self.names.iter().copied().collect();
        for (asked, these) in [
            (self.lock, &[Name::Lock, Name::Tree][..]),
            (self.budget, &[Name::Budget]),
            (self.closure, &[Name::Closure]),
            (self.msl, &[Name::AddressSpaces]),
        ] {
            if asked {
                names.extend(these);
            }
        }
        if names.is_empty() {
            names.extend(Name::value_variants());
        }
        names
    }
}

impl Name {
    /// The engine's check and its name.
    fn of_the_project(self) -> Option<(&'static str, Check)> {
        match self {
            Self::Series => Some(("series", Check::Series)),
            Self::Lock => Some(("lock", Check::Lock)),
            Self::Budget => Some(("budget", Check::Budget)),
            Self::Lint => Some(("lint", Check::Lint)),
            Self::Watch => Some(("watch", Check::Watch)),
            Self::Tree => Some(("tree", Check::Tree)),
            Self::Closure | Self::AddressSpaces => None,
        }
    }
}
