//! The programs that evaluate products and operations on the simulated device, linked to one build.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use camino::Utf8Path;
use metal_sim::{Device, trace};
use patchset::{Manifest, Workspace};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::case::Case;
use crate::prefix::{Prefix, workspace};

const PRODUCTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/driver/products.cpp");
const OPERATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/driver/operations.cpp");

/// An evaluating program, linked to one build.
#[derive(Debug)]
pub struct Driver {
    program: PathBuf,
    compiler: PathBuf,
    _folder: tempfile::TempDir,
}

impl Driver {
    /// Compiles the driver for quantized products ([`Case`]).
    ///
    /// # Errors
    /// The compiler's errors.
    pub fn build(prefix: &Prefix) -> Result<Self> {
        Self::of(PRODUCTS, prefix, &[])
    }

    /// Compiles the driver for whole operations ([`crate::Operation`]). `instead` are files of MLX's tree that replace
    /// the build's own.
    ///
    /// # Errors
    /// The compiler's errors.
    pub fn of_operations(prefix: &Prefix, instead: &[PathBuf]) -> Result<Self> {
        Self::of(OPERATIONS, prefix, instead)
    }

    fn of(source: &'static str, prefix: &Prefix, instead: &[PathBuf]) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("mlx-overlay-proofs-")
            .tempdir()?;
        let object = folder.path().join("driver.o");
        fs_err::write(&object, object_of(source, prefix)?.as_slice())?;
        let program = folder.path().join("driver");
        let stamp = prefix.stamp();
        let mut command = compiler(prefix)?;
        // The linker uses the definitions in these and leaves out the library's objects with the same names.
        command.arg(&object).args(instead).arg("-o").arg(&program);
        command.arg("-L").arg(prefix.built.lib());
        let libraries = stamp.static_libs.iter().chain(&stamp.system_libs);
        command.args(libraries.map(|library| format!("-l{library}")));
        compile(&mut command, source)?;
        Ok(Self {
            program,
            compiler: prefix.built.root.join("bin/metal-simc"),
            _folder: folder,
        })
    }

    /// Evaluates products on a device in a separate process.
    ///
    /// # Errors
    /// The process's errors, with the case at which it stopped.
    pub fn run(&self, how: &How, cases: &[Case]) -> Result<Vec<Answer>> {
        let policy = how.policy.to_string();
        self.ask(&how.device, how.metallib.as_deref(), Some(&policy), cases)
    }

    /// Sends the cases to a process on that device, one per line, and reads as many answers.
    ///
    /// # Errors
    /// The process's errors, with the case at which it stopped.
    pub(crate) fn ask<C: Display, A: DeserializeOwned>(
        &self,
        device: &Device,
        metallib: Option<&Path>,
        policy: Option<&str>,
        cases: &[C],
    ) -> Result<Vec<A>> {
        let mut command = Command::new(&self.program);
        // Settings of the device in the caller's environment must not affect the proof.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("MTL_SIM_") && !text.starts_with("MTL_SIM_CXX") {
                command.env_remove(&name);
            }
        }
        device.apply(&mut command);
        command
            .env("MTL_SIM_COMPILER", &self.compiler)
            .env_remove("MLX_QMV_POLICY")
            .env("MLX_ROW_POLICY", policy.unwrap_or("default"))
            .args(metallib)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start the driver")?;
        let text: String = cases.iter().map(|case| format!("{case}\n")).collect();
        let mut input = child.stdin.take().context("no standard input")?;
        // On a thread: the answers may fill their pipe before all cases are read.
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output()?;
        let written = writer.join();
        if !output.status.success() {
            bail!(
                "{device:?}, policy {}: {}\n{}",
                policy.unwrap_or("of each case"),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        written.map_err(|_| anyhow::anyhow!("the writer of cases panicked"))??;
        let answers: Vec<A> = String::from_utf8(output.stdout)?
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .context("the driver's answer is not what its reader expects")?;
        if answers.len() != cases.len() {
            bail!("{} answers to {} cases", answers.len(), cases.len());
        }
        Ok(answers)
    }
}

/// The object code of a driver, compiled once per process: most of the time is spent in MLX's headers.
fn object_of(source: &'static str, prefix: &Prefix) -> Result<Arc<Vec<u8>>> {
    type Objects = BTreeMap<(&'static str, PathBuf), Arc<Vec<u8>>>;
    static OBJECTS: Mutex<Objects> = Mutex::new(BTreeMap::new());
    // Held while compiling: other threads that wait need the same object.
    let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (source, prefix.built.root.clone());
    if let Some(object) = objects.get(&key) {
        return Ok(Arc::clone(object));
    }
    let folder = tempfile::Builder::new()
        .prefix("mlx-overlay-proofs-")
        .tempdir()?;
    let file = folder.path().join("driver.o");
    let mut command = compiler(prefix)?;
    command
        .args(["-Wall", "-Wextra", "-Werror", "-c", source, "-o"])
        .arg(&file);
    compile(&mut command, source)?;
    let object = Arc::new(fs_err::read(file)?);
    objects.insert(key, Arc::clone(&object));
    Ok(object)
}

/// A compiler command with the options for code that uses a build.
fn compiler(prefix: &Prefix) -> Result<Command> {
    let stamp = prefix.stamp();
    let mut command = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    command
        .arg(format!("-std={}", stamp.cxx_std))
        .arg("-O2")
        .args(stamp.defines.iter().map(|define| format!("-D{define}")));
    for include in prefix.built.include().into_iter().chain([json()?]) {
        command.arg("-isystem").arg(include);
    }
    Ok(command)
}

fn compile(command: &mut Command, source: &str) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{source} does not compile\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// The include folder of the pinned JSON library, which MLX is built with but does not install.
fn json() -> Result<PathBuf> {
    let root = Utf8Path::from_path(workspace()).context("the path of the checkout is not UTF-8")?;
    let workspace = Workspace::at(root);
    let mut inputs = Manifest::load(&workspace.manifest_path())?.inputs;
    inputs.retain(|input| input.name == "json");
    let unpacked = patchset::inputs::fetch(&workspace, &inputs, false, &|_| {})?;
    let input = unpacked.first().context("mlx.toml has no input json")?;
    Ok(input.folder.join("single_include").into())
}

/// The device and the process in which cases run.
#[derive(Debug, Clone)]
pub struct How {
    /// The device's settings.
    pub device: Device,
    /// The process's policy; pristine MLX does not read it.
    pub policy: dispatch_plan::Policy,
    /// Kernels that replace the build's own.
    pub metallib: Option<PathBuf>,
}

/// The result of a case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The rows one by one.
    pub alone: Alone,
    /// These rows in one product, for each requested number of rows.
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
#[serde(deny_unknown_fields)]
pub struct Alone {
    /// Dispatches by kernel.
    pub kernels: BTreeMap<String, u64>,
    /// Largest error compared with float64, relative to the sum of magnitudes.
    pub error: f64,
    /// All outputs, in hex.
    pub bits: String,
}

/// Rows in one product.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Together {
    /// Rows.
    pub m: u32,
    /// Dispatches by kernel.
    pub kernels: BTreeMap<String, u64>,
    pub outputs: u64,
    /// Outputs whose bits differ from those of the row alone.
    pub differing: u64,
    /// See [`Alone::error`].
    pub error: f64,
    /// All outputs, in hex, if recorded.
    pub bits: Option<String>,
    /// The dispatches in full, if recorded.
    #[serde(default)]
    pub dispatches: Vec<trace::Dispatch>,
}
