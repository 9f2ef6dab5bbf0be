//! How the files of two trees differ.

use std::fmt;

/// How the files of two trees differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// Expected, not there.
    pub missing: Vec<String>,
    /// There, not expected.
    pub added: Vec<String>,
    /// There with another content.
    pub changed: Vec<String>,
    /// There with the same content, but another mode.
    pub modes: Vec<String>,
}

impl Difference {
    /// How many files differ.
    pub fn len(&self) -> usize {
        self.lists().iter().map(|(_, paths)| paths.len()).sum()
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All paths.
    pub fn paths(&self) -> Vec<String> {
        self.lists()
            .iter()
            .flat_map(|(_, paths)| paths.iter().cloned())
            .collect()
    }

    /// Leaves only the paths that `keep` wants.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        for paths in [
            &mut self.missing,
            &mut self.added,
            &mut self.changed,
            &mut self.modes,
        ] {
            paths.retain(|path| keep(path));
        }
    }

    fn lists(&self) -> [(&'static str, &Vec<String>); 4] {
        let Self {
            missing,
            added,
            changed,
            modes,
        } = self;
        [
            ("missing", missing),
            ("added", added),
            ("changed", changed),
            ("with another mode", modes),
        ]
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        let mut separator = "";
        for (what, paths) in self.lists() {
            if paths.is_empty() {
                continue;
            }
            write!(
                f,
                "{separator}{} {what}: {}",
                paths.len(),
                paths[..paths.len().min(SHOWN)].join(", ")
            )?;
            if paths.len() > SHOWN {
                write!(f, ", …")?;
            }
            separator = "; ";
        }
        Ok(())
    }
}
