//! Builds of MLX for the simulated device, and the program that evaluates products on one.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use metal_sim::{Device, trace};
use serde::Deserialize;

use crate::case::Case;

const STAMP: &str = "mlx-overlay.toml";
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/driver/driver.cpp");

/// What `cargo xtask build` wrote about a build.
#[derive(Debug, Clone, Deserialize)]
pub struct Stamp {
    /// MLX's version.
    pub version: String,
    /// Git tree id of the unpatched source.
    pub base_tree: String,
    /// Git tree id of the source that was built.
    pub final_tree: String,
    /// Whether that is the unpatched source.
    pub pristine: bool,
    backend: String,
    jit: bool,
    include: Vec<String>,
    lib: String,
    static_libs: Vec<String>,
    system_libs: Vec<String>,
    defines: Vec<String>,
    cxx_std: String,
    metallib: Option<String>,
}

/// An installed build.
#[derive(Debug, Clone)]
pub struct Prefix {
    root: PathBuf,
    /// What it was built from.
    pub stamp: Stamp,
}

/// The two ids of `mlx.lock` that builds are held against.
#[derive(Deserialize)]
struct Lock {
    base_tree: String,
    final_tree: String,
}

fn workspace() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest)
}

impl Prefix {
    /// The patched build: `MLX_OVERLAY_PREFIX`, else the workspace's own.
    ///
    /// # Errors
    /// Where there is none, or it is of another tree or device; the command that makes it.
    pub fn patched() -> Result<Self> {
        let root = std::env::var_os("MLX_OVERLAY_PREFIX")
            .map_or_else(|| workspace().join("target/mlx/current"), PathBuf::from);
        Self::read(&root, false)
            .context("no MLX to prove anything of: run `cargo xtask build --backend sim`")
    }

    /// The unpatched build: `MLX_PRISTINE_PREFIX`, else the one in the workspace.
    ///
    /// # Errors
    /// As for [`Prefix::patched`].
    pub fn pristine() -> Result<Self> {
        let cure =
            "no pristine MLX to compare with: run `cargo xtask build --backend sim --pristine`";
        if let Some(root) = std::env::var_os("MLX_PRISTINE_PREFIX") {
            return Self::read(Path::new(&root), true).context(cure);
        }
        let builds = workspace().join("target/mlx");
        let mut found = Vec::new();
        for entry in fs_err::read_dir(&builds).context(cure)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().contains("-pristine-") {
                found.extend(Self::read(&entry.path().join("prefix"), true).ok());
            }
        }
        found
            .pop()
            .with_context(|| format!("none in {}", builds.display()))
            .context(cure)
    }

    fn read(root: &Path, pristine: bool) -> Result<Self> {
        let root = fs_err::canonicalize(root)?;
        let stamp: Stamp = toml::from_str(&fs_err::read_to_string(root.join(STAMP))?)
            .with_context(|| format!("{} is no stamp", root.join(STAMP).display()))?;
        let lock: Lock = toml::from_str(&fs_err::read_to_string(workspace().join("mlx.lock"))?)?;
        let expected = if pristine {
            lock.base_tree
        } else {
            lock.final_tree
        };
        if stamp.backend != "sim" || stamp.jit || stamp.final_tree != expected {
            bail!(
                "{}: expected a build of tree {expected} for the simulated device, found tree {} \
                 for {}{}",
                root.display(),
                stamp.final_tree,
                stamp.backend,
                if stamp.jit { " with JIT" } else { "" }
            );
        }
        Ok(Self { root, stamp })
    }

    /// Its include folder for kernels.
    pub fn include(&self) -> PathBuf {
        self.root.join("include")
    }

    /// Its table of kernels.
    ///
    /// # Errors
    /// If the build has none.
    pub fn metallib(&self) -> Result<PathBuf> {
        let file = self.stamp.metallib.as_ref().context("no metallib")?;
        Ok(self.root.join(file))
    }
}

/// The evaluating program, linked to one build.
#[derive(Debug)]
pub struct Driver {
    program: PathBuf,
    compiler: PathBuf,
    _folder: tempfile::TempDir,
}

impl Driver {
    /// Compiles it.
    ///
    /// # Errors
    /// The compiler's.
    pub fn build(prefix: &Prefix) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join("driver");
        let stamp = &prefix.stamp;
        let mut command = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
        command
            .arg(format!("-std={}", stamp.cxx_std))
            .args(["-O2", "-Wall", "-Wextra", "-Werror"])
            .args(stamp.defines.iter().map(|define| format!("-D{define}")));
        for include in &stamp.include {
            command.arg("-isystem").arg(prefix.root.join(include));
        }
        command.arg(SOURCE).arg("-o").arg(&program);
        command.arg("-L").arg(prefix.root.join(&stamp.lib));
        let libraries = stamp.static_libs.iter().chain(&stamp.system_libs);
        command.args(libraries.map(|library| format!("-l{library}")));
        let output = command
            .output()
            .with_context(|| format!("cannot start {command:?}"))?;
        if !output.status.success() {
            bail!(
                "{SOURCE} does not compile\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(Self {
            program,
            compiler: prefix.root.join("bin/metal-simc"),
            _folder: folder,
        })
    }

    /// Evaluates cases on a device, in a process of their own.
    ///
    /// # Errors
    /// What the process says, with the case at which it stopped.
    pub fn run(&self, how: &How, cases: &[Case]) -> Result<Vec<Answer>> {
        let mut command = Command::new(&self.program);
        // What the caller's environment says of the device is not what is proven.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("MTL_SIM_") && !text.starts_with("MTL_SIM_CXX") {
                command.env_remove(&name);
            }
        }
        how.device.apply(&mut command);
        command
            .env("MTL_SIM_COMPILER", &self.compiler)
            .env("MLX_QMV_POLICY", how.policy.name())
            .args(&how.metallib)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start the driver")?;
        let text: String = cases.iter().map(|case| format!("{case}\n")).collect();
        let mut input = child.stdin.take().context("no standard input")?;
        // From a thread: the answers may fill their pipe before all cases are read.
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output()?;
        let written = writer.join();
        if !output.status.success() {
            bail!(
                "{:?}, policy {}: {}\n{}",
                how.device,
                how.policy,
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        written.map_err(|_| anyhow::anyhow!("the writer of cases panicked"))??;
        let answers: Vec<Answer> = String::from_utf8(output.stdout)?
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .context("the driver's answer is not what prefix.rs expects")?;
        if answers.len() != cases.len() {
            bail!("{} answers to {} cases", answers.len(), cases.len());
        }
        Ok(answers)
    }
}

/// The device and the process that cases run in.
#[derive(Debug, Clone)]
pub struct How {
    /// The device's settings.
    pub device: Device,
    /// The process's policy. Pristine MLX does not read it.
    pub policy: dispatch_plan::Policy,
    /// Kernels in place of the build's own.
    pub metallib: Option<PathBuf>,
}

/// What a case came to.
#[derive(Debug, Clone, Deserialize)]
pub struct Answer {
    /// The rows one by one.
    pub alone: Alone,
    /// The same rows in one product, for each number of rows asked for.
    pub together: Vec<Together>,
}

/// Dispatches by kernel, without those that round the x of a product that quantizes it.
pub fn products(kernels: &BTreeMap<String, u64>) -> BTreeMap<&str, u64> {
    let rounds = |name: &str| name.contains("_quantize_dequantize_");
    kernels
        .iter()
        .filter(|(name, _)| !rounds(name))
        .map(|(name, &count)| (name.as_str(), count))
        .collect()
}

/// Rows evaluated one by one.
#[derive(Debug, Clone, Deserialize)]
pub struct Alone {
    /// Dispatches by kernel.
    pub kernels: BTreeMap<String, u64>,
    /// Largest error against float64, as a part of the sum of magnitudes.
    pub error: f64,
    /// All outputs, in hex.
    pub bits: String,
}

/// Rows in one product.
#[derive(Debug, Clone, Deserialize)]
pub struct Together {
    /// Rows.
    pub m: u32,
    /// Dispatches by kernel.
    pub kernels: BTreeMap<String, u64>,
    /// Outputs.
    pub outputs: u64,
    /// Outputs whose bits are not those of the row alone.
    pub differing: u64,
    /// As for [`Alone`].
    pub error: f64,
    /// All outputs, in hex, where recorded.
    pub bits: Option<String>,
    /// The dispatches in full, where recorded.
    #[serde(default)]
    pub dispatches: Vec<trace::Dispatch>,
}
