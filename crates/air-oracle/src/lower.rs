//! Runs LLVM's tools.

use std::process::Command;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;

use metal_sim::Contraction;

use crate::air::{Kernel, reading};

/// Newest first. 16 is the oldest version that reads Apple's bitcode and knows the simulator's types.
const VERSIONS: [u32; 4] = [19, 18, 17, 16];

/// The LLVM tools of one version.
pub(crate) struct Llvm {
    clang: Utf8PathBuf,
    disassembler: Utf8PathBuf,
    pub(crate) version: u32,
}

impl Llvm {
    /// The newest installed version that has both tools.
    pub(crate) fn find() -> Result<Self> {
        let tool = |name: &str, version| {
            which::which(format!("{name}-{version}"))
                .ok()
                .and_then(|path| Utf8PathBuf::from_path_buf(path).ok())
        };
        VERSIONS
            .into_iter()
            .find_map(|version| {
                Some(Self { clang: tool("clang", version)?, disassembler: tool("llvm-dis", version)?, version })
            })
            .with_context(|| {
                format!("found no clang and llvm-dis of the same version among {VERSIONS:?}; on Debian: apt install clang-19 llvm-19")
            })
    }

    /// Disassembles a module.
    pub(crate) fn disassemble(&self, bitcode: &Utf8Path) -> Result<String> {
        run(Command::new(&self.disassembler)
            .arg(bitcode)
            .args(["-o", "-"]))
    }

    /// Lowers `kernel` for the host and links it with the runtime into a shared object that the simulator can run.
    pub(crate) fn lower(
        &self,
        kernel: &Kernel,
        contraction: Contraction,
        crate_dir: &Utf8Path,
        out: &Utf8Path,
    ) -> Result<Utf8PathBuf> {
        let stem = out.join(format!("{}-{}", kernel.name, reading(contraction)));
        let (module, tables, object) = (
            stem.with_added_extension("ll"),
            stem.with_added_extension("h"),
            stem.with_added_extension("so"),
        );
        fs::write(&module, &kernel.module)?;
        fs::write(&tables, kernel.tables())?;
        let simulator = crate_dir.join("../metal-sim");
        // The compiler must not contract by itself: air.ll spells out both readings.
        run(Command::new(&self.clang)
            .args([
                "-O2",
                "-fPIC",
                "-shared",
                "-std=c++20",
                "-ffp-contract=off",
                "-fvisibility=hidden",
            ])
            .args(["-Wno-override-module", "-fno-exceptions", "-Wl,-z,defs"])
            .arg(format!("-DAIR_KERNEL=\"{tables}\""))
            .args([format!("-I{simulator}/abi"), format!("-I{simulator}/msl")])
            .arg(crate_dir.join("runtime/air_kernel.cpp"))
            .arg(crate_dir.join("runtime/air.ll"))
            .arg(&module)
            .args(["-lm", "-o"])
            .arg(&object))?;
        Ok(object)
    }
}

/// Runs a program and returns its output; an error has the command and its standard error.
fn run(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("reading the output of {command:?}"))
}
