//! Reads the project's text and TOML files, and git ids.

use std::io::{ErrorKind, Read as _};

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::Oid;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// The size limit of a file that people write: a patch, `mlx.toml`.
const LARGEST: u64 = 16 << 20;

/// Reads a TOML file; errors have the line.
pub(crate) fn toml<T: DeserializeOwned>(file: &Utf8Path) -> Result<T> {
    toml_text(file, &text(file)?)
}

/// Reads a text file that people write.
pub(crate) fn text(path: &Utf8Path) -> Result<String> {
    String::from_utf8(short(path)?).map_err(|_| {
        Error::source(
            path.as_str(),
            "expected text, found bytes that are not UTF-8",
        )
    })
}

/// Reads a file that people write.
pub(crate) fn short(path: &Utf8Path) -> Result<Vec<u8>> {
    at_most(path, LARGEST)
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// It is larger, or not a file: a pipe or a device might block or never end.
pub(crate) fn at_most(path: &Utf8Path, most: u64) -> Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    let too_large = || Error::TooLarge {
        origin: path.to_string(),
        most,
        unit: "bytes",
    };
    if metadata.is_dir() {
        return Err(Error::source(
            path.as_str(),
            "expected a file, found a folder",
        ));
    }
    if !metadata.is_file() {
        return Err(Error::source(
            path.as_str(),
            "expected a file, found a pipe or a device",
        ));
    }
    if metadata.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(most + 1)
        .read_to_end(&mut bytes)?;
    // It may grow, or not know its length.
    if bytes.len() as u64 > most {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Whether anything is there, including a link without a target.
///
/// # Errors
/// It cannot be examined.
pub(crate) fn is_there(path: &Utf8Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Parses the text of a TOML file; `file` is its name in errors.
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

/// A complete object id; libgit2 by itself would also accept an abbreviated one.
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

    /// For an optional id.
    pub(crate) mod option {
        use git2::Oid;
        use serde::{Deserializer, Serializer};

        pub(crate) fn serialize<S: Serializer>(
            oid: &Option<Oid>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match oid {
                Some(oid) => super::serialize(oid, serializer),
                None => serializer.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Oid>, D::Error> {
            super::deserialize(deserializer).map(Some)
        }
    }
}
