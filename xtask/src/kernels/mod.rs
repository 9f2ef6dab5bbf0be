//! `cargo xtask kernels`: the kernels that the sources instantiate, a library contains, and the dispatch can ask for.

mod file;
mod group;
mod sets;

use std::cell::RefCell;

use anyhow::Result;
use camino::Utf8PathBuf;
use cli::println;
use metallib::Version;
use mlx_prefix::{CURRENT, Stamp};
use patchset::{Project, Workspace};
use serde::Serialize;

pub(crate) use file::File;
pub(crate) use group::thousands;
pub(crate) use sets::{instantiations, is_nax};

use crate::Reported;
use crate::build::backend::metal;
use crate::progress::Line;
use file::{Container, Names, first_macos};
use group::{Group, groups};
use sets::{Set, Sets, Target};

/// List the kernels that the sources instantiate, a library contains, and the dispatch can ask for
///
/// A SET is `pristine` (instantiated by the pinned MLX), `patched` (instantiated by vendor/mlx), `dispatch` (what
/// products and attention can ask for, under any policy), a library file, or a folder with an MLX tree. The exit code
/// is 1 if the library (by default: vendor/mlx) lacks a kernel that the dispatch can ask for, is damaged, or does not
/// load on the deployment target.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask kernels --diff pristine patched
  cargo xtask kernels --metallib target/mlx/current/lib/mlx.metallib
  cargo xtask kernels --metallib mlx.metallib --deployment-target 14.0 --json")]
pub struct Args {
    /// A library to compare with vendor/mlx: Apple's container, or one for the simulated device
    #[arg(long, value_name = "FILE")]
    metallib: Option<Utf8PathBuf>,
    /// Names that only the second set has (+), and names that only the first has (-)
    #[arg(long, num_args = 2, value_names = ["SET", "SET"])]
    diff: Option<Vec<Set>>,
    /// Print only the names of a set, one per line
    #[arg(long, value_name = "SET", conflicts_with_all = ["metallib", "diff", "json"])]
    list: Option<Set>,
    /// The macOS that the host library is built for, such as 14.0; it decides which sources are compiled and what a
    /// library may need [default: that of the library's build, else of target/mlx/current]
    #[arg(long, value_name = "VERSION", value_parser = metal::version)]
    deployment_target: Option<Version>,
    /// Print one JSON object with stable fields
    ///
    /// tree, target, pristine, patched, dispatch (counts), metallib (path, bytes, kernels, tree, container, minimum_os,
    /// language; null without --metallib), missing (names that the dispatch can ask for but the library, or vendor/mlx,
    /// lacks), faults (reasons why the library does not load), diff (from, to, added, removed: names)
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    tree: String,
    /// The system for which names were collected.
    target: String,
    pristine: usize,
    patched: usize,
    dispatch: usize,
    metallib: Option<Library>,
    missing: Names,
    faults: Vec<String>,
    diff: Option<Difference>,
}

#[derive(Debug, Serialize)]
struct Library {
    path: Utf8PathBuf,
    bytes: u64,
    kernels: usize,
    tree: Option<String>,
    container: Option<String>,
    minimum_os: Option<String>,
    language: Option<String>,
}

#[derive(Debug, Serialize)]
struct Difference {
    from: String,
    to: String,
    added: Names,
    removed: Names,
    #[serde(skip)]
    groups: Groups,
}

/// The differences, grouped by family.
#[derive(Debug, Default)]
struct Groups {
    added: Vec<Group>,
    removed: Vec<Group>,
}

pub fn run(args: Args) -> Result<()> {
    let workspace = Workspace::discover()?;
    let line = Line::new();
    let project = Project::open(&workspace, &|event| line.show(event))?;
    drop(line);
    let lock = project.lock()?;
    let file = args.metallib.as_deref().map(File::read).transpose()?;
    let host = match args.deployment_target {
        Some(version) => Some(version),
        None => built_for(&workspace, file.as_ref())?,
    };
    let sets = Sets {
        workspace: &workspace,
        lock,
        target: target(file.as_ref(), host),
        read: RefCell::default(),
        jit: file
            .as_ref()
            .and_then(|file| file.stamp.as_ref())
            .is_some_and(|stamp| stamp.jit),
    };
    if let Some(set) = &args.list {
        let names = sets.names(set)?;
        names.iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    let report = report(&sets, file.as_ref(), host, args.diff.as_deref())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report, &sets, file.as_ref(), host)?;
    }
    if report.missing.is_empty() && report.faults.is_empty() {
        return Ok(());
    }
    Err(Reported.into())
}

/// The deployment target of the library's build, else of the current one.
fn built_for(workspace: &Workspace, file: Option<&File>) -> Result<Option<Version>> {
    let current = || Stamp::read(workspace.root().join(CURRENT)).ok();
    let stamp = match file {
        Some(file) => file.stamp.clone().or_else(current),
        None => current(),
    };
    stamp
        .and_then(|stamp| stamp.deployment_target)
        .map(|text| metal::version(&text))
        .transpose()
}

/// The system whose kernels are listed: the library's own, else the host library's, else that of the simulated device,
/// which has the kernels of macOS 15.
fn target(file: Option<&File>, host: Option<Version>) -> Target {
    let container = file.and_then(|file| file.container.as_ref());
    let simulated = Version {
        major: 15,
        minor: 0,
    };
    Target(match file {
        Some(_) => container.map_or(simulated, |container| container.minimum_os),
        None => host.unwrap_or(simulated),
    })
}

fn report(
    sets: &Sets<'_>,
    file: Option<&File>,
    host: Option<Version>,
    diff: Option<&[Set]>,
) -> Result<Report> {
    let patched = sets.names(&Set::Patched)?;
    let dispatch = sets.names(&Set::Dispatch)?;
    let held = file.map_or(&patched, |file| &file.names);
    let diff = match (diff, file) {
        (Some([from, to]), _) => Some(difference(
            from.to_string(),
            &sets.names(from)?,
            to.to_string(),
            &sets.names(to)?,
        )),
        (_, Some(file)) => Some(difference(
            file.path.to_string(),
            &file.names,
            Set::Patched.to_string(),
            &patched,
        )),
        _ => None,
    };
    Ok(Report {
        tree: sets.lock.final_tree.to_string(),
        target: format!("macOS {}", sets.target.0),
        pristine: sets.names(&Set::Pristine)?.len(),
        missing: dispatch.difference(held).cloned().collect(),
        patched: patched.len(),
        dispatch: dispatch.len(),
        faults: file.map_or_else(Vec::new, |file| faults(file, host)),
        metallib: file.map(|file| {
            let container = file.container.as_ref();
            Library {
                path: file.path.clone(),
                bytes: file.size,
                kernels: file.names.len(),
                tree: file.tree().map(str::to_owned),
                container: container.map(|container| container.version.to_string()),
                minimum_os: container
                    .map(|container| format!("{} {}", container.os, container.minimum_os)),
                language: container
                    .and_then(|container| container.language)
                    .map(|language| language.to_string()),
            }
        }),
        diff,
    })
}

fn difference(from: String, old: &Names, to: String, new: &Names) -> Difference {
    Difference {
        from,
        to,
        added: new.difference(old).cloned().collect(),
        removed: old.difference(new).cloned().collect(),
        groups: Groups {
            added: groups(new.difference(old), old),
            removed: groups(old.difference(new), new),
        },
    }
}

/// Reasons why the library, or a kernel in it, does not load on the systems of the host library.
fn faults(file: &File, host: Option<Version>) -> Vec<String> {
    let Some(container) = &file.container else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    if let Some(first) = container.damaged.first() {
        faults.push(format!(
            "the code of {} of its kernels does not match its stored checksum, for example {first}: the file is damaged",
            thousands(container.damaged.len() as u64)
        ));
    }
    let Some(host) = host else {
        return faults;
    };
    if container.minimum_os > host {
        faults.push(format!(
            "it needs {} {}, but the host library is built for macOS {host}: build both with the same \
             MACOSX_DEPLOYMENT_TARGET",
            container.os, container.minimum_os
        ));
    }
    if let Some((language, first)) = container
        .language
        .and_then(|language| Some((language, first_macos(language)?)))
        && first > host
    {
        faults.push(format!(
            "its functions are in Metal {language}, which needs macOS {first}, but \
             the host library is built for macOS {host}"
        ));
    }
    faults
}

fn print(
    report: &Report,
    sets: &Sets<'_>,
    file: Option<&File>,
    host: Option<Version>,
) -> Result<()> {
    if let Some(file) = file {
        print_file(file, report, host);
    }
    println!("kernels for {}", report.target);
    for (set, count) in [
        (Set::Pristine, report.pristine),
        (Set::Patched, report.patched),
        (Set::Dispatch, report.dispatch),
    ] {
        println!("  {set:<9} {:>7}", thousands(count as u64));
    }
    if let Some(diff) = &report.diff {
        println!("from {} to {}", diff.from, diff.to);
        for (sign, groups) in [('+', &diff.groups.added), ('-', &diff.groups.removed)] {
            for group in groups {
                println!("  {sign}{group}");
            }
        }
        if diff.added.is_empty() && diff.removed.is_empty() {
            println!("  the same");
        }
    }
    for fault in &report.faults {
        println!("does not load everywhere: {fault}");
    }
    let holder = match file {
        Some(file) => file.path.as_str(),
        None => "vendor/mlx",
    };
    if report.missing.is_empty() {
        println!("{holder} has every kernel that the dispatch can ask for");
    } else {
        let asked = sets.names(&Set::Dispatch)?;
        let kept: Names = asked.difference(&report.missing).cloned().collect();
        println!(
            "{holder} lacks {} of {} kernels that the dispatch can ask for",
            thousands(report.missing.len() as u64),
            thousands(asked.len() as u64)
        );
        for group in groups(&report.missing, &kept) {
            println!("  {group}");
        }
    }
    Ok(())
}

fn print_file(file: &File, report: &Report, host: Option<Version>) {
    println!(
        "{}: {} kernels, {} bytes",
        file.path,
        thousands(file.names.len() as u64),
        thousands(file.size)
    );
    match &file.container {
        Some(container) => print_container(container, host),
        None => println!("  container          the simulated device's"),
    }
    let tree = match file.tree() {
        Some(tree) if tree == report.tree => format!("{tree} (as in mlx.lock)"),
        Some(tree) => format!("{tree}; mlx.lock has {}", report.tree),
        None => "none: not a build of `cargo xtask build` with the overlay".to_owned(),
    };
    println!("  tree               {tree}");
}

fn print_container(container: &Container, host: Option<Version>) {
    println!("  container          {}", container.version);
    println!(
        "  minimum system     {} {}",
        container.os, container.minimum_os
    );
    if let Some(language) = container.language {
        println!("  language           Metal {language}");
    }
    match host {
        Some(host) => println!("  deployment target  macOS {host}"),
        None => println!("  deployment target  not known; give --deployment-target to compare it"),
    }
}
