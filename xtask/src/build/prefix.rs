//! Builds a source tree into an installed prefix with a stamp.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use fs_err::{File, OpenOptions};
use mlx_prefix::{BUILDS, Backend, Error, Prefix, Stamp, sums};
use patchset::place::holder::{Held, Kind};

use super::backend::{self, Configuration, Options};
use super::cmake;
use super::flags::{self, UnsafeFlag};
use super::key::key;
use super::link::Link;
use super::log;
use super::outputs::Outputs;
use super::staging::Staging;
use crate::host::Host;
use crate::requirements::{self, Missing};

/// A source tree whose content is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub path: Utf8PathBuf,
    pub version: String,
    /// Tree id of the pin.
    pub base_tree: String,
    /// Tree id of the files in `path`.
    pub final_tree: String,
    /// Whether the tree is without the overlay.
    pub pristine: bool,
}

/// Everything one build needs.
pub struct Job<'a> {
    pub host: &'a Host,
    /// This program: it runs CMake in a child process.
    pub xtask: &'a Utf8Path,
    /// The workspace's root. ccache stores paths relative to it, so that clones share its entries.
    pub root: &'a Utf8Path,
    pub source: &'a Source,
    /// Finds the unpacked folder of a pinned input by name.
    pub input: &'a dyn Fn(&str) -> Result<Utf8PathBuf>,
    pub options: &'a Options,
    /// Parallel jobs; `None` leaves the number to Ninja.
    pub jobs: Option<usize>,
}

/// A finished build.
#[derive(Debug)]
pub struct Built {
    pub prefix: Utf8PathBuf,
    pub log: Utf8PathBuf,
    pub stamp: Stamp,
}

/// The lock file in a build folder.
const LOCK: &str = "lock";

/// The compiled Metal kernels, in a prefix.
const METALLIB: &str = "lib/mlx.metallib";

/// Builds, installs and stamps MLX, and lists the checksums of all files. If nothing has changed, it compiles nothing
/// and leaves the prefix as it is; a failed build leaves the prefix too.
pub fn build(job: &Job) -> Result<Built> {
    if let Some(found) = UnsafeFlag::find(job.host) {
        bail!("{found}; {}", found.remedy());
    }
    for unseen in flags::unseen(job.host) {
        eprintln!("note: {unseen}");
    }
    let tools = find_tools(job.host)?;
    let mut configuration = backend::configure(job.host, job.options)?;
    add_common(&mut configuration, job.host, job.options.backend);
    let key = key(
        job.host,
        job.options,
        job.source.pristine,
        &configuration,
        &tools,
    );
    let dir = job.root.join(BUILDS).join(key);
    fs_err::create_dir_all(&dir)?;
    let lock = lock(&dir)?;

    let prefix = dir.join("prefix");
    let log = dir.join("build.log");
    let staging = Staging::new(&prefix)?;
    let run = cmake::Run {
        source: job.source.path.clone(),
        stage: staging.root().to_owned(),
        workspace: job.root.to_owned(),
        target: job.host.target.clone(),
        defines: with_paths(&configuration, job, &dir, &prefix)?,
        out: dir,
    };
    let host = child_host(job, &configuration)?;
    let build = run.out.join("build");
    let (outputs, damaged) = Outputs::check(&build)?;
    if !damaged.is_empty() {
        eprintln!(
            "{build}: files changed since the last build and are built again: {}",
            damaged.join(", ")
        );
    }
    let driven = cmake::drive(&host, job.xtask, &run, &log, lock.file());
    // The next build can use what a failed one made. The build's own error is reported first.
    let recorded = outputs.record();
    driven?;
    recorded?;
    let stamp = new_stamp(job, &configuration, &staging.prefix(), tools)?;
    stamp.write(staging.prefix())?;
    // Last, since the list includes the stamp.
    sums::write(staging.prefix())?;
    staging.put()?;
    Ok(Built { prefix, log, stamp })
}

/// Finds the tools that every back-end needs, with their versions. The error names everything that is missing.
fn find_tools(host: &Host) -> Result<BTreeMap<String, String>> {
    let (found, missing): (Vec<_>, Vec<_>) = [
        ("cmake", requirements::cmake(host)),
        ("ninja", requirements::ninja(host)),
        ("cc", requirements::c_compiler(host)),
        ("c++", requirements::cxx_compiler(host)),
    ]
    .into_iter()
    .partition(|(_, result)| result.is_ok());
    if !missing.is_empty() {
        let missing: Vec<Missing> = missing.into_iter().filter_map(|(_, r)| r.err()).collect();
        bail!("{}", requirements::report(host, &missing));
    }
    let tools = found
        .into_iter()
        .filter_map(|(name, result)| Some((name, result.ok()?)));
    Ok(tools
        .map(|(name, tool)| (name.to_owned(), tool.to_string()))
        .collect())
}

/// Adds the settings of every back-end: only the library, static unless a back-end overrides it, and no downloads.
fn add_common(configuration: &mut Configuration, host: &Host, backend: Backend) {
    let switches = [
        ("BUILD_SHARED_LIBS", "OFF"),
        ("MLX_BUILD_TESTS", "OFF"),
        ("MLX_BUILD_EXAMPLES", "OFF"),
        ("MLX_BUILD_BENCHMARKS", "OFF"),
        ("MLX_BUILD_PYTHON_BINDINGS", "OFF"),
        ("MLX_BUILD_GGUF", "OFF"),
        ("MLX_BUILD_SAFETENSORS", "ON"),
        // The launcher is set below, so that sccache works too.
        ("MLX_USE_CCACHE", "OFF"),
        ("FETCHCONTENT_FULLY_DISCONNECTED", "ON"),
        // Some systems use lib64; the stamp and its readers expect lib.
        ("CMAKE_INSTALL_LIBDIR", "lib"),
    ];
    let common = switches.map(|(name, value)| (name.to_owned(), value.to_owned()));
    // First, so that a back-end can override it.
    configuration.defines.splice(0..0, common);
    if let Some(launcher) = ["ccache", "sccache"]
        .into_iter()
        .find_map(|name| host.find(name))
    {
        let cuda = (backend == Backend::Cuda).then_some("CUDA");
        for language in ["C", "CXX"].into_iter().chain(cuda) {
            let name = format!("CMAKE_{language}_COMPILER_LAUNCHER");
            configuration.defines.push((name, launcher.to_string()));
        }
    }
}

/// The defines including those that name this workspace's folders, which are not part of the key.
fn with_paths(
    configuration: &Configuration,
    job: &Job,
    dir: &Utf8Path,
    prefix: &Utf8Path,
) -> Result<Vec<(String, String)>> {
    let mut defines = configuration.defines.clone();
    for (name, path) in &configuration.paths {
        defines.push((name.clone(), path.to_string()));
    }
    defines.push(("CMAKE_INSTALL_PREFIX".to_owned(), prefix.to_string()));
    defines.extend(backend::input_folders(job.options.backend, job.input)?);
    if configuration.metallib {
        // metallib.cmake: the place where Ninja writes the kernels, and the place where the library looks for them.
        let include = crate::checkout().join("xtask/cmake/metallib.cmake");
        let built = dir.join("build/metallib");
        for (name, path) in [
            ("CMAKE_PROJECT_TOP_LEVEL_INCLUDES", include),
            ("MLX_METAL_PATH", built),
            ("MLX_OVERLAY_METALLIB", prefix.join(METALLIB)),
        ] {
            defines.push((name.to_owned(), path.to_string()));
        }
        if !job.source.pristine {
            // Compiled into the library and its kernels; the first product compares the two.
            let tree = job.source.final_tree.clone();
            defines.push(("MLX_OVERLAY_TREE".to_owned(), tree));
        }
    }
    Ok(defines)
}

/// The machine with the environment of CMake and its child processes.
fn child_host(job: &Job, configuration: &Configuration) -> Result<Host> {
    let mut host = job.host.clone().with("NINJA_STATUS", log::NINJA_STATUS);
    if let Some(cmake) = host.find("cmake") {
        // The program whose version was checked; the cmake crate might find another.
        host = host.with("CMAKE", cmake.into_os_string());
    }
    if host.var("CCACHE_BASEDIR").is_none() {
        host = host.with("CCACHE_BASEDIR", job.root.as_os_str());
    }
    if let Some(jobs) = job.jobs {
        host = host.with("NUM_JOBS", jobs.to_string());
    }
    for (name, value) in &configuration.env {
        host = host.with(name, value);
    }
    match &configuration.path_first {
        Some(dir) => host.with_path_first(dir),
        None => Ok(host),
    }
}

fn new_stamp(
    job: &Job,
    configuration: &Configuration,
    prefix: &Utf8Path,
    tools: BTreeMap<String, String>,
) -> Result<Stamp> {
    let link = Link::read(prefix)?;
    let source = job.source;
    let stamp = Stamp {
        version: source.version.clone(),
        base_tree: source.base_tree.clone(),
        final_tree: source.final_tree.clone(),
        pristine: source.pristine,
        backend: job.options.backend,
        jit: job.options.jit,
        cpu: configuration.cpu,
        include: link.include,
        lib: "lib".to_owned(),
        static_libs: link.static_libs,
        system_libs: link.system_libs,
        link_search: link.search,
        frameworks: link.frameworks,
        defines: link.defines,
        cxx_std: "c++20".to_owned(),
        metallib: configuration.metallib.then(|| METALLIB.to_owned()),
        deployment_target: configuration.deployment_target.clone(),
        clang_rt: configuration.clang_rt.clone().map(Into::into),
        tools: tools
            .into_iter()
            .chain(configuration.tools.clone())
            .collect(),
    };
    let installed = Prefix {
        root: prefix.into(),
        stamp,
    };
    match installed.check_parts() {
        Err(Error::Incomplete(path)) => bail!(
            "the build succeeded, but its {} is missing or empty",
            path.strip_prefix(prefix).unwrap_or(&path).display()
        ),
        checked => checked?,
    }
    Ok(installed.stamp)
}

/// Allows one build at a time in a folder. The lock ends with the process, even if it is killed.
pub(crate) fn lock(dir: &Utf8Path) -> Result<Held> {
    let path = dir.join(LOCK);
    // Readable, because it is the standard input of the build's child process.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)?;
    take(file, &path, Kind::Alone)
}

/// Keeps builds from changing a prefix until the lock is dropped. A prefix that was copied elsewhere is never built, so
/// it has no lock. Read access to the prefix is enough.
pub(crate) fn hold(root: &Utf8Path, prefix: &Utf8Path) -> Result<Option<Held>> {
    let dir = prefix.parent().unwrap_or(prefix);
    let builds = root.join(BUILDS).canonicalize_utf8().ok();
    if dir.parent() != builds.as_deref() {
        return Ok(None);
    }
    let path = dir.join(LOCK);
    let file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    take(file, &path, Kind::Shared).map(Some)
}

/// Takes the lock; prints what it waits for if it is taken.
fn take(file: File, path: &Utf8Path, kind: Kind) -> Result<Held> {
    let held = Held::take(file.into_parts().0, path, kind, |waits| {
        eprintln!("{waits}")
    });
    held.with_context(|| format!("cannot lock {path}"))
}
