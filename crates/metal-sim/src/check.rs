//! Checks that running a kernel on the host cannot make: whether it is valid Metal, and whether its
//! address spaces are right.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rayon::prelude::*;

use crate::compile::{Compiler, missing};
use crate::lexer::locate;
use crate::library::{Entry, Library};
use crate::parse::Source;
use crate::{Error, cache, language, lower};

impl Compiler {
    /// Checks kernels as Metal: reports what the specification excludes, and what the compiler
    /// refuses when Metal's address spaces are distinct types (a missing or wrong `device`,
    /// `constant` or `threadgroup`).
    ///
    /// # Errors
    /// If the library cannot be read or lacks a name.
    pub fn check(&self, path: &Path, names: &[String]) -> Result<Vec<Finding>, Error> {
        self.check_telling(path, names, &|_| {})
    }

    /// Like [`Compiler::check`]; calls `tell` with the number of kernels checked so far.
    ///
    /// # Errors
    /// As for [`Compiler::check`].
    pub fn check_telling(
        &self,
        path: &Path,
        names: &[String],
        tell: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<Finding>, Error> {
        let library = Library::read(path)?;
        let checker = language::checker(&self.toolchain);
        checker.precompiled_shim()?;
        let mut of_source: BTreeMap<usize, Vec<(&str, &Entry)>> = BTreeMap::new();
        for name in names {
            let entry = library
                .entry(name)
                .ok_or_else(|| missing(&library, path, name))?;
            of_source
                .entry(entry.source)
                .or_default()
                .push((name, entry));
        }
        let groups: Vec<_> = of_source
            .values()
            .flat_map(|kernels| kernels.chunks(TOGETHER))
            .collect();
        let done = AtomicUsize::new(0);
        let found: Result<Vec<_>, Error> = groups
            .par_iter()
            .map(|kernels| {
                let found = self.check_group(&checker, &library, kernels);
                tell(done.fetch_add(kernels.len(), Relaxed) + kernels.len());
                found
            })
            .collect();
        Ok(found?.into_iter().flatten().collect())
    }

    /// Checks kernels of one source together, and then each on its own if anything is found.
    fn check_group(
        &self,
        checker: &Compiler,
        library: &Library,
        kernels: &[(&str, &Entry)],
    ) -> Result<Vec<Finding>, Error> {
        let Some((first, entry)) = kernels.first() else {
            return Ok(Vec::new());
        };
        // First the source as a whole.
        match language::accept(&self.toolchain, library, entry.source) {
            Ok(()) => {}
            Err(Error::Refused(found)) => {
                return Ok(found.into_iter().map(|finding| finding.of(first)).collect());
            }
            Err(error) => return Err(error),
        }
        let source = &library.sources()[entry.source];
        let cache = self.toolchain.cache();
        let mut parts = vec!["check", language::RECIPE, &source.text];
        parts.extend(kernels.iter().map(|(_, entry)| entry.expression.as_str()));
        let key = checker.key(&parts);
        let clean = cache::Entry::new(cache, "checked", &key, "clean");
        if clean.find().is_some() {
            return Ok(Vec::new());
        }
        let parsed = Source::parse(&source.text)?;
        let chosen = kernels
            .iter()
            .map(|(name, entry)| {
                let kernel = lower::find(&parsed, &source.file, name, &entry.expression)?;
                Ok((kernel, entry.expression.as_str()))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let examination = language::examine(checker, &parsed, &chosen, false)?;
        if examination.is_clean() {
            clean.mark()?;
            return Ok(Vec::new());
        }
        if kernels.len() > 1 {
            let each = kernels
                .iter()
                .map(|kernel| self.check_group(checker, library, std::slice::from_ref(kernel)));
            return Ok(each.collect::<Result<Vec<_>, _>>()?.concat());
        }
        let found = examination.findings(&source.text);
        Ok(found.into_iter().map(|finding| finding.of(first)).collect())
    }
}

/// Number of kernels checked together: parsing a source takes longer than one more instantiation of
/// it.
const TOGETHER: usize = 16;

/// An error that a check found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Host name of the kernel; empty if the error concerns the whole source.
    pub kernel: String,
    /// Source file, with the name recorded in the library.
    pub file: String,
    pub line: u32,
    /// Column in the preprocessed line.
    pub column: u32,
    pub message: String,
    /// Section of the Metal Shading Language Specification, version 4, that forbids it; empty if it
    /// is an error in C++ too.
    pub section: String,
    /// The text of the line; empty if unknown.
    pub excerpt: String,
}

impl Finding {
    /// A finding at a byte of a preprocessed text.
    pub(crate) fn at(text: &str, at: usize, section: &str, message: String) -> Self {
        let (file, line, column) = locate(text, at);
        let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let excerpt = text[start..].lines().next().unwrap_or_default();
        Finding {
            excerpt: excerpt.trim().to_owned(),
            kernel: String::new(),
            file: file.unwrap_or_else(|| "<text>".to_owned()),
            line: line.try_into().unwrap_or(u32::MAX),
            column: column.try_into().unwrap_or(u32::MAX),
            message,
            section: section.to_owned(),
        }
    }

    fn of(mut self, kernel: &str) -> Self {
        kernel.clone_into(&mut self.kernel);
        self
    }
}

/// In the format of a compiler error.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            file,
            line,
            column,
            message,
            section,
            ..
        } = self;
        write!(f, "{file}:{line}:{column}: error: {message}")?;
        if !section.is_empty() {
            write!(f, " (MSL 4.0, section {section})")?;
        }
        Ok(())
    }
}

/// Findings in stock MLX that are limits of this checker: C++ cannot assign an object to one of the
/// same class in another address space; Metal can.
const BASELINE: &str = include_str!("../msl/check-baseline.txt");

/// Findings, compared with the baseline.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Findings that are not in the baseline.
    pub new: Vec<Finding>,
    /// Number of findings that are in the baseline.
    pub known: usize,
    /// Lines of the baseline that no finding matches.
    pub stale: Vec<String>,
}

impl Verdict {
    /// Compares findings with the baseline, by file and message; lines are ignored.
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
    /// `file: message`, with the file relative to MLX's kernels.
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
        let text = format!("# 77 \"{file}\"\nint x;\n");
        Finding::at(&text, text.len() - 2, "", message.to_owned())
    }

    #[test]
    fn the_baseline_forgives_what_it_names_and_no_more() {
        let message = "binding reference of type 'constant int const' to value of type 'const int' changes address space";
        let known = finding("/a/mlx/backend/metal/kernels/sort.h", message);
        let new = finding("/a/mlx/backend/metal/kernels/scan.h", message);
        let verdict = Verdict::of(vec![known, new.clone()]);
        assert_eq!((verdict.known, verdict.new), (1, vec![new]));
        assert_eq!(verdict.stale, [] as [&str; 0]);
        let stale = Verdict::of(Vec::new()).stale;
        assert!(
            stale.iter().any(|line| line.starts_with("sort.h")),
            "{stale:?}"
        );
    }
}
