//! How the files of two trees differ.

use std::fmt;

/// How the files of two trees differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// Expected but missing.
    pub missing: Vec<String>,
    /// Present but not expected.
    pub added: Vec<String>,
    /// With different content.
    pub changed: Vec<String>,
    /// With the same content but a different mode.
    pub modes: Vec<String>,
}

impl Difference {
    /// The number of differing files.
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

    /// Keeps only the paths that `keep` accepts.
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
