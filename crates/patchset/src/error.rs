//! One error type for the engine. A message reports what was expected and what was found; the command line adds the
//! remedy.

use std::fmt;
use std::io;

use camino::Utf8PathBuf;
use git2::Oid;

use crate::tree::difference::Difference;

/// The engine's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// All errors of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file-system call failed; the message names the file.
    #[error(transparent)]
    Io(#[from] io::Error),

    /// libgit2 failed.
    #[error("git objects: {}", .0.message())]
    Git(#[from] git2::Error),

    /// No `mlx.toml` in this folder or above it.
    #[error("no mlx.toml in {0} or a folder above it")]
    NoWorkspace(Utf8PathBuf),

    /// `mlx.toml` or `mlx.lock` cannot be parsed.
    #[error("{file}:{line}: {message}")]
    Format {
        file: Utf8PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong and what was expected.
        message: String,
    },

    /// A program was not found.
    #[error("`{0}` could not be started: the program was not found")]
    NoProgram(String),

    /// A program could not be started or failed.
    #[error("`{command}` {outcome}{}", indented(.stderr))]
    Command {
        /// The command line.
        command: String,
        /// How the command ended.
        outcome: String,
        /// The end of its stderr.
        stderr: String,
    },

    /// No source provides the pinned files.
    #[error("no source provides MLX {version} with tree {expected}:{}", list(.failures))]
    Sources {
        /// The pinned version.
        version: String,
        /// The expected tree id.
        expected: Oid,
        /// Every source that was tried, and why it failed.
        failures: Vec<SourceFailure>,
    },

    /// No source provides a build input (fmt, json, metal-cpp).
    #[error("no source provides the build input {name}:{}", list(.failures))]
    Input {
        /// The name in `mlx.toml`.
        name: String,
        /// Every source that was tried, and why it failed.
        failures: Vec<SourceFailure>,
    },

    /// A version, tag or commit that `mlx.toml` does not pin.
    #[error("mlx.toml does not pin MLX {wanted}; it has {}", .known.join(", "))]
    UnknownPin {
        /// What was requested.
        wanted: String,
        /// The versions in `mlx.toml`.
        known: Vec<String>,
    },

    /// A source has other files than the pinned ones.
    #[error("expected tree {expected}, found {found}{}", file_by_file(.difference))]
    TreeMismatch {
        /// The pinned tree id.
        expected: Oid,
        /// The tree id of the files.
        found: Oid,
        /// The difference file by file, if there is a reference to compare with.
        difference: Option<Box<Difference>>,
    },

    /// A file does not have the pinned checksum.
    #[error("{file}: expected sha256 {expected}, found {found}")]
    Sum {
        file: String,
        /// The pinned checksum, hexadecimal.
        expected: String,
        /// The file's checksum, hexadecimal.
        found: String,
    },

    /// A source cannot be read or has invalid content.
    #[error("{origin}: {message}")]
    Source {
        /// The archive, folder, repository or crate.
        origin: String,
        /// What is wrong with it.
        message: String,
    },

    /// A source is larger than the limit.
    #[error("{origin}: it has more than {most} {unit}, which is the limit")]
    TooLarge {
        /// The archive, folder, file or tree.
        origin: String,
        /// The limit.
        most: u64,
        /// The unit of the limit.
        unit: &'static str,
    },

    /// A local git repository that cannot be used.
    #[error("{path}: {fault}")]
    Repository {
        /// The repository.
        path: Utf8PathBuf,
        /// The reason.
        fault: RepositoryFault,
    },

    /// `--accept-tree` for a pin whose tree is known to be upstream's.
    #[error(
        "mlx.toml marks tree {0} as that of upstream's commit; only a reconstructed tree can be replaced"
    )]
    NotReplaceable(Oid),

    /// A path that leads out of the tree, or that some file systems cannot store.
    #[error("{origin}: unsafe path {path:?}: {why}")]
    UnsafePath {
        /// The archive, patch or folder that has it.
        origin: String,
        path: String,
        /// The rule that it breaks.
        why: String,
    },

    /// A patch is malformed or does not apply.
    #[error("patches/{patch}.patch: {reason}")]
    Patch {
        /// The name in the series.
        patch: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A file with Windows line ends.
    #[error("{0}: it has CRLF line ends; expected LF")]
    LineEnds(String),

    /// `patches/series`, the patch files and `patches/files` are inconsistent.
    #[error("patches/: {}", .0.join("; "))]
    Series(Vec<String>),

    /// The lock was made from other patches or another pin.
    #[error("mlx.lock does not match mlx.toml and patches/: {}", .0.join("; "))]
    LockDiffers(Vec<String>),

    /// The patches change more upstream lines than `mlx.toml` allows.
    #[error("the patches change {changed} upstream lines, but the budget in mlx.toml is {most}")]
    OverBudget {
        /// Lines added plus lines removed.
        changed: usize,
        /// The limit.
        most: usize,
    },

    /// A patch that an export would write differently.
    #[error("patches/{0}.patch is not in its canonical form")]
    NotCanonical(String),

    /// A line of the overlay that is not formatted like MLX's.
    #[error("{path}:{line}: not formatted as by MLX's clang-format")]
    Layout {
        /// The file, in MLX's tree.
        path: String,
        /// The line, counted from 1.
        line: usize,
    },

    /// Watched definitions have changed since the patches were checked against them.
    #[error(
        "{file}: {} {} from MLX {version}{}",
        .names.join(", "),
        if .names.len() == 1 { "differs" } else { "differ" },
        .followed_by.as_ref().map(|file| format!(", which {file} follows")).unwrap_or_default()
    )]
    WatchedChanged {
        /// The file, in MLX's tree.
        file: String,
        names: Vec<String>,
        /// The MLX that the patches were checked against.
        version: String,
        /// The file of the overlay that repeats the definitions.
        followed_by: Option<String>,
    },

    /// The watched definitions have no checksums yet.
    #[error("patches/watched.toml is missing, but mlx.toml watches upstream definitions")]
    WatchedMissing,

    /// There is no lock yet.
    #[error("mlx.lock is missing")]
    LockMissing,

    /// Files of `vendor/mlx` were edited by hand.
    #[error("vendor/mlx was edited by hand: {}", edits(.0))]
    Tampered(Box<Difference>),

    /// A file or a link is in the place of `vendor/mlx`.
    #[error("expected a folder at {0}, found a file or a link")]
    NotAFolder(Utf8PathBuf),

    /// `--check`: the overlay is not applied.
    #[error("vendor/mlx is {0}, expected applied")]
    NotApplied(String),

    /// No source has the pin that a bump asks for.
    #[error("no source provides MLX {wanted}; mlx.toml has {}{}", .known.join(", "), .reasons.iter().map(|reason| format!("\n  - {reason}")).collect::<String>())]
    NoSuchPin {
        /// What was requested.
        wanted: String,
        /// The pins of `mlx.toml`.
        known: Vec<String>,
        /// The error of each repository.
        reasons: Vec<String>,
    },

    /// A bump waits for a person.
    #[error("a bump waits for a decision on {patch} in {worktree}")]
    BumpPending {
        /// The patch that does not fit.
        patch: String,
        /// Where to resolve it.
        worktree: Utf8PathBuf,
    },

    /// There is no bump to continue or to abort.
    #[error("no bump waits")]
    NoBump,

    /// A bump has no earlier step to go back to.
    #[error("no conflict was resolved before {0}, the patch that waits")]
    NothingDecided(String),

    /// The worktree of a bump has work that going back would lose.
    #[error("{worktree} has unfinished work on {patch} that would be lost")]
    BumpEdited {
        /// The patch that waits.
        patch: String,
        worktree: Utf8PathBuf,
    },

    /// The cache was cleared while a bump waited.
    #[error("the files of the new pin are no longer in target/overlay")]
    BumpCleared,

    /// The project changed while a bump waited.
    #[error(
        "mlx.toml, mlx.lock or patches/ changed since the bump stopped, so it would undo that change"
    )]
    BumpStale,

    #[error("there is no patch {wanted}; the series has {}", .known.join(", "))]
    NoSuchPatch {
        /// What was requested.
        wanted: String,
        /// The patches of the series.
        known: Vec<String>,
    },

    /// No patches are laid out for editing.
    #[error("no patches are laid out")]
    NoEdit,

    /// The worktree has work that was not exported.
    #[error("{0} has work that was not exported")]
    EditOpen(Utf8PathBuf),

    /// The project changed since the patches were laid out.
    #[error(
        "mlx.toml, mlx.lock or patches/ changed since the patches were laid out, so exporting would undo that change"
    )]
    EditStale,

    /// The commits of the worktree cannot be turned into patches.
    #[error("target/patches/worktree: {0}")]
    Edit(String),

    /// A patch that comes after the edited one has no changes left.
    #[error("target/patches/worktree: no changes are left of {0}, which comes later")]
    LaterEmpty(String),

    /// A patch that comes after the edited one no longer fits.
    #[error("{patch}, which comes later, no longer fits in {}; the conflict is laid out in {worktree}", .paths.join(", "))]
    LaterConflict {
        patch: String,
        /// The files in which it does not fit.
        paths: Vec<String>,
        /// Where to resolve it.
        worktree: Utf8PathBuf,
    },

    /// The worktree of a bump is not ready.
    #[error("{worktree} is not resolved yet:{}", .faults.iter().map(|fault| format!("\n  - {fault}")).collect::<String>())]
    Unresolved {
        worktree: Utf8PathBuf,
        /// What remains to be done.
        faults: Vec<String>,
    },
}

impl Error {
    /// An error reading `origin`.
    pub(crate) fn source(origin: impl Into<String>, message: impl fmt::Display) -> Self {
        Self::Source {
            origin: origin.into(),
            message: message.to_string(),
        }
    }

    /// An error of the patch `patch`.
    pub(crate) fn patch(patch: &str, reason: impl fmt::Display) -> Self {
        Self::Patch {
            patch: patch.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// Why a git repository cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RepositoryFault {
    /// It cannot be opened.
    #[error("it is a git repository, but cannot be opened: {0}")]
    Unreadable(String),
    /// It has none of the requested names.
    #[error("expected {wanted}: this repository has {}", none_of(.names))]
    Lacks {
        /// What was looked for.
        wanted: String,
        /// The names under which it was looked for.
        names: Vec<String>,
    },
    /// Some of its objects are missing.
    #[error("objects are missing in this repository, as in a partial clone: {0}")]
    Incomplete(String),
}

/// A source that failed.
#[derive(Debug, Clone)]
pub struct SourceFailure {
    /// A description of the source.
    pub source: String,
    pub reason: String,
    /// The tree that it has instead of the pinned one.
    pub other: Option<Oid>,
}

impl fmt::Display for SourceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.reason)
    }
}

fn edits(difference: &Difference) -> String {
    if difference.is_empty() {
        return "it is not a known tree, and there is no reference to name the files".to_owned();
    }
    difference.to_string()
}

fn list(failures: &[SourceFailure]) -> String {
    failures
        .iter()
        .map(|failure| format!("\n  - {failure}"))
        .collect()
}

fn none_of(names: &[String]) -> String {
    match names {
        [name] => format!("no {name}"),
        names => format!("neither {}", names.join(" nor ")),
    }
}

fn file_by_file(difference: &Option<Box<Difference>>) -> String {
    difference
        .as_ref()
        .map(|difference| format!(": {difference}"))
        .unwrap_or_default()
}

fn indented(stderr: &str) -> String {
    stderr
        .trim()
        .lines()
        .map(|line| format!("\n    {line}"))
        .collect()
}
