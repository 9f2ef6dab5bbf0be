//! Remembers how people resolved conflicts: `target/resolutions`, one file for each. They are used as in git's rerere:
//! the text with markers is the common ancestor of the resolution and the new conflict.

use camino::Utf8PathBuf;
use git2::{MergeFileInput, MergeFileOptions, ObjectType, Oid};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::place::disk;
use crate::place::workspace::Workspace;
use crate::read;

/// The resolutions; empty if there is no folder.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    folder: Option<Utf8PathBuf>,
}

/// One resolution.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decision {
    pub(crate) patch: String,
    pub(crate) path: String,
    /// The text with markers, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<String>,
    /// The resolved text; `None` if the file is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
}

impl Memory {
    /// The memory of a checkout.
    pub(crate) fn of(workspace: &Workspace) -> Self {
        Self {
            folder: Some(workspace.root().join("target/resolutions")),
        }
    }

    /// The name under which a conflict is remembered: a hash of `parts`.
    pub(crate) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> Result<String> {
        let mut text = String::new();
        for part in parts {
            text += &format!("{} {part}\n", part.len());
        }
        Ok(Oid::hash_object(ObjectType::Blob, text.as_bytes())?.to_string())
    }

    /// The resolution, if there is one; a file that cannot be read is ignored.
    pub(crate) fn recall(&self, key: &str) -> Option<Decision> {
        let file = self.folder.as_ref()?.join(format!("{key}.toml"));
        file.is_file().then(|| read::toml(&file).ok())?
    }

    /// Remembers a resolution; replaces an earlier one.
    pub(crate) fn keep(&self, key: &str, decision: &Decision) -> Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let text = toml::to_string(decision).map_err(|error| Error::source(key, error))?;
        disk::create_dir_all(folder)?;
        disk::replace(&folder.join(format!("{key}.toml")), text.as_bytes())
    }
}

impl Decision {
    /// Applies the resolution to a text with the same conflicts, whatever else differs; `None` if it does not fit.
    pub(crate) fn replay(&self, now: &str) -> Option<String> {
        let (before, after) = (self.before.as_ref()?, self.after.as_ref()?);
        let (mut base, mut ours, mut theirs) = (
            MergeFileInput::new(),
            MergeFileInput::new(),
            MergeFileInput::new(),
        );
        base.content(before.as_bytes());
        ours.content(now.as_bytes());
        theirs.content(after.as_bytes());
        let mut options = MergeFileOptions::new();
        let merged = git2::merge_file(&base, &ours, &theirs, Some(&mut options)).ok()?;
        let text = String::from_utf8(merged.content().to_vec()).ok()?;
        merged.is_automergeable().then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_made_again_if_the_same_lines_meet() {
        let marked = |lines: &str| {
            format!("{lines}<<<<<<< a\nx\n||||||| o\ny\n=======\nz\n>>>>>>> b\nend\n")
        };
        let decision = Decision {
            patch: "p".into(),
            path: "f".into(),
            before: Some(marked("one\n")),
            after: Some("one\nxz\nend\n".into()),
        };
        let now = marked("zero\none\n");
        assert_eq!(decision.replay(&now).unwrap(), "zero\none\nxz\nend\n");
        let other = now.replace("z\n>", "zz\n>");
        assert_eq!(decision.replay(&other), None);
    }

    #[test]
    fn what_is_kept_is_recalled_and_what_does_not_read_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = camino::Utf8Path::from_path(folder.path()).unwrap();
        let memory = Memory::of(&Workspace::at(root));
        let key = Memory::key(["a", "b"]).unwrap();
        assert_ne!(key, Memory::key(["ab", ""]).unwrap());
        assert!(memory.recall(&key).is_none());
        let text = "a\r\n<<<<<<<\n'''x\"\"\"\\\n".to_owned();
        let decision = Decision {
            patch: "p".into(),
            path: "f".into(),
            before: None,
            after: Some(text.clone()),
        };
        memory.keep(&key, &decision).unwrap();
        assert_eq!(memory.recall(&key).unwrap().after, Some(text));
        let file = root.join(format!("target/resolutions/{key}.toml"));
        fs_err::write(file, "after = ").unwrap();
        assert!(memory.recall(&key).is_none());
    }
}
