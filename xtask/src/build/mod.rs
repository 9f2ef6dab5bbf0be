//! `cargo xtask build`: runs CMake on the patched tree and installs a stamped prefix.

pub mod backend;
pub mod cmake;
pub(crate) mod flags;
mod key;
mod link;
mod log;
mod outputs;
pub mod prefix;
pub(crate) mod pristine;
mod running;
mod staging;

use std::time::Instant;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use clap::builder::RangedU64ValueParser;
use cli::println;
use mlx_prefix::{Backend, CURRENT, Ids, Stamp};
use patchset::lock::Lock;
use patchset::state::{self, State};
use patchset::{Project, Workspace};

pub use backend::Options;
use prefix::{Job, Source};

use crate::host::{Host, Os};
use crate::progress::Line;

/// Build MLX with the overlay and install it below target/mlx
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask build                         this system's back-end: metal, or sim on Linux
  cargo xtask build --cpu                   the simulated device and the CPU back-end (needs BLAS)
  cargo xtask build --backend cpu           the CPU back-end alone
  cargo xtask build --backend cuda          for the NVIDIA GPU of this machine
  cargo xtask build --jit                   kernels from source text, at run time
  cargo xtask build --pristine              upstream's MLX, into a prefix of its own")]
pub struct Args {
    /// The back-end [default: metal on macOS, sim on Linux]
    #[arg(long, value_parser = backend::parser())]
    backend: Option<Backend>,
    /// Include the CPU back-end if the back-end makes it optional
    #[arg(long)]
    cpu: bool,
    /// Compile Metal kernels from their source at run time
    #[arg(long)]
    jit: bool,
    /// The GPUs that CUDA kernels are compiled for, as 80,90a [default: those of this machine]
    #[arg(long, value_name = "LIST", value_parser = backend::cuda_architectures)]
    cuda_architectures: Option<String>,
    /// Build the pinned MLX without the overlay, as a reference, into a prefix of its own
    #[arg(long)]
    pristine: bool,
    /// Parallel jobs [default: Ninja's own choice]
    #[arg(long, short, value_parser = RangedU64ValueParser::<usize>::new().range(1..=65_535))]
    jobs: Option<usize>,
}

/// Builds what was asked for, or reports that it is up to date.
pub fn run(args: Args) -> Result<()> {
    let start = Instant::now();
    let host = Host::current();
    let options = Options {
        backend: args.backend.unwrap_or_else(|| backend::default_for(&host)),
        cpu: args.cpu,
        jit: args.jit,
        cuda_architectures: args.cuda_architectures,
    };
    options.check()?;
    let workspace = Workspace::discover()?;
    // The build would fail later, with an error that does not name the cause. On macOS this was not tried.
    if host.os == Os::Linux
        && let Some(bad) = unquotable(workspace.root())
    {
        let root = workspace.root();
        bail!(
            "the checkout's path contains {bad:?}, which MLX's build commands cannot quote: {root}; move the checkout to a path \
             without it (blanks and letters of any language work)"
        );
    }
    let line = Line::new();
    // Held until the end: if another run swapped the tree during compilation, the result would get this tree's stamp.
    let project = Project::open(&workspace, &|event| line.show(event))?;
    drop(line);
    let source = source(&project, args.pristine)?;
    let built = prefix::build(&Job {
        host: &host,
        xtask: &crate::this_program()?,
        root: workspace.root(),
        source: &source,
        input: &|name| input(&project, name),
        options: &options,
        jobs: args.jobs,
    })?;
    if !args.pristine {
        point(&workspace.root().join(CURRENT), &built.prefix)?;
    }
    println!(
        "MLX {} {} ({}, tree {}) in {} ({:.1} s)",
        source.version,
        if args.pristine {
            "as upstream has it"
        } else {
            "with the overlay"
        },
        options.backend,
        source.final_tree,
        built.prefix,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The first character of a path that does not survive CMake, Ninja and the shells of MLX's own commands, which quote only
/// blanks. A whole build and a bundle were made in a path with the others: `blank é日本 {b}, ~+@!=^*?`.
pub(crate) fn unquotable(path: &Utf8Path) -> Option<char> {
    let bad = |c: &char| {
        (c.is_whitespace() && *c != ' ') || c.is_control() || "#();:$'\"&|<>[]`\\".contains(*c)
    };
    path.as_str().chars().find(bad)
}

/// The tree to build: the lock's final tree, or its base tree. Programs link no other.
pub(crate) fn source(project: &Project, pristine: bool) -> Result<Source> {
    let (workspace, lock) = (&project.workspace, project.lock()?);
    let base_tree = lock.base_tree.to_string();
    let (path, final_tree) = if pristine {
        (
            pristine::tree(workspace, lock.base_tree)?,
            base_tree.clone(),
        )
    } else {
        let path = workspace.tree();
        let found = state::inspect(workspace, lock, &project.series)?;
        match found.state {
            State::Applied => {}
            State::Absent => bail!("{path} is missing; run `cargo xtask apply-overlay` to make it"),
            State::Tampered(_) => bail!(
                "{path}: {}, but mlx.lock has tree {}; `cargo xtask apply-overlay --discard-edits` removes the edits \
                 and keeps a copy, `cargo xtask status` lists them",
                found.state,
                lock.final_tree
            ),
            state => bail!(
                "{path} is {state}, but mlx.lock has tree {}; run `cargo xtask apply-overlay`",
                lock.final_tree
            ),
        }
        (path, lock.final_tree.to_string())
    };
    Ok(Source {
        path,
        version: project.manifest.mlx.version.clone(),
        base_tree,
        final_tree,
        pristine,
    })
}

/// The tree ids in the lock; programs link only builds of these.
pub(crate) fn ids(lock: &Lock) -> Ids {
    Ids {
        base_tree: lock.base_tree.to_string(),
        final_tree: lock.final_tree.to_string(),
    }
}

/// The command that makes the build this stamp describes, on `host`.
pub(crate) fn command(stamp: &Stamp, host: &Host) -> String {
    let mut command = "cargo xtask build".to_owned();
    if stamp.backend != backend::default_for(host) {
        command += &format!(" --backend {}", stamp.backend);
    }
    let optional_cpu = stamp.cpu && matches!(stamp.backend, Backend::Sim | Backend::Cuda);
    for (on, flag) in [
        (optional_cpu, " --cpu"),
        (stamp.jit, " --jit"),
        (stamp.pristine, " --pristine"),
    ] {
        if on {
            command += flag;
        }
    }
    if let Some(list) = stamp.tools.get(backend::ARCHITECTURES) {
        command += &format!(" --cuda-architectures {}", list.replace(';', ","));
    }
    command
}

/// The unpacked folder of a pinned input, fetched and verified by the engine.
pub(crate) fn input(project: &Project, name: &str) -> Result<Utf8PathBuf> {
    let wanted: Vec<_> = project
        .manifest
        .inputs
        .iter()
        .filter(|input| input.name == name)
        .cloned()
        .collect();
    let line = Line::new();
    let show = |event: patchset::progress::Event<'_>| line.show(event);
    let unpacked = patchset::inputs::fetch(&project.workspace, &wanted, false, &show)?;
    let input = unpacked.into_iter().next();
    input
        .map(|input| input.folder)
        .with_context(|| format!("mlx.toml has no input named {name}"))
}

/// Makes `link` a relative symbolic link to `target` in one step. `target`'s folder is next to it.
fn point(link: &Utf8Path, target: &Utf8Path) -> Result<()> {
    let relative = link
        .parent()
        .and_then(|dir| target.strip_prefix(dir).ok())
        .unwrap_or(target);
    if fs_err::read_link(link).is_ok_and(|old| old == relative) {
        return Ok(());
    }
    let new = link.with_extension("new");
    // Left by a killed run.
    match fs_err::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    fs_err::os::unix::fs::symlink(relative, &new)?;
    fs_err::rename(&new, link)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_to_the_current_build_moves_in_one_step() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let link = dir.join("current");
        for key in ["cpu-1", "cpu-2", "cpu-2"] {
            let prefix = dir.join(key).join("prefix");
            fs_err::create_dir_all(&prefix).unwrap();
            point(&link, &prefix).unwrap();
            assert_eq!(
                fs_err::read_link(&link).unwrap(),
                Utf8PathBuf::from(key).join("prefix")
            );
            assert!(link.is_dir());
        }
    }
}
