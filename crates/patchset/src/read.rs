//! Reads TOML files and git's ids, for all that lies in a project.

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::Oid;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Reads a TOML file; errors carry the line.
pub(crate) fn toml<T: DeserializeOwned>(file: &Utf8Path) -> Result<T> {
    toml_text(file, &fs::read_to_string(file)?)
}

/// Reads the text of a TOML file; `file` names it in errors.
pub(crate) fn toml_text<T: DeserializeOwned>(file: &Utf8Path, text: &str) -> Result<T> {
    ::toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        Error::Format {
            file: file_name(file),
            line: 1 + text[..start].matches('\n').count(),
            message: error.message().to_owned(),
        }
    })
}

fn file_name(file: &Utf8Path) -> Utf8PathBuf {
    file.file_name()
        .map_or_else(|| file.to_owned(), Utf8PathBuf::from)
}

/// A whole object id; libgit2 alone would also take a part of one.
pub(crate) fn oid(text: &str) -> Result<Oid, String> {
    let expected = || format!("expected a git id of 40 hexadecimal digits, found {text:?}");
    if text.len() != 40 {
        return Err(expected());
    }
    Oid::from_str(text).map_err(|_| expected())
}

/// Object ids as 40 hexadecimal digits.
pub(crate) mod hex {
    use git2::Oid;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(oid: &Oid, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(oid)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Oid, D::Error> {
        super::oid(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
