//! Checks what running a kernel on the host cannot show: address spaces.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use rayon::prelude::*;

use crate::compile::{Compiler, Options, missing};
use crate::library::Library;
use crate::parse::Source;
use crate::{Error, cache, lower};

impl Compiler {
    /// Compiles kernels with Metal's address spaces as spaces of their own and
    /// reports what the compiler refuses: a `device`, `constant` or
    /// `threadgroup` that is missing or wrong.
    ///
    /// # Errors
    /// Where the library cannot be read or lacks a name.
    pub fn check(&self, path: &Path, names: &[String]) -> Result<Vec<Finding>, Error> {
        let library = Library::read(path)?;
        let toolchain = self.toolchain.clone().with_flags(["-DMTLSIM_CHECK"]);
        let checker = Compiler::new(toolchain, Options::default());
        checker.precompiled_shim()?;
        let found: Result<Vec<_>, Error> = names
            .par_iter()
            .map(|name| checker.check_one(&library, path, name))
            .collect();
        Ok(found?.into_iter().flatten().collect())
    }

    fn check_one(&self, library: &Library, path: &Path, name: &str) -> Result<Vec<Finding>, Error> {
        let entry = library
            .entry(name)
            .ok_or_else(|| missing(library, path, name))?;
        let source = &library.sources()[entry.source];
        let parsed = Source::parse(&source.text)?;
        let text = lower::for_check(&parsed, &source.file, name, &entry.expression)?;
        let cache = self.toolchain.cache();
        let clean = cache.join(format!("checked-{}", self.key(&[&text])));
        if clean.is_file() {
            return Ok(Vec::new());
        }
        let shim = self.toolchain.shim()?;
        let prelude = self.precompiled_shim()?;
        let scratch = cache::scratch(cache)?;
        let file = scratch.path().join("kernel.cpp");
        cache::write_new(&file, text.as_bytes())?;
        let mut arguments = self.arguments(&shim);
        arguments.extend(["-fsyntax-only", "-ferror-limit=0", "-include-pch"].map(OsString::from));
        arguments.extend([prelude.into(), file.into()]);
        match self.toolchain.compile(name, &arguments) {
            Ok(()) => {
                cache::publish_file(cache, &clean, |made| Ok(fs_err::write(made, "")?))?;
                Ok(Vec::new())
            }
            Err(Error::Compile { diagnostics, .. }) => Ok(findings(name, &diagnostics)),
            Err(error) => Err(error),
        }
    }
}

/// Something that a check found in a kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Host name of the kernel.
    pub kernel: String,
    /// Source file, as the library's maker named it.
    pub file: String,
    /// Line of that file.
    pub line: u32,
    /// The compiler's words.
    pub message: String,
}

/// The errors among a compiler's diagnostics: `file:line:column: error: text`.
fn findings(kernel: &str, diagnostics: &str) -> Vec<Finding> {
    diagnostics
        .lines()
        .filter_map(|line| {
            let (place, message) = line.split_once(": error: ")?;
            let mut parts = place.rsplitn(3, ':');
            let (_column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
            Some(Finding {
                kernel: kernel.to_owned(),
                file: file.to_owned(),
                line: line.parse().ok()?,
                message: message.to_owned(),
            })
        })
        .collect()
}

/// Findings in stock MLX that are the checker's own limits: C++ has no
/// assignment between two objects of one class in different address spaces,
/// Metal has.
const BASELINE: &str = include_str!("../msl/check-baseline.txt");

/// Findings, sorted by whether the baseline knows them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Errors to be mended.
    pub new: Vec<Finding>,
    /// Findings that the baseline has.
    pub known: usize,
    /// Lines of the baseline that nothing matched.
    pub stale: Vec<String>,
}

impl Verdict {
    /// Compares findings with the baseline. Places are told apart by file and
    /// message, not by line.
    pub fn of(findings: Vec<Finding>) -> Self {
        let baseline: BTreeSet<&str> = BASELINE
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let mut matched = BTreeSet::new();
        let mut verdict = Verdict::default();
        for finding in findings {
            match baseline.get(finding.signature().as_str()) {
                Some(line) => {
                    matched.insert(*line);
                    verdict.known += 1;
                }
                None => verdict.new.push(finding),
            }
        }
        verdict.stale = baseline
            .difference(&matched)
            .map(|&line| line.to_owned())
            .collect();
        verdict
    }
}

impl Finding {
    /// `file: message`, with the file below MLX's kernels.
    fn signature(&self) -> String {
        let file = self
            .file
            .rsplit_once("metal/kernels/")
            .map_or(self.file.as_str(), |(_, file)| file);
        format!("{file}: {}", self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(file: &str, message: &str) -> Finding {
        findings("k", &format!("{file}:77:5: error: {message}\n note: x\n")).remove(0)
    }

    #[test]
    fn the_baseline_forgives_what_it_names_and_no_more() {
        let known = finding(
            "/a/mlx/backend/metal/kernels/steel/gemm/loader.h",
            "no viable overloaded '='",
        );
        let new = finding(
            "/a/mlx/backend/metal/kernels/steel/gemm/mma.h",
            "no viable overloaded '='",
        );
        let verdict = Verdict::of(vec![known, new.clone()]);
        assert_eq!((verdict.known, verdict.new), (1, vec![new]));
        assert!(
            !verdict
                .stale
                .iter()
                .any(|line| line.starts_with("steel/gemm/loader.h"))
        );
        assert!(
            verdict
                .stale
                .iter()
                .any(|line| line.starts_with("quantized.h"))
        );
    }
}
