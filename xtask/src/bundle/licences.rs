//! The licence texts for everything in a bundle.

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use mlx_prefix::{Backend, Stamp};
use patchset::Project;
use serde::Deserialize;

use crate::build;
use crate::host::Host;

/// Copies the texts into `folder`. A missing text is an error.
pub(super) fn collect(
    host: &Host,
    project: &Project,
    stamp: &Stamp,
    folder: &Utf8Path,
) -> Result<()> {
    let root = project.workspace.root();
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root.join(name), &folder.join("mlx-overlay"))?;
    }
    let mlx = build::source(project, stamp.pristine)?.path;
    // MLX's acknowledgments list the licences of code that it includes.
    for name in ["LICENSE", "ACKNOWLEDGMENTS.md"] {
        copy(&mlx.join(name), &folder.join("mlx"))?;
    }
    let inputs = project.manifest.inputs.iter();
    for input in inputs.filter(|input| input.backend.is_none()) {
        // The simulated device has headers of its own in place of metal-cpp, and the CPU back-end needs none.
        if input.name == "metal-cpp" && stamp.backend != Backend::Metal {
            continue;
        }
        let from = build::input(project, &input.name)?;
        copy_all(&from, &folder.join(&input.name))?;
    }
    if stamp.backend == Backend::Sim {
        for package in compiled_into_metal_simc(host, root)? {
            let name = format!("{}-{}", package.name, package.version);
            copy_all(&package.folder()?, &folder.join("metal-simc").join(name))?;
        }
        // The texts for Rust's standard library, if this installation has them.
        let sysroot = host.cmd("rustc").args(["--print", "sysroot"]).read()?;
        let rust = Utf8Path::new(&sysroot).join("share/doc/rust");
        if rust.is_dir() {
            copy_all(&rust, &folder.join("metal-simc/rust"))?;
        }
    }
    Ok(())
}

fn copy(file: &Utf8Path, folder: &Utf8Path) -> Result<()> {
    fs_err::create_dir_all(folder)?;
    let name = file.file_name().context("a licence text has a name")?;
    fs_err::copy(file, folder.join(name))?;
    Ok(())
}

/// Copies all licence texts at the top of a source folder.
fn copy_all(from: &Utf8Path, folder: &Utf8Path) -> Result<()> {
    let mut found = false;
    for entry in fs_err::read_dir(from)? {
        let path = Utf8PathBuf::try_from(entry?.path())?;
        let name = path.file_name().unwrap_or_default().to_uppercase();
        let text = [
            "LICENSE",
            "LICENCE",
            "COPYING",
            "NOTICE",
            "COPYRIGHT",
            "UNLICENSE",
        ];
        if path.is_file() && text.iter().any(|word| name.starts_with(word)) {
            copy(&path, folder)?;
            found = true;
        }
    }
    if !found {
        bail!("{from} has no licence text, but its code is in the bundle");
    }
    Ok(())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    source: Option<String>,
    manifest_path: Utf8PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Package {
    fn folder(&self) -> Result<Utf8PathBuf> {
        let folder = self.manifest_path.parent();
        folder
            .map(Utf8Path::to_owned)
            .with_context(|| format!("{} has no folder", self.manifest_path))
    }
}

/// The registry packages linked into metal-simc. Cargo may list a few more than the linker used.
fn compiled_into_metal_simc(host: &Host, root: &Utf8Path) -> Result<Vec<Package>> {
    let cargo = host.var("CARGO").unwrap_or("cargo");
    let text = host
        .cmd(cargo)
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--filter-platform", &host.target])
        .dir(root)
        .read()?;
    let metadata: Metadata =
        serde_json::from_str(&text).context("`cargo metadata` printed an unknown format")?;
    let first = metadata
        .packages
        .iter()
        .find(|package| package.name == "metal-sim" && package.source.is_none())
        .context("the workspace has no package metal-sim")?;
    let mut reached = vec![first.id.as_str()];
    let mut next = 0;
    while let Some(&id) = reached.get(next) {
        next += 1;
        let Some(node) = metadata.resolve.nodes.iter().find(|node| node.id == id) else {
            continue;
        };
        for dependency in &node.deps {
            let linked = dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
            if linked && !reached.contains(&dependency.pkg.as_str()) {
                reached.push(&dependency.pkg);
            }
        }
    }
    let reached: Vec<_> = reached.into_iter().map(str::to_owned).collect();
    let linked = |package: &Package| package.source.is_some() && reached.contains(&package.id);
    Ok(metadata.packages.into_iter().filter(linked).collect())
}
