//! `cargo xtask bundle`: an installed prefix that can be moved, with everything needed to redistribute it.

mod files;
mod licences;
mod package;

use anyhow::{Context, Result, anyhow, bail};
use camino::{Utf8Path, Utf8PathBuf};
use cli::println;
use mlx_prefix::{BUILDS, Backend, CURRENT, Prefix, Stamp, sums};
use patchset::place::Scratch;
use patchset::{Project, Workspace};

use crate::build::{self, prefix};
use crate::host::Host;
use crate::progress::Line;

/// Pack a built MLX into a folder or archive that can be moved to another place or machine
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask bundle                                    into a folder below target/bundle
  cargo xtask bundle --output /opt/mlx-overlay          into that folder
  cargo xtask bundle --output mlx-overlay.tar.zst       into an archive
  cargo xtask bundle --prefix target/mlx/KEY/prefix     from another build than the last

Use it from Rust with MLX_OVERLAY_PREFIX=<folder>, from CMake with -DMLX_DIR=<folder>/share/cmake/MLX,
with pkg-config from <folder>/lib/pkgconfig. docs/guide/rust.md shows each.")]
pub struct Args {
    /// The installed prefix [default: that of the last patched build]
    #[arg(long, value_name = "FOLDER", value_parser = parse_prefix)]
    prefix: Option<Utf8PathBuf>,
    /// Output path: a folder, or an archive whose name ends in .tar.zst [default: a folder below target/bundle]
    ///
    /// An earlier bundle there is replaced, unless its files were changed or others were added.
    #[arg(long, short, value_name = "PATH", value_parser = files::parse_output)]
    output: Option<Utf8PathBuf>,
}

/// Parses the prefix's path.
fn parse_prefix(text: &str) -> Result<Utf8PathBuf, String> {
    if text.is_empty() {
        return Err("expected a prefix that `cargo xtask build` made".to_owned());
    }
    Ok(text.into())
}

pub fn run(args: Args) -> Result<()> {
    let host = Host::current();
    let workspace = Workspace::discover()?;
    let wanted = args
        .prefix
        .unwrap_or_else(|| workspace.root().join(CURRENT));
    open(&wanted)?;
    let prefix = wanted.canonicalize_utf8()?;
    // Held until the end: a build in the same folder would change what is copied.
    let _lock = prefix::hold(workspace.root(), &prefix)?;
    // Checked again: a build may have finished while this run waited.
    let found = open(&prefix)?;
    if found.stamp.backend == Backend::Cuda {
        bail!(
            "{prefix} is a CUDA build: it loads NVIDIA's libraries from this machine's folders, so it cannot be moved; \
             `cargo xtask build` makes a build that can be packed"
        );
    }
    let line = Line::new();
    let project = Project::open(&workspace, &|event| line.show(event))?;
    drop(line);
    check_tree(&host, &project, &found)?;
    let stamp = found.stamp;
    let mend = format!("`{}` builds it again", build::command(&stamp, &host));
    if let Some(fault) = sums::check(&prefix).with_context(|| mend.clone())? {
        bail!("{prefix}: {fault}; {mend}");
    }

    let name = name(&host, &stamp);
    let output = match args.output {
        Some(output) => std::path::absolute(&output)
            .map(Utf8PathBuf::try_from)
            .with_context(|| format!("{output} is not a valid path"))??,
        None => workspace.root().join("target/bundle").join(&name),
    };
    for taken in [&prefix, &workspace.root().join(BUILDS), &workspace.vendor()] {
        files::check_place(&output, taken)?;
    }
    let parent = output.parent().context("the output has no folder")?;
    files::recover(&output)?;
    files::check_output(&output)?;
    fs_err::create_dir_all(parent)?;
    // Made next to its place and exchanged with what is there: a killed run leaves no bundle that looks complete, and
    // the next run clears its remains.
    let scratch = Scratch::new(parent, ".mlx-overlay-bundle-unfinished-")?;
    let scratch = scratch.path();
    let bundle = scratch.join(&name);

    files::copy_prefix(&prefix, &bundle)?;
    package::relocate(&bundle, &stamp)?;
    package::write_guide(&bundle, &stamp)?;
    licences::collect(&host, &project, &stamp, &bundle.join("licences"))?;
    files::refuse_traces(&bundle, &prefix)?;
    let count = sums::write(&bundle)?;
    let (size, replaced) = if files::is_archive(&output) {
        let archive = scratch.join("archive");
        files::archive(&bundle, &name, &archive)?;
        let replaced = files::put(&archive, &output)?;
        (fs_err::metadata(&output)?.len(), replaced)
    } else {
        let replaced = files::put(&bundle, &output)?;
        (files::size(&output)?, replaced)
    };
    println!(
        "MLX {} ({} back-end, tree {}): {count} files, {} MB in {output}{}",
        stamp.version,
        stamp.backend,
        stamp.final_tree,
        size.div_ceil(1_000_000),
        if replaced {
            " (replaced the bundle there)"
        } else {
            ""
        }
    );
    Ok(())
}

fn open(prefix: &Utf8Path) -> Result<Prefix> {
    Prefix::open(prefix).map_err(|error| anyhow!("{error}; run `cargo xtask build` to make one"))
}

/// Only a build of the lock's tree, or of the pin itself, is redistributed.
fn check_tree(host: &Host, project: &Project, prefix: &Prefix) -> Result<()> {
    let stamp = &prefix.stamp;
    prefix
        .check_tree(&build::ids(project.lock()?), stamp.pristine)
        .map_err(|error| anyhow!("{error}; run `{}` first", build::command(stamp, host)))
}

/// `mlx-overlay-0.32.4-sim-x86_64-unknown-linux-gnu`
fn name(host: &Host, stamp: &Stamp) -> String {
    let mut name = format!("mlx-overlay-{}", stamp.version);
    if stamp.pristine {
        name += "-pristine";
    }
    name += &format!("-{}", stamp.backend);
    if stamp.jit {
        name += "-jit";
    }
    name + &format!("-{}", host.target)
}
