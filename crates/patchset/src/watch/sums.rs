//! The watched definitions that the patches were checked against, as checksums of their tokens: `patches/watched.toml`.
//! It is written when a person confirms that the patches still do what they claim; a bump does not change it.

use std::collections::BTreeMap;

use git2::{Oid, Repository};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::definitions::{definitions, names, text_of};
use crate::error::{Error, Result};
use crate::model::manifest::Watch;
use crate::place::journal;
use crate::place::workspace::Workspace;
use crate::read;
use crate::tree::{File, Mode};
use crate::work::renames::Renames;

const FILE: &str = "watched.toml";
const PREAMBLE: &str = "\
# The upstream definitions that the patches were last checked against, as sums of their tokens. mlx.toml names them.
# Written by `cargo xtask check watch --accept`.

";

/// By file and name, the checksum of all definitions of that name.
pub(crate) type Definitions = BTreeMap<String, BTreeMap<String, String>>;

/// The file's content.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sums {
    /// The MLX version of the definitions.
    pub(crate) version: String,
    pub(crate) definitions: Definitions,
}

impl Sums {
    pub(crate) fn load(workspace: &Workspace) -> Result<Self> {
        let file = workspace.patches().join(FILE);
        if !file.exists() {
            return Err(Error::WatchedMissing);
        }
        read::toml(&file)
    }

    fn to_text(&self) -> Result<String> {
        let text = toml::to_string(self).map_err(|error| Error::source(FILE, error))?;
        Ok(format!("{PREAMBLE}{text}"))
    }

    pub(crate) fn save(&self, workspace: &Workspace) -> Result<()> {
        let bytes = self.to_text()?.into_bytes();
        let mode = Mode::Regular;
        let change = (format!("patches/{FILE}"), Some(File { mode, bytes }));
        journal::commit(workspace, &[change].into())
    }

    /// Each file of the list with definitions that changed, disappeared or are new.
    pub(crate) fn compare(&self, found: &Definitions, list: &[Watch]) -> Vec<Error> {
        let of = |all: &Definitions, file: &str, name: &str| all.get(file)?.get(name).cloned();
        let changed = |entry: &Watch| {
            let file = entry.file.as_str();
            let differs = |name: &&str| of(&self.definitions, file, name) != of(found, file, name);
            let changed = names(entry).map(|(_, name)| name).filter(differs);
            changed.map(str::to_owned).collect::<Vec<_>>()
        };
        list.iter()
            .map(|entry| (entry, changed(entry)))
            .filter(|(_, names)| !names.is_empty())
            .map(|(entry, names)| Error::WatchedChanged {
                file: entry.file.clone(),
                names,
                version: self.version.clone(),
                followed_by: entry.followed_by.clone(),
            })
            .collect()
    }
}

/// The file's text with upstream's current paths; `None` if nothing changes.
pub(crate) fn follow(workspace: &Workspace, renames: &Renames) -> Result<Option<String>> {
    if !workspace.patches().join(FILE).exists() {
        return Ok(None);
    }
    let old = Sums::load(workspace)?;
    let followed = old.definitions.iter();
    let followed = followed.map(|(file, sums)| (renames.new_path(file).to_owned(), sums.clone()));
    let new = Sums {
        version: old.version.clone(),
        definitions: followed.collect(),
    };
    (new != old).then(|| new.to_text()).transpose()
}

/// The checksums of the watched definitions in a tree. A name without a definition has none.
pub(crate) fn sums(repo: &Repository, tree: Oid, list: &[Watch]) -> Result<Definitions> {
    let mut sums = Definitions::new();
    for entry in list {
        let text = text_of(repo, tree, &entry.file)?.unwrap_or_default();
        let of_file = sums.entry(entry.file.clone()).or_default();
        for (kind, name) in names(entry) {
            let found = definitions(kind, name, &text)
                .map_err(|message| Error::source(entry.file.as_str(), message))?;
            if !found.is_empty() {
                let tokens = found.iter().flat_map(|one| &one.tokens);
                of_file.insert(name.to_owned(), sum(tokens));
            }
        }
    }
    Ok(sums)
}

fn sum<'a>(tokens: impl Iterator<Item = &'a String>) -> String {
    let mut hash = Sha256::new();
    for token in tokens {
        hash.update(token);
        hash.update([0]);
    }
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
