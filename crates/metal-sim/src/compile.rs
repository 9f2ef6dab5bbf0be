//! Compiles a name in a library to a shared object, once for each content.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::cache::{self, Entry};
use crate::library::Library;
use crate::parse::Source;
use crate::toolchain::{Contraction, Toolchain, Variant};
use crate::{Error, language, lower, shim};

/// Options for compiling kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    pub contraction: Contraction,
    pub variant: Variant,
}

/// Compiles kernels of libraries into the toolchain's cache.
#[derive(Debug)]
pub struct Compiler {
    pub(crate) toolchain: Toolchain,
    options: Options,
}

/// This file, which decides how kernels are compiled. If it changes, kernels are compiled again.
const RECIPE: &str = include_str!("compile.rs");

impl Compiler {
    pub fn new(toolchain: Toolchain, options: Options) -> Self {
        Compiler { toolchain, options }
    }

    /// The shared object of kernel `name` of the library at `path`, compiled now or from the cache.
    ///
    /// # Errors
    /// [`Error::NoKernel`] if the library's table lacks the name; [`Error::Compile`] with the
    /// compiler's diagnostics.
    pub fn kernel(&self, path: &Path, name: &str) -> Result<PathBuf, Error> {
        self.kernel_of(&Library::read(path)?, path, name)
    }

    /// Compiles several kernels of one library on all cores. Returns failures with the kernels'
    /// names.
    ///
    /// # Errors
    /// If the library itself cannot be read.
    pub fn warm(&self, path: &Path, names: &[String]) -> Result<Vec<(String, Error)>, Error> {
        let library = Library::read(path)?;
        // The kernels share the precompiled shim, so build it first.
        self.precompiled_shim()?;
        Ok(names
            .par_iter()
            .filter_map(|name| match self.kernel_of(&library, path, name) {
                Ok(_) => None,
                Err(error) => Some((name.clone(), error)),
            })
            .collect())
    }

    fn kernel_of(&self, library: &Library, path: &Path, name: &str) -> Result<PathBuf, Error> {
        let entry = library
            .entry(name)
            .ok_or_else(|| missing(library, path, name))?;
        language::accept(&self.toolchain, library, entry.source)?;
        let source = &library.sources()[entry.source];
        let parsed = Source::parse(&source.text)?;
        let text = lower::lower(&parsed, &source.file, name, &entry.expression)?;
        self.build(name, &text).map_err(|error| match error {
            Error::Compile { diagnostics, what } => {
                language::refused(&diagnostics).unwrap_or(Error::Compile { what, diagnostics })
            }
            error => error,
        })
    }

    fn flags(&self) -> Vec<String> {
        self.toolchain
            .kernel_flags(self.options.contraction, self.options.variant)
    }

    pub(crate) fn key(&self, parts: &[&str]) -> String {
        let mut hash = Sha256::new();
        for part in parts.iter().copied().chain([
            shim::digest().as_str(),
            self.toolchain.identity(),
            RECIPE,
        ]) {
            hash.update(part);
            hash.update([0]);
        }
        for flag in self.flags() {
            hash.update(flag);
            hash.update([0]);
        }
        cache::short_hex(hash)
    }

    pub(crate) fn precompiled_shim(&self) -> Result<PathBuf, Error> {
        let shim = self.toolchain.shim()?;
        self.toolchain.once(self.key(&["prelude"]), |key| {
            Entry::new(self.toolchain.cache(), "prelude", key, "pch").find_or_make(|made| {
                let mut arguments = self.arguments(&shim);
                arguments.extend(
                    ["-x", "c++-header", "-Xclang", "-fno-pch-timestamp"].map(OsString::from),
                );
                arguments.push(shim.join("msl/mtlsim/prelude.h").into());
                arguments.extend(["-o".into(), made.into()]);
                self.toolchain.compile("the MSL shim", &arguments)
            })
        })
    }

    pub(crate) fn arguments(&self, shim: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = self.flags().into_iter().map(OsString::from).collect();
        arguments.extend(["-I".into(), shim.join("abi").into()]);
        arguments
    }

    fn build(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        Entry::new(self.toolchain.cache(), "kernel", &self.key(&[text]), "so")
            .find_or_make(|made| self.shared_object(name, text, made))
    }

    fn shared_object(&self, name: &str, text: &str, made: &Path) -> Result<(), Error> {
        let shim = self.toolchain.shim()?;
        let prelude = self.precompiled_shim()?;
        let scratch = cache::scratch(self.toolchain.cache())?;
        let source = scratch.path().join("kernel.cpp");
        cache::write_new(&source, text.as_bytes())?;
        let mut compile = self.arguments(&shim);
        compile.extend(["-include-pch".into(), prelude.into(), source.into()]);
        let link = |arguments: &mut Vec<OsString>| {
            // A kernel uses nothing from the C++ library, and reading it takes longer than linking.
            arguments.extend(["-shared", "-nostdlib++", "-lm", "-o"].map(OsString::from));
            arguments.push(made.into());
        };
        if self.options.contraction == Contraction::Split {
            link(&mut compile);
            return self.toolchain.compile(name, &compile);
        }
        // clang fuses `llvm.fmuladd` only if the machine has an instruction for the type, and none
        // of our machines has one for half and bfloat. So the choice is made in the intermediate
        // code. It is made before the optimiser runs, because vectorisation may split one fmuladd,
        // and split the same expression differently in two kernels.
        let code = scratch.path().join("kernel.ll");
        compile.extend(
            ["-Xclang", "-disable-llvm-passes", "-S", "-emit-llvm", "-o"].map(OsString::from),
        );
        compile.push(code.clone().into());
        self.toolchain.compile(name, &compile)?;
        cache::write_new(&code, fuse(&fs_err::read_to_string(&code)?).as_bytes())?;
        let mut finish: Vec<OsString> = self.code_flags();
        finish.extend(["-x".into(), "ir".into(), code.into()]);
        link(&mut finish);
        self.toolchain.compile(name, &finish)
    }

    /// Flags for a kernel's intermediate code: those for its source, except language options.
    fn code_flags(&self) -> Vec<OsString> {
        self.flags()
            .iter()
            .filter(|flag| !flag.starts_with("-std="))
            .map(OsString::from)
            .collect()
    }
}

pub(crate) fn missing(library: &Library, path: &Path, name: &str) -> Error {
    Error::NoKernel {
        name: name.to_owned(),
        library: path.to_owned(),
        count: library.names().len(),
    }
}

/// Makes each multiply-add one operation with one rounding.
fn fuse(code: &str) -> String {
    const LOOSE: &str = "@llvm.fmuladd.";
    const FUSED: &str = "@llvm.fma.";
    let declared = |line: &str| line.starts_with("declare ");
    let name = |line: &str| {
        line.split_once(FUSED)
            .and_then(|(_, rest)| Some(rest.split_once('(')?.0.to_owned()))
    };
    let known: Vec<_> = code
        .lines()
        .filter(|line| declared(line))
        .filter_map(name)
        .collect();
    let mut fused = String::with_capacity(code.len());
    for line in code.lines() {
        let replaced = line.replace(LOOSE, FUSED);
        let repeats = declared(line)
            && line.contains(LOOSE)
            && name(&replaced).is_some_and(|name| known.contains(&name));
        if !repeats {
            fused.push_str(&replaced);
            fused.push('\n');
        }
    }
    fused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuses_and_declares_once() {
        let code = "  %1 = call float @llvm.fmuladd.f32(float %a, float %b, float %c)\n\
                    declare float @llvm.fmuladd.f32(float, float, float) #1\n\
                    declare half @llvm.fmuladd.f16(half, half, half) #1\n\
                    declare float @llvm.fma.f32(float, float, float) #1\n";
        assert_eq!(
            fuse(code),
            "  %1 = call float @llvm.fma.f32(float %a, float %b, float %c)\n\
             declare half @llvm.fma.f16(half, half, half) #1\n\
             declare float @llvm.fma.f32(float, float, float) #1\n"
        );
    }
}
