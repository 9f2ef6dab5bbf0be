//! Problems with builds: prefixes of another tree or place, and kernels that do not belong to them.

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use metallib::TargetOs;
use mlx_prefix::sums::{self, Fault};
use mlx_prefix::{
    BUILDS, Backend, CURRENT, Error, Found, PREFIX_VARIABLE, PRISTINE_VARIABLE, Prefix, Search,
    Stamp,
};
use patchset::lock::Lock;

use super::finding::Finding;
use crate::build;
use crate::build::backend::metal;
use crate::files::same;
use crate::host::{Host, Os};
use crate::kernels::File;
use crate::proc::quote;

/// The command that makes a build again.
const BUILD: &str = "cargo xtask build";

/// Names kernels that programs load instead of the prefix's.
pub(super) const METALLIB_VARIABLE: &str = "MLX_OVERLAY_METALLIB";

/// `lock` is what builds are compared with; `None` if it cannot be trusted.
pub(super) fn examine(host: &Host, root: &Utf8Path, lock: Option<&Lock>) -> Vec<Finding> {
    let search = Search {
        // Set but empty is not the same as unset: build scripts reject it.
        named: host.set(PREFIX_VARIABLE).map(Into::into),
        pristine: host.set(PRISTINE_VARIABLE) == Some("1"),
        workspace: root.into(),
        // A build script starts in its package's folder.
        base: root.join("crates/mlx-overlay-sys").into(),
    };
    let linked = Linked { host, root, search };
    let (finding, prefix) = linked.prefix(lock);
    let mut findings = vec![build_folders(root), finding];
    if let Some(prefix) = prefix {
        findings.extend(linked.tools_changed(&prefix.stamp));
        findings.extend(linked.kernels(&prefix));
    }
    findings
}

/// The prefix that `cargo build` links.
struct Linked<'a> {
    host: &'a Host,
    root: &'a Utf8Path,
    search: Search,
}

impl Linked<'_> {
    fn prefix(&self, lock: Option<&Lock>) -> (Finding, Option<Prefix>) {
        let id = "prefix";
        let error = |found: String, remedy: String| Finding::error(id, found, remedy);
        if let Err(what) = self.search.check_names() {
            let variable = match what {
                Error::PristineUnnamed => PRISTINE_VARIABLE,
                _ => PREFIX_VARIABLE,
            };
            return (error(what.to_string(), format!("unset {variable}")), None);
        }
        let named = self.search.named.as_deref().and_then(Utf8Path::from_path);
        if let Some(named) = named.filter(|named| named.is_relative()) {
            let found = format!(
                "{PREFIX_VARIABLE}={named} is a relative path, but each package's build starts in its own folder"
            );
            let remedy = match named.canonicalize_utf8() {
                Ok(whole) => format!("export {PREFIX_VARIABLE}={}", quote(whole)),
                Err(_) => format!("unset {PREFIX_VARIABLE}"),
            };
            return (error(found, remedy), None);
        }
        let prefix = match Prefix::open(self.search.root()) {
            Ok(prefix) => prefix,
            Err(error) => return (self.unusable(&error), None),
        };
        let pristine = self.search.pristine;
        let checked = lock.map(|lock| prefix.check_tree(&build::ids(lock), pristine));
        let runtime = prefix.stamp.clang_rt.as_deref();
        let finding = if let Some(Err(other)) = checked {
            let remedy = match pristine == prefix.stamp.pristine {
                true if self.search.named.is_some() => self.again(None),
                // A build accepts only the lock's tree.
                true => format!(
                    "cargo xtask apply-overlay && {}",
                    self.again(Some(&prefix.stamp))
                ),
                // Upstream's MLX is linked only if it is asked for by name.
                false if pristine => format!("unset {PRISTINE_VARIABLE}"),
                false => format!(
                    "`export {PRISTINE_VARIABLE}=1` links upstream's MLX; `unset {PREFIX_VARIABLE}` links the overlay's"
                ),
            };
            error(other.to_string(), remedy)
        } else if let Some(runtime) = runtime.filter(|file| !file.is_file()) {
            let (root, runtime) = (prefix.root.display(), runtime.display());
            let found = format!("{root} was built with {runtime}, which no longer exists");
            error(found, self.again(Some(&prefix.stamp)))
        } else {
            self.content(&prefix.stamp)
        };
        (finding, Some(prefix))
    }

    /// The command that makes another prefix or repairs this one. A build writes only the checkout's own prefix.
    fn again(&self, stamp: Option<&Stamp>) -> String {
        if self.search.named.is_some() {
            return format!(
                "`unset {PREFIX_VARIABLE}` links the build of this checkout; otherwise make or unpack the bundle again"
            );
        }
        let build = stamp.map_or_else(
            || BUILD.to_owned(),
            |stamp| build::command(stamp, self.host),
        );
        let link = self.root.join(CURRENT);
        // `cp -L` leaves a folder; a build puts a link there.
        match link.is_dir() && !link.is_symlink() {
            true => format!("rm -r {} && {build}", quote(link)),
            false => build,
        }
    }

    /// Reports a prefix that cannot be linked. A build that was not made yet, or was removed, is not an error.
    fn unusable(&self, error: &Error) -> Finding {
        let id = "prefix";
        let remedy = self.again(None);
        match error {
            Error::NoPrefix { .. } if self.search.named.is_some() => {
                Finding::error(id, format!("{PREFIX_VARIABLE}: {error}"), remedy)
            }
            Error::NoPrefix {
                found: Found::Nothing,
                ..
            } => Finding::warning(id, "MLX is not built yet", remedy),
            Error::NoPrefix { .. } => Finding::warning(id, error.to_string(), remedy),
            _ => Finding::error(id, error.to_string(), remedy),
        }
    }

    /// Whether the prefix, or the bundle that replaces it, still has the files that it was made with.
    fn content(&self, stamp: &Stamp) -> Finding {
        let id = "prefix";
        let folder = self.search.root();
        let folder = folder.display();
        let remedy = self.again(Some(stamp));
        match sums::check(self.search.root()) {
            Ok(None) if remedy.starts_with("rm ") => {
                let found = format!("{folder} is a folder, but the next build puts a link there");
                Finding::warning(id, found, remedy)
            }
            Ok(None) => {
                let (version, backend) = (&stamp.version, stamp.backend);
                Finding::ok(id, format!("{folder}: MLX {version}, {backend} back-end"))
            }
            // What is built and linked exists.
            Ok(Some(fault @ Fault::Added(_))) => {
                let found = format!("{folder}: {fault}");
                Finding::warning(id, found, format!("move it away, or it is lost: {remedy}"))
            }
            Ok(Some(fault)) => Finding::error(id, format!("{folder}: {fault}"), remedy),
            Err(error) => Finding::error(id, error.to_string(), remedy),
        }
    }

    /// After a compiler update, the next build uses another folder; until then the old prefix is linked.
    fn tools_changed(&self, stamp: &Stamp) -> Option<Finding> {
        if crate::requirements::conda_compiler(self.host).is_some() {
            // It is reported separately; without it the compiler may be the old one.
            return None;
        }
        let now = crate::requirements::cxx_compiler(self.host)
            .ok()?
            .to_string();
        let then = stamp.tools.get("c++")?;
        (now != *then).then(|| {
            Finding::warning(
                "toolchain",
                format!("MLX was built with {then}, but the compiler is now {now}"),
                self.again(Some(stamp)),
            )
        })
    }

    /// The kernels that a program of this checkout would load.
    fn kernels(&self, prefix: &Prefix) -> Vec<Finding> {
        let own = prefix
            .metallib()
            .and_then(|path| Utf8PathBuf::try_from(path).ok());
        let Some(own) = own else {
            return Vec::new();
        };
        // A file that cannot be read is reported with the variables.
        let named = self.host.var(METALLIB_VARIABLE).map(Utf8PathBuf::from);
        let named = named.filter(|path| path.is_file() && File::read(path).is_ok());
        let remedy = match named {
            Some(_) => format!("unset {METALLIB_VARIABLE}"),
            None => self.again(Some(&prefix.stamp)),
        };
        let file = named.unwrap_or_else(|| own.clone());
        let finding = library(self.host, &file, &prefix.stamp, &remedy);
        vec![
            finding
                .unwrap_or_else(|error| Finding::error("metallib", format!("{error:#}"), remedy)),
            shadows(self.host, self.root, &own),
        ]
    }
}

/// Build folders that were moved or copied with the checkout: the next build clears them.
fn build_folders(root: &Utf8Path) -> Finding {
    let dir = root.join(BUILDS);
    let (mut count, mut moved) = (0, 0);
    for entry in fs_err::read_dir(&dir).into_iter().flatten().flatten() {
        let Ok(folder) = Utf8PathBuf::try_from(entry.path()) else {
            continue;
        };
        let Ok(cache) = fs_err::read_to_string(folder.join("build/CMakeCache.txt")) else {
            continue;
        };
        count += 1;
        let made_in = cache
            .lines()
            .find_map(|line| line.strip_prefix("CMAKE_CACHEFILE_DIR:INTERNAL="));
        let here = folder.join("build").canonicalize_utf8();
        if made_in.is_some_and(|made_in| here.is_ok_and(|here| here != made_in)) {
            moved += 1;
        }
    }
    let mut found = format!("{count} build folders in {dir}");
    if moved > 0 {
        found += &format!(
            ", {moved} made at another place: the next build of each compiles everything again"
        );
    }
    Finding::ok("builds", found)
}

fn library(host: &Host, path: &Utf8Path, stamp: &Stamp, remedy: &str) -> Result<Finding> {
    let id = "metallib";
    let file = File::read(path)?;
    if file.container.is_none() != (stamp.backend == Backend::Sim) {
        let found = format!("{path} is not for the prefix's back-end, {}", stamp.backend);
        return Ok(Finding::error(id, found, remedy));
    }
    if !stamp.pristine && file.tree() != Some(&stamp.final_tree) {
        let found = match file.tree() {
            Some(tree) => format!(
                "{path} is from tree {tree}, but its prefix is from {}",
                stamp.final_tree
            ),
            None => {
                format!("{path} does not have the overlay's kernels: it belongs to another MLX")
            }
        };
        return Ok(Finding::error(id, found, remedy));
    }
    let Some(container) = &file.container else {
        return Ok(whole(&file));
    };
    if let Some(first) = container.damaged.first() {
        let found =
            format!("{path} is damaged: the code of {first} does not have the sum stored with it");
        return Ok(Finding::error(id, found, remedy));
    }
    if container.os == TargetOs::MacOs && host.os == Os::MacOs {
        let built_for = container.minimum_os;
        if super::apple::system(host).is_some_and(|running| running < built_for) {
            let found = format!(
                "{path} is for macOS {built_for} or newer: MLX cannot load it on this system"
            );
            let remedy = "unset MACOSX_DEPLOYMENT_TARGET && cargo xtask build";
            return Ok(Finding::error(id, found, remedy));
        }
        let target = metal::deployment_target(host).and_then(|text| metal::version(&text));
        if target.is_ok_and(|target| target < built_for) {
            let found = format!(
                "programs are built for an older macOS than {path}, which is for {built_for}: on that macOS they start, but \
                 fail when they use the GPU"
            );
            let remedy = "run `cargo xtask build` with the MACOSX_DEPLOYMENT_TARGET that you use for programs";
            return Ok(Finding::warning(id, found, remedy));
        }
    }
    Ok(whole(&file))
}

fn whole(file: &File) -> Finding {
    Finding::ok(
        "metallib",
        format!("{}: {} kernels", file.path, file.names.len()),
    )
}

/// Kernels next to the programs that cargo builds; programs search there first.
fn shadows(host: &Host, root: &Utf8Path, own: &Utf8Path) -> Finding {
    let id = "shadowing-kernels";
    let target = host
        .var("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), Utf8PathBuf::from);
    // A profile's folder, or a target triple's folder with profiles.
    let mut places = folders(&target);
    places.extend(places.clone().iter().flat_map(|place| folders(place)));
    let kept = root.join(BUILDS);
    places.retain(|place| !place.starts_with(&kept));
    let files = places.iter().flat_map(|place| {
        ["", "deps", "examples"].map(|part| place.join(part).join("mlx.metallib"))
    });
    let mut others: Vec<_> = files
        .filter(|file| file.is_file() && !same(file, own).unwrap_or(false))
        .collect();
    others.sort();
    others.dedup();
    if others.is_empty() {
        return Finding::ok(
            id,
            format!("no other kernels next to the programs in {target}"),
        );
    }
    let listed = |names: Vec<String>| names.join(" ");
    let found = format!(
        "{}: not from this build, but programs next to them load them first",
        listed(others.iter().map(ToString::to_string).collect())
    );
    let remedy = format!("rm {}", listed(others.iter().map(quote).collect()));
    Finding::error(id, found, remedy)
}

fn folders(folder: &Utf8Path) -> Vec<Utf8PathBuf> {
    let entries = folder.read_dir_utf8().into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.into_path());
    paths.filter(|path| path.is_dir()).collect()
}
