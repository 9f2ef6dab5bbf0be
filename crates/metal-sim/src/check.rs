//! Checks what running a kernel on the host cannot show: what is not Metal, and
//! address spaces.

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
    /// Examines kernels as Metal: what the specification excludes, and what the
    /// compiler refuses with Metal's address spaces as spaces of their own: a
    /// `device`, `constant` or `threadgroup` that is missing or wrong.
    ///
    /// # Errors
    /// Where the library cannot be read or lacks a name.
    pub fn check(&self, path: &Path, names: &[String]) -> Result<Vec<Finding>, Error> {
        self.check_telling(path, names, &|_| {})
    }

    /// The same; `tell` hears how many of the kernels are done.
    ///
    /// # Errors
    /// As [`Compiler::check`].
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

    /// Examines kernels of one source together, and each on its own if
    /// something is found.
    fn check_group(
        &self,
        checker: &Compiler,
        library: &Library,
        kernels: &[(&str, &Entry)],
    ) -> Result<Vec<Finding>, Error> {
        let Some((first, entry)) = kernels.first() else {
            return Ok(Vec::new());
        };
        // What is not Metal in the source as a whole.
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

/// Kernels that are examined together: reading a source takes longer than one
/// more instantiation of it.
const TOGETHER: usize = 16;

/// Something that a check found in a kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Host name of the kernel; empty if it is of the source as a whole.
    pub kernel: String,
    /// Source file, as the library's maker named it.
    pub file: String,
    /// Line of that file.
    pub line: u32,
    /// Column of the preprocessed line.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// Section of the Metal Shading Language Specification, version 4, that
    /// says so; empty if it is an error of C++ as well.
    pub section: String,
    /// The text of the line; empty where it is not known.
    pub excerpt: String,
}

impl Finding {
    /// Something at a byte of a preprocessed text.
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

/// As a compiler shows an error.
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
