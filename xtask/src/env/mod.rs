//! `cargo xtask env`: the settings with which other projects' bindings use the patched MLX without a fork.

mod pin;

use std::fmt;

use anyhow::{Context, Result, anyhow, bail};
use camino::{Utf8Path, Utf8PathBuf};
use clap::ValueEnum;
use cli::print;
use mlx_prefix::{BUILDS, Backend, CURRENT, PREFIX_VARIABLE, Prefix, Stamp};
use patchset::{Project, Workspace};
use sha2::{Digest, Sha256};

use crate::Usage;
use crate::build;
use crate::build::backend::{folder_variable, input_folders};
use crate::host::{Host, Os};
use crate::proc::quote;
use crate::progress::Line;

/// Print the settings with which another project's bindings use the patched MLX
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  eval \"$(cargo xtask env --consumer rust)\"                     crates that depend on mlx-overlay
  eval \"$(cargo xtask env --consumer cmake)\"                    find_package(MLX), or FetchContent
  eval \"$(cargo xtask env --consumer python)\"                   a wheel that uses the built library
  eval \"$(cargo xtask env --consumer mlx-c --project ../mlx-c)\"
  eval \"$(cargo xtask env --consumer mlx-rs --project ../app)\"

A consumer written for another MLX than the pinned one is rejected. docs/guide/bindings.md has the recipes.")]
pub struct Args {
    /// The kind of project
    #[arg(long, value_enum)]
    consumer: Consumer,
    /// The folder of mlx-c (a checkout), or of a package that depends on mlx-rs; required for these two
    #[arg(long, value_name = "FOLDER", required_if_eq_any = [("consumer", "mlx-c"), ("consumer", "mlx-rs")])]
    project: Option<Utf8PathBuf>,
    /// Accept an mlx-c or mlx-rs written for this other version of MLX; its own tests must show what works
    #[arg(long, value_name = "VERSION")]
    accept: Option<String>,
    /// The installed prefix [default: that of the last patched build]
    #[arg(long, value_name = "FOLDER")]
    prefix: Option<Utf8PathBuf>,
}

impl Args {
    /// Rejects options that the consumer does not use.
    fn check(&self) -> Result<(), Usage> {
        let given = [
            ("--project", self.project.is_some()),
            ("--accept", self.accept.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) if !self.consumer.is_of_one_mlx() => Err(Usage(format!(
                "`--consumer {}` does not accept `{option}`",
                self.consumer
            ))),
            _ => Ok(()),
        }
    }
}

/// Bindings, or a way to build them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Consumer {
    /// Crates that depend on mlx-overlay or mlx-overlay-sys
    Rust,
    /// C++ projects that use find_package(MLX) or FetchContent
    Cmake,
    /// MLX's C interface
    MlxC,
    /// The crates mlx-rs and mlx-sys
    MlxRs,
    /// MLX's own Python bindings
    Python,
}

impl Consumer {
    /// Whether the project is written for one version of MLX and names that version.
    fn is_of_one_mlx(self) -> bool {
        matches!(self, Self::MlxC | Self::MlxRs)
    }
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => f.write_str(value.get_name()),
            None => write!(f, "{self:?}"),
        }
    }
}

/// The output: comments and variables in shell syntax.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settings {
    lines: Vec<String>,
}

impl Settings {
    fn comment(&mut self, text: &str) {
        self.lines.push(format!("# {text}"));
    }

    fn set(&mut self, name: &str, value: impl AsRef<str>) {
        let value = value.as_ref().replace('\'', r"'\''");
        self.lines.push(format!("export {name}='{value}'"));
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The input for the settings of every consumer.
pub struct Overlay<'a> {
    pub host: &'a Host,
    pub root: &'a Utf8Path,
    /// The pinned version of MLX.
    pub version: &'a str,
    pub prefix: &'a Utf8Path,
    pub stamp: &'a Stamp,
    /// Finds the patched tree; fails if it is not the lock's.
    pub tree: &'a dyn Fn() -> Result<Utf8PathBuf>,
    /// Finds the unpacked folder of a pinned input by name.
    pub input: &'a dyn Fn(&str) -> Result<Utf8PathBuf>,
    /// Another version of MLX to accept.
    pub accept: Option<&'a str>,
}

pub fn run(args: Args) -> Result<()> {
    args.check()?;
    let host = Host::current();
    let workspace = Workspace::discover()?;
    let line = Line::new();
    // While the tree is hashed and copied, no other run may swap it.
    let project = Project::open(&workspace, &|event| line.show(event))?;
    drop(line);
    let named = args.prefix.is_some();
    let folder = args
        .prefix
        .unwrap_or_else(|| workspace.root().join(CURRENT));
    let found = Prefix::open(&folder)
        .map_err(|error| anyhow!("{error}; run `cargo xtask build` to make one"))?;
    let checked = found.check_tree(&build::ids(project.lock()?), false);
    checked.map_err(|error| match named {
        // A build does not change it.
        true => anyhow!("{error}; without `--prefix`, this checkout's own build is used"),
        false => anyhow!(
            "{error}; run `{}` first",
            build::command(&found.stamp, &host)
        ),
    })?;
    let overlay = Overlay {
        host: &host,
        root: workspace.root(),
        version: &project.manifest.mlx.version,
        prefix: &Utf8PathBuf::try_from(found.root)?,
        stamp: &found.stamp,
        tree: &|| Ok(build::source(&project, false)?.path),
        input: &|name| build::input(&project, name),
        accept: args.accept.as_deref(),
    };
    print!(
        "{}",
        settings(&overlay, args.consumer, args.project.as_deref())?
    );
    Ok(())
}

/// The settings of one consumer; an error if it is written for another MLX.
pub fn settings(
    overlay: &Overlay,
    consumer: Consumer,
    project: Option<&Utf8Path>,
) -> Result<Settings> {
    let project = || {
        let project = project.context("this consumer needs --project")?;
        if !project.is_dir() {
            bail!("the folder {project} does not exist");
        }
        Ok(project)
    };
    match consumer {
        Consumer::Rust => Ok(rust(overlay)),
        Consumer::Cmake => cmake(overlay),
        Consumer::MlxC => mlx_c(overlay, project()?),
        Consumer::MlxRs => mlx_rs(overlay, project()?),
        Consumer::Python => python(overlay),
    }
}

fn rust(overlay: &Overlay) -> Settings {
    let mut settings = Settings::default();
    settings.set(PREFIX_VARIABLE, overlay.prefix);
    if let Some(target) = &overlay.stamp.deployment_target {
        settings.set("MACOSX_DEPLOYMENT_TARGET", target);
    }
    if overlay.stamp.backend == Backend::Cuda {
        settings.comment("Where programs find libmlx.so when they run:");
        settings.set("LD_LIBRARY_PATH", overlay.prefix.join(&overlay.stamp.lib));
    }
    settings
}

fn cmake(overlay: &Overlay) -> Result<Settings> {
    let mut settings = Settings::default();
    settings.comment("find_package(MLX CONFIG REQUIRED) finds the built MLX with:");
    settings.set("MLX_DIR", package(overlay));
    let file = write_sources(overlay)?;
    settings.comment("FetchContent_MakeAvailable(mlx) builds the patched source instead with:");
    let include = quote(format!("-DCMAKE_PROJECT_INCLUDE={file}"));
    settings.comment(&format!("  cmake {include} …"));
    Ok(settings)
}

fn mlx_c(overlay: &Overlay, project: &Utf8Path) -> Result<Settings> {
    pin::check(&pin::of_mlx_c(project)?, overlay.version, overlay.accept)?;
    let mut settings = Settings::default();
    settings.set("MLX_DIR", package(overlay));
    settings.comment(&format!(
        "  cmake -S {} -B build -DMLX_C_USE_SYSTEM_MLX=ON -DCMAKE_PROJECT_INCLUDE={}",
        quote(absolute(project)?),
        quote(overlay.root.join("ci/mlx-c/project.cmake"))
    ));
    settings.comment("  cmake --build build");
    Ok(settings)
}

fn mlx_rs(overlay: &Overlay, project: &Utf8Path) -> Result<Settings> {
    let mlx_c = pin::mlx_c_of_mlx_rs(overlay.host, project)?;
    pin::check(&pin::of_mlx_c(&mlx_c)?, overlay.version, overlay.accept)?;
    let mut settings = Settings::default();
    match overlay.host.os {
        Os::MacOs => {
            settings.comment("mlx-sys runs mlx-c's CMake; this file gives it the patched source:");
            settings.set("CMAKE_TOOLCHAIN_FILE", write_sources(overlay)?);
            settings.comment("Its default folder for the kernels depends only on mlx-c and would mix them with stock ones:");
            let kernels = folder(overlay, "mlx-rs-kernels", &overlay.stamp.final_tree)?;
            settings.set("MLX_RS_METAL_PATH", kernels);
        }
        Os::Linux => {
            require_cpu(overlay, Consumer::MlxRs)?;
            settings.set(PREFIX_VARIABLE, overlay.prefix);
            settings.comment("mlx-sys links Apple's frameworks, so its build script does not work here. This one");
            settings.comment("builds mlx-c on that prefix and makes cargo use it instead of the script's output:");
            let accept = overlay.accept.map(|version| format!("ACCEPT={version} "));
            settings.comment(&format!(
                "  {}{} {} test",
                accept.unwrap_or_default(),
                quote(overlay.root.join("ci/mlx-rs.sh")),
                quote(absolute(project)?)
            ));
        }
    }
    Ok(settings)
}

fn python(overlay: &Overlay) -> Result<Settings> {
    if overlay.host.os == Os::MacOs || overlay.stamp.backend == Backend::Metal {
        return python_of_source(overlay);
    }
    if overlay.stamp.backend == Backend::Cuda {
        bail!(
            "{} is a CUDA build, and no wheel is made of one: `cargo xtask build --cpu` makes one that python takes",
            overlay.prefix
        );
    }
    require_cpu(overlay, Consumer::Python)?;
    let script = |name: &str| {
        let [script, prefix, parent] = [
            &overlay.root.join("ci").join(name),
            overlay.prefix,
            &overlay.root.join(BUILDS).join("env/python"),
        ]
        .map(quote);
        format!("{script} {prefix} {parent}")
    };
    let mut settings = Settings::default();
    settings.comment("A wheel in seconds: PyPI's bindings with the library of this prefix. In a Python environment:");
    settings.comment(&format!(
        "  python3 -m pip install \"$({})\"",
        script("python-wheel.sh")
    ));
    settings.comment("A new environment with that wheel and NumPy; its folder is printed:");
    settings.comment(&format!("  {}", script("python-env.sh")));
    settings.set(PREFIX_VARIABLE, overlay.prefix);
    Ok(settings)
}

/// The settings to compile a wheel. The library of a Metal build is static, and PyPI's bindings on a Mac were never
/// tried with it.
fn python_of_source(overlay: &Overlay) -> Result<Settings> {
    let tree = (overlay.tree)()?;
    let final_tree = &overlay.stamp.final_tree;
    let mut arguments = vec![
        "-DMLX_BUILD_GGUF=OFF".to_owned(),
        // Kernels and library are compared by this id.
        format!("-D{FINGERPRINT}={final_tree}"),
    ];
    if overlay.stamp.backend != Backend::Metal {
        arguments.push("-DMLX_BUILD_METAL=OFF".to_owned());
    }
    for (variable, folder) in input_folders(overlay.stamp.backend, overlay.input)? {
        arguments.push(format!("-D{variable}={folder}"));
    }
    // MLX's setup.py splits the variable at blanks.
    if let Some(bad) = arguments.iter().find(|argument| argument.contains(' ')) {
        bail!(
            "`{bad}` contains a blank, which MLX's setup.py does not accept in a path: move the checkout"
        );
    }
    let arguments = arguments.join(" ");
    // setup.py builds below its own folder, where CMake remembers the arguments of its first run.
    let source = folder(overlay, "python", &format!("{final_tree} {arguments}"))?.join("mlx");
    crate::files::update_tree(&tree, &source)?;
    let mut settings = Settings::default();
    settings.comment("A copy of the patched tree: setup.py writes into its folder.");
    settings.comment("  python3 -m pip wheel --no-deps --wheel-dir dist \"$MLX_PYTHON_SOURCE\"");
    settings.set("MLX_PYTHON_SOURCE", source);
    settings.set("CMAKE_ARGS", arguments);
    settings.comment("The version of the pin itself: pip replaces an earlier one, such as a .dev version, if a package requires it.");
    settings.set("PYPI_RELEASE", "1");
    settings.set("DEV_RELEASE", "0");
    Ok(settings)
}

/// Fails if the prefix lacks the CPU back-end. Without it these consumers build, but fail at run time.
fn require_cpu(overlay: &Overlay, consumer: Consumer) -> Result<()> {
    if overlay.stamp.cpu {
        return Ok(());
    }
    let with_cpu = Stamp {
        cpu: true,
        ..overlay.stamp.clone()
    };
    bail!(
        "{} has no CPU back-end, but {consumer} needs one: run `{}`",
        overlay.prefix,
        build::command(&with_cpu, overlay.host)
    )
}

/// An absolute path: the commands work in any folder.
fn absolute(path: &Utf8Path) -> Result<Utf8PathBuf> {
    Ok(camino::absolute_utf8(path)?)
}

/// The folder of CMake's package files.
fn package(overlay: &Overlay) -> String {
    overlay.prefix.join("share/cmake/MLX").into_string()
}

/// Writes a file for CMake that replaces FetchContent's downloads with the patched source and the pinned inputs.
fn write_sources(overlay: &Overlay) -> Result<Utf8PathBuf> {
    let mut text = String::from(
        "# Written by `cargo xtask env`: MLX and its inputs from this checkout, nothing from the network.\n",
    );
    let mlx = (folder_variable("mlx"), (overlay.tree)()?.into_string());
    let inputs = input_folders(overlay.stamp.backend, overlay.input)?;
    for (variable, path) in std::iter::once(mlx).chain(inputs) {
        text += &format!("set({variable} [==[{path}]==] CACHE PATH \"\" FORCE)\n");
    }
    // Kernels and library are compared by this id.
    let tree = &overlay.stamp.final_tree;
    text += &format!("set({FINGERPRINT} {tree} CACHE STRING \"\" FORCE)\n");
    // MLX's own tests, which are on by default, fetch doctest; GGUF needs one more input.
    for part in ["GGUF", "TESTS", "EXAMPLES", "BENCHMARKS"] {
        text += &format!("set(MLX_BUILD_{part} OFF CACHE BOOL \"\" FORCE)\n");
    }
    if let Some(other) = toolchain(overlay) {
        text += &format!("{INCLUDE}{other}{INCLUDE_END}\n");
    }
    let file = folder(overlay, "cmake", &text)?.join("mlx-overlay-source.cmake");
    // A new file time makes CMake configure again. Written in one step, because a running build may read it.
    if fs_err::read(&file).ok().as_deref() != Some(text.as_bytes()) {
        cli::file::write(file.as_std_path(), text)?;
    }
    Ok(file)
}

/// CMake's variable for the tree's id (`rows.cmake`).
const FINGERPRINT: &str = "MLX_OVERLAY_TREE";

const INCLUDE: &str = "include([==[";
const INCLUDE_END: &str = "]==])";

/// The toolchain file of the environment. If these settings are already in force, it is the file that ours includes: a
/// file that includes itself would never end.
fn toolchain(overlay: &Overlay) -> Option<String> {
    let named = overlay.host.var("CMAKE_TOOLCHAIN_FILE")?;
    if !Utf8Path::new(named).starts_with(overlay.root.join(BUILDS).join("env").join("cmake")) {
        return Some(named.to_owned());
    }
    let ours = fs_err::read_to_string(named).ok()?;
    let mut lines = ours.lines();
    let other = lines.find_map(|line| line.strip_prefix(INCLUDE)?.strip_suffix(INCLUDE_END))?;
    Some(other.to_owned())
}

/// The folder of one consumer, for content made from `made_from`. Other content gets another folder, so that a running
/// build keeps the files it was given.
fn folder(overlay: &Overlay, consumer: &str, made_from: &str) -> Result<Utf8PathBuf> {
    let hash = Sha256::digest(made_from);
    let name: String = hash[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = overlay
        .root
        .join(BUILDS)
        .join("env")
        .join(consumer)
        .join(name);
    fs_err::create_dir_all(&folder)?;
    Ok(folder)
}
