//! Runs kernels without MLX: compiles Metal text or a library's kernel, calls it through
//! `run_kernel.cpp` and returns buffers, counters and faults.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use metal_sim::{Compiler, Contraction, Options, Toolchain, Variant, library_from_text};

pub fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels")
}

pub fn toolchain() -> Toolchain {
    Toolchain::find(cache()).unwrap()
}

/// The folder of the crate's C++ code.
pub fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `run_kernel`, built once for this test program.
pub fn runner() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build_runner("", &[]))
}

/// Runs a program that must succeed; prints its output if it fails.
pub fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// Configures and builds a CMake project of this crate; returns its build folder.
pub fn cmake(source: &str, name: &str, settings: &[String]) -> PathBuf {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    run(Command::new("cmake")
        .arg("-S")
        .arg(crate_folder().join(source))
        .arg("-B")
        .arg(&build)
        .args(["-G", "Ninja"])
        .args(settings.iter().map(|setting| format!("-D{setting}"))));
    run(Command::new("cmake")
        .arg("--build")
        .arg(&build)
        .args(["--parallel", "2"]));
    build
}

/// A C++ compiler for the host side, preferably clang.
pub fn compiler() -> &'static str {
    ["clang++-19", "clang++", "c++"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())
        .expect("a C++ compiler")
}

/// Builds `run_kernel` with more flags; `tag` distinguishes the files.
pub fn build_runner(tag: &str, flags: &[&str]) -> PathBuf {
    build_runner_in(compiler(), &crate_folder().join("engine"), tag, flags)
}

/// Builds `run_kernel` with another compiler, or with the engine in another folder.
pub fn build_runner_in(compiler: &str, engine: &Path, tag: &str, flags: &[&str]) -> PathBuf {
    let root = crate_folder();
    // Another process may use the program while this one builds it.
    let process = std::process::id();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run_kernel{tag}-{process}"));
    run(Command::new(compiler)
        .args([
            "-std=c++20",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
        ])
        .args(flags)
        .arg("-I")
        .arg(root.join("abi"))
        .arg("-I")
        .arg(engine)
        .arg(root.join("tests/support/run_kernel.cpp"))
        .args(["engine.cpp", "context.cpp"].map(|file| engine.join(file)))
        .args(["-ldl", "-o"])
        .arg(&target));
    target
}

/// A kernel to run, with its arguments.
pub struct Run {
    library: PathBuf,
    name: String,
    options: Options,
    arguments: Vec<String>,
    buffers: BTreeMap<u32, Vec<u8>>,
    flags: Vec<String>,
    runner: PathBuf,
    cache: PathBuf,
    shim: Option<PathBuf>,
}

pub struct Outcome {
    buffers: BTreeMap<u32, Vec<u8>>,
    /// `code slot message` of a fault.
    pub fault: Option<Fault>,
    pub loaded: BTreeMap<u32, u64>,
    pub stored: BTreeMap<u32, u64>,
    pub written: BTreeMap<u32, Vec<u8>>,
    pub text: String,
}

#[derive(Debug)]
pub struct Fault {
    /// The name in `abi/kernel_abi.h` without its prefix: `RACE`.
    pub code: &'static str,
    pub slot: i32,
    pub message: String,
}

impl Run {
    /// A kernel of Metal source text.
    pub fn text(source: &str, name: &str) -> Self {
        Self::library(&library_from_text(&toolchain(), source).unwrap(), name)
    }

    pub fn library(library: &Path, name: &str) -> Self {
        Run {
            library: library.to_owned(),
            name: name.to_owned(),
            options: Options::default(),
            arguments: Vec::new(),
            buffers: BTreeMap::new(),
            flags: Vec::new(),
            runner: runner().to_owned(),
            cache: cache(),
            shim: None,
        }
    }

    /// The same arguments for another kernel.
    pub fn of(mut self, library: &Path, name: &str) -> Self {
        self.library = library.to_owned();
        self.name = name.to_owned();
        self
    }

    pub fn contraction(mut self, contraction: Contraction) -> Self {
        self.options.contraction = contraction;
        self
    }

    /// The kernel compiled with more flags, run by another `run_kernel`.
    pub fn built_with(mut self, flags: &[&str], runner: &Path) -> Self {
        self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        self.runner = runner.to_owned();
        self
    }

    /// Compiles the kernel into another cache, and with another shim if there is one.
    pub fn cached_in(mut self, cache: &Path, shim: Option<&Path>) -> Self {
        self.cache = cache.to_owned();
        self.shim = shim.map(Path::to_owned);
        self
    }

    pub fn metered(mut self) -> Self {
        self.options.variant = Variant::Metered;
        self
    }

    /// Compiles the kernel to detect invalid accesses, or uses of uninitialized values.
    pub fn looking_for(mut self, variant: Variant) -> Self {
        self.options.variant = variant;
        self.with("track")
    }

    /// Bytes at a buffer index; read back afterwards.
    pub fn buffer<T: Plain>(mut self, index: u32, values: &[T]) -> Self {
        self.buffers
            .insert(index, values.iter().flat_map(|v| v.bytes()).collect());
        self
    }

    pub fn bytes<T: Plain>(mut self, index: u32, value: T) -> Self {
        let hex: String = value
            .bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.push(&["bytes", &index.to_string(), &hex]);
        self
    }

    /// Adds options of `run_kernel`.
    pub fn with(mut self, words: &str) -> Self {
        self.push(&words.split(' ').collect::<Vec<_>>());
        self
    }

    fn push(&mut self, words: &[&str]) {
        self.arguments
            .extend(words.iter().map(|&word| word.to_owned()));
    }

    pub fn compile(&self) -> PathBuf {
        let mut toolchain = Toolchain::find(self.cache.clone()).unwrap();
        if let Some(shim) = &self.shim {
            toolchain = toolchain.with_shim(shim.clone());
        }
        Compiler::new(toolchain.with_flags(self.flags.clone()), self.options)
            .kernel(&self.library, &self.name)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn describe(self) -> String {
        self.with("describe").go().text
    }

    pub fn go(self) -> Outcome {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(&self.runner);
        command.arg(self.compile());
        for (index, bytes) in &self.buffers {
            let file = folder.path().join(format!("{index}.bin"));
            std::fs::write(&file, bytes).unwrap();
            command.arg("buffer").arg(index.to_string()).arg(file);
        }
        let mut marks = Vec::new();
        if self.options.variant == Variant::Metered {
            for index in self.buffers.keys() {
                let file = folder.path().join(format!("{index}.written"));
                command.arg("written").arg(index.to_string()).arg(&file);
                marks.push((*index, file));
            }
        }
        let output = command.args(&self.arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let code = output.status.code();
        assert!(
            matches!(code, Some(0 | 2)),
            "{code:?} {text} {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let read = |index: &u32| {
            let file = folder.path().join(format!("{index}.bin"));
            (*index, std::fs::read(file).unwrap())
        };
        let mut outcome = Outcome {
            buffers: self.buffers.keys().map(read).collect(),
            fault: None,
            loaded: BTreeMap::new(),
            stored: BTreeMap::new(),
            written: BTreeMap::new(),
            text,
        };
        if code == Some(0) {
            let read = |(index, file): (u32, PathBuf)| Some((index, std::fs::read(file).ok()?));
            outcome.written = marks.into_iter().filter_map(read).collect();
        }
        for line in outcome.text.lines() {
            let words: Vec<&str> = line.splitn(9, ' ').collect();
            match words[0] {
                "fault" => {
                    outcome.fault = Some(Fault {
                        code: fault_code(words[1]),
                        slot: words[6].parse().unwrap(),
                        message: words[8].to_owned(),
                    });
                }
                "loaded" => drop(
                    outcome
                        .loaded
                        .insert(words[1].parse().unwrap(), words[2].parse().unwrap()),
                ),
                "stored" => drop(
                    outcome
                        .stored
                        .insert(words[1].parse().unwrap(), words[2].parse().unwrap()),
                ),
                _ => {}
            }
        }
        outcome
    }
}

impl Outcome {
    pub fn get<T: Plain>(&self, index: u32) -> Vec<T> {
        assert!(self.fault.is_none(), "{:?}", self.fault);
        self.buffers[&index]
            .chunks_exact(size_of::<T>())
            .map(T::read)
            .collect()
    }

    pub fn fault(&self) -> &Fault {
        self.fault.as_ref().expect("a fault")
    }
}

/// The name of a fault's number.
fn fault_code(number: &str) -> &'static str {
    const ABI: &str = include_str!("../../abi/kernel_abi.h");
    let names = ABI.split("MTLSIM_FAULT_").skip(1);
    names
        .filter_map(|text| text.split_once('='))
        .find(|(_, value)| value.trim_start().split(',').next() == Some(number))
        .unwrap_or_else(|| panic!("kernel_abi.h has no fault {number}"))
        .0
        .trim_end()
}

/// Values that are passed as bytes.
pub trait Plain: Copy {
    fn bytes(&self) -> Vec<u8>;
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($t:ty),*) => { $(impl Plain for $t {
        fn bytes(&self) -> Vec<u8> { self.to_le_bytes().to_vec() }
        fn read(bytes: &[u8]) -> Self { Self::from_le_bytes(bytes.try_into().unwrap()) }
    })* };
}
plain!(u8, u16, u32, u64, i32, i64, f32);

impl Plain for half::f16 {
    fn bytes(&self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes(bytes.try_into().unwrap())
    }
}

impl Plain for half::bf16 {
    fn bytes(&self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes(bytes.try_into().unwrap())
    }
}

/// Omits the buffers, which are long.
impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.text)
    }
}
