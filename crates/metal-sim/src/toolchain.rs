//! The compiler of the simulated device.

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::UNIX_EPOCH;

use crate::{Error, Version, cache, shim};

/// How `llvm.fmuladd` is computed. Apple's front end emits it for each product and sum of one
/// expression and leaves the choice to the back end, which is not documented. A result that holds
/// for both variants does not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Contraction {
    /// One rounding, for `half` and `bfloat` too.
    #[default]
    Fused,
    /// Two roundings.
    Split,
}

/// The instrumentation of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Variant {
    /// Not instrumented.
    #[default]
    Plain,
    /// Counts bytes loaded and stored, and checks each access.
    Metered,
    /// Like `Metered`; also detects races, misaligned accesses, array indexes out of bounds and
    /// reads of inactive lanes.
    Checked,
    /// Detects results that depend on uninitialized values.
    Tracked,
}

impl Contraction {
    /// Names on the command line and in `MTL_SIM_CONTRACT`.
    pub const NAMES: [(&'static str, Self); 2] = [("fused", Self::Fused), ("split", Self::Split)];
}

impl Variant {
    /// Names on the command line.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("plain", Self::Plain),
        ("metered", Self::Metered),
        ("checked", Self::Checked),
        ("tracked", Self::Tracked),
    ];
}

/// A clang that can build kernels, with the cache for its output.
#[derive(Debug, Clone)]
pub struct Toolchain {
    compiler: PathBuf,
    /// The compiler's file, size and time: another compiler produces other kernels.
    identity: String,
    cache: PathBuf,
    shim: OnceLock<PathBuf>,
    /// Files of the cache whose checksums this process has verified, by key.
    compared: Arc<Mutex<HashMap<String, PathBuf>>>,
    extra_flags: Vec<String>,
}

impl Toolchain {
    /// The compilers that [`Toolchain::find`] tries, best first.
    pub const COMPILERS: [&str; 6] = [
        "clang++-19",
        "clang++-20",
        "clang++-18",
        "clang++-17",
        "clang++-16",
        "clang++",
    ];

    /// Finds a compiler: `MTL_SIM_CXX`, else the best clang on the path. `MTL_SIM_CXXFLAGS` adds
    /// flags for every kernel (sanitizers, debugging). `cache` becomes a folder that only its owner
    /// can write.
    ///
    /// # Errors
    /// [`Error::NoCompiler`] if there is none; [`Error::Cache`] if another user could write to the
    /// cache.
    pub fn find(cache: PathBuf) -> Result<Self, Error> {
        let cache = cache::prepare(&cache)?;
        let wanted = env::var("MTL_SIM_CXX").ok().filter(|name| !name.is_empty());
        let names: Vec<&str> = match &wanted {
            Some(name) => vec![name],
            None => Self::COMPILERS.to_vec(),
        };
        let compiler = names
            .iter()
            .find_map(|name| which::which(name).ok())
            .ok_or_else(|| Error::NoCompiler {
                tried: names.join(", "),
            })?;
        let real = fs_err::canonicalize(&compiler)?;
        let metadata = fs_err::metadata(&real)?;
        let modified = metadata
            .modified()?
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let identity = format!(
            "{} {} {}",
            real.display(),
            metadata.len(),
            modified.as_nanos()
        );
        let extra_flags = env::var("MTL_SIM_CXXFLAGS")
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        Ok(Toolchain {
            compiler,
            identity,
            cache,
            shim: OnceLock::new(),
            compared: Arc::default(),
            extra_flags,
        })
    }

    /// Uses the headers of a folder instead of the shim, for tests of the shim. Needs a cache of
    /// its own.
    #[doc(hidden)]
    #[must_use]
    pub fn with_shim(mut self, folder: PathBuf) -> Self {
        self.shim = OnceLock::from(folder);
        self.compared = Arc::default();
        self
    }

    /// The folder of the shim's headers, verified once per process.
    pub(crate) fn shim(&self) -> Result<PathBuf, Error> {
        if let Some(folder) = self.shim.get() {
            return Ok(folder.clone());
        }
        let folder = shim::folder(&self.cache)?;
        Ok(self.shim.get_or_init(|| folder).clone())
    }

    /// The file of `key`, verified or created once by `find`. Concurrent callers wait.
    pub(crate) fn once(
        &self,
        key: String,
        find: impl FnOnce(&str) -> Result<PathBuf, Error>,
    ) -> Result<PathBuf, Error> {
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = compared.get(&key) {
            return Ok(path.clone());
        }
        let path = find(&key)?;
        compared.insert(key, path.clone());
        Ok(path)
    }

    /// Adds flags for every kernel, such as those of a sanitizer.
    #[must_use]
    pub fn with_flags<S: Into<String>>(mut self, flags: impl IntoIterator<Item = S>) -> Self {
        self.extra_flags.extend(flags.into_iter().map(Into::into));
        self
    }

    pub fn compiler(&self) -> &Path {
        &self.compiler
    }

    pub fn cache(&self) -> &Path {
        &self.cache
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Flags for every kernel and for its precompiled shim.
    pub(crate) fn kernel_flags(&self, contraction: Contraction, variant: Variant) -> Vec<String> {
        let mut flags: Vec<&str> = vec![
            "-std=c++20",
            "-O2",
            "-w",
            "-fPIC",
            "-fvisibility=hidden",
            "-fno-exceptions",
            "-fno-rtti",
            "-fno-math-errno",
            "-Wno-c++11-narrowing",
            // clang 19's vectorizer gives wrong sums for six rows at 6 bits (qmv_streamed, K of
            // 544), and the code of a single lane gains little from it.
            "-fno-slp-vectorize",
            // Keep infinite loops, so that the watchdog finds them.
            "-fno-finite-loops",
            "-fsanitize=integer-divide-by-zero",
            "-fno-sanitize-recover=integer-divide-by-zero",
            // Round half and bfloat expressions at the same points as Apple's compiler.
            "-Xclang",
            "-ffloat16-excess-precision=none",
            "-Xclang",
            "-fbfloat16-excess-precision=none",
            match contraction {
                Contraction::Fused => "-ffp-contract=on",
                Contraction::Split => "-ffp-contract=off",
            },
        ];
        if cfg!(target_arch = "x86_64") {
            // Enable hardware conversion of half and fused multiply-add, and nothing else: results
            // must not depend on the machine.
            flags.push("-march=x86-64-v3");
        }
        match variant {
            Variant::Plain => {}
            Variant::Metered => {
                flags.extend(METER_FLAGS);
                flags.extend(["-mllvm", "-asan-instrument-atomics=true"]);
            }
            Variant::Checked => {
                flags.extend(METER_FLAGS);
                flags.extend(CHECK_FLAGS);
            }
            Variant::Tracked => flags.extend(TRACK_FLAGS),
        }
        let mut flags: Vec<String> = flags.into_iter().map(str::to_owned).collect();
        flags.extend(self.extra_flags.iter().cloned());
        flags
    }

    /// Preprocesses Metal source: `source` as standard input if given, else the input named by
    /// `arguments`.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's diagnostics.
    pub(crate) fn preprocess<S: AsRef<OsStr>>(
        &self,
        what: &str,
        arguments: &[S],
        source: Option<&str>,
        version: Version,
    ) -> Result<Preprocessed, Error> {
        let stubs = self.shim()?.join("stubs");
        let mut command = Command::new(&self.compiler);
        command
            .args(["-E", "-x", "c++", "-std=c++17", "-nostdinc", "-undef", "-w"])
            .args(["-D__METAL__", "-D__METAL_MACOS__"])
            .arg(format!("-D__METAL_VERSION__={}", u32::from(version)))
            .arg(if u32::from(version) < 400 {
                "-D__cplusplus=201402L"
            } else {
                "-D__cplusplus=201703L"
            })
            .arg("-isystem")
            .arg(&stubs)
            .args(arguments);
        if source.is_some() {
            command.arg("-");
        }
        let output = run(command, source.map(str::as_bytes))?;
        // Headers of the shim are not part of the project, so leave them out of the list (-H).
        let stubs = stubs.to_string_lossy();
        let diagnostics: String = output
            .stderr
            .lines()
            .filter(|line| !line.contains(&*stubs))
            .map(|line| format!("{line}\n"))
            .collect();
        if !output.success {
            return Err(Error::Compile {
                what: format!("cannot preprocess {what}"),
                diagnostics,
            });
        }
        Ok(Preprocessed {
            text: output.stdout,
            diagnostics,
        })
    }

    /// The compiler's output for a text, its diagnostics, and its exit status (`None` if a signal
    /// ended it). Errors in the text are not errors of this function.
    pub(crate) fn examine<S: AsRef<OsStr>>(
        &self,
        arguments: &[S],
    ) -> Result<(String, String, Option<i32>), Error> {
        let mut command = Command::new(&self.compiler);
        command.args(arguments);
        let output = run(command, None)?;
        Ok((output.stdout, output.stderr, output.code))
    }

    /// Runs the compiler.
    pub(crate) fn compile<S: AsRef<OsStr>>(
        &self,
        what: &str,
        arguments: &[S],
    ) -> Result<(), Error> {
        let mut command = Command::new(&self.compiler);
        command.args(arguments);
        let output = run(command, None)?;
        if output.success {
            return Ok(());
        }
        Err(Error::Compile {
            what: format!("cannot compile {what}"),
            diagnostics: output.stderr,
        })
    }
}

/// Instrumentation of the metered variant: each access, block copies included, calls the meter
/// (msl/mtlsim/meter.h). Accesses are never merged.
const METER_FLAGS: [&str; 15] = [
    "-DMTLSIM_METER",
    "-fsanitize=kernel-address",
    "-mllvm",
    "-asan-instrumentation-with-call-threshold=0",
    "-mllvm",
    "-asan-memory-access-callback-prefix=__mtlsim_",
    "-mllvm",
    "-asan-kernel-mem-intrinsic-prefix=true",
    "-mllvm",
    "-asan-opt=false",
    "-mllvm",
    "-asan-stack=false",
    "-mllvm",
    "-asan-globals=false",
    "-fno-vectorize",
];

/// Added for the checked variant: atomics report themselves, and undefined behaviour in C++ is
/// detected.
const CHECK_FLAGS: [&str; 6] = [
    "-DMTLSIM_CHECKED",
    "-mllvm",
    "-asan-instrument-atomics=false",
    "-fsanitize=alignment,array-bounds,local-bounds,unreachable,return",
    "-fno-sanitize-recover=alignment,array-bounds",
    "-fsanitize-trap=local-bounds",
];

/// Instrumentation of the tracked variant (msl/mtlsim/track.h). Not optimised: an optimiser would
/// replace uninitialized values by arbitrary ones.
const TRACK_FLAGS: [&str; 5] = [
    "-O0",
    "-DMTLSIM_TRACKED",
    "-fsanitize=kernel-memory",
    "-fno-sanitize-memory-param-retval",
    "-fno-vectorize",
];

/// Preprocessed source and the compiler's diagnostics.
#[derive(Debug)]
pub(crate) struct Preprocessed {
    pub(crate) text: String,
    pub(crate) diagnostics: String,
}

struct Output {
    success: bool,
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run(mut command: Command, input: Option<&[u8]>) -> Result<Output, Error> {
    command
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let program = command.get_program().to_string_lossy().into_owned();
    let named =
        |error: std::io::Error| std::io::Error::new(error.kind(), format!("{program}: {error}"));
    let mut child = command.spawn().map_err(named)?;
    let output = std::thread::scope(|scope| {
        if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
            // If the compiler stops early it closes the pipe; its exit status reports why.
            scope.spawn(move || pipe.write_all(input).ok());
        }
        child.wait_with_output()
    })
    .map_err(named)?;
    Ok(Output {
        success: output.status.success(),
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
