//! One error type for the engine. A message says what was expected and what was found; what to do about it the command
//! line knows.

use std::fmt;
use std::io;

use camino::Utf8PathBuf;
use git2::Oid;

use crate::tree::difference::Difference;

/// A result of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file-system call failed; the message names the file.
    #[error(transparent)]
    Io(#[from] io::Error),

    /// libgit2 failed.
    #[error("git objects: {}", .0.message())]
    Git(#[from] git2::Error),

    /// No `mlx.toml` in this folder or above.
    #[error("no mlx.toml in {0} or a folder above it")]
    NoWorkspace(Utf8PathBuf),

    /// `mlx.toml` or `mlx.lock` does not read as what it should be.
    #[error("{file}:{line}: {message}")]
    Format {
        /// The file.
        file: Utf8PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong and what was expected.
        message: String,
    },

    /// A program is not on this machine.
    #[error("`{0}` could not be started: there is no such program")]
    NoProgram(String),

    /// A program could not be started or failed.
    #[error("`{command}` {outcome}{}", indented(.stderr))]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        outcome: String,
        /// The end of what it wrote to stderr.
        stderr: String,
    },

    /// No source brought the pinned files.
    #[error("no source provides MLX {version} with tree {expected}:{}", list(.failures))]
    Sources {
        /// The pinned version.
        version: String,
        /// The tree id that was wanted.
        expected: Oid,
        /// Every source that was tried, and why it failed.
        failures: Vec<SourceFailure>,
    },

    /// A build input (fmt, json, metal-cpp) could not be had.
    #[error("no source brought the build input {name}:{}", list(.failures))]
    Input {
        /// Its name in `mlx.toml`.
        name: String,
        /// Every source that was tried, and why it failed.
        failures: Vec<SourceFailure>,
    },

    /// A version, tag or commit that `mlx.toml` does not pin.
    #[error("mlx.toml pins no MLX {wanted}; it knows {}", .known.join(", "))]
    UnknownPin {
        /// What was asked for.
        wanted: String,
        /// The versions it knows.
        known: Vec<String>,
    },

    /// Files were brought, but not the pinned ones.
    #[error("expected tree {expected}, found {found}{}", file_by_file(.difference))]
    TreeMismatch {
        /// The pinned tree id.
        expected: Oid,
        /// The tree id of the files.
        found: Oid,
        /// File by file, where a reference was at hand.
        difference: Option<Box<Difference>>,
    },

    /// A file does not have the pinned sum.
    #[error("{file}: expected sha256 {expected}, found {found}")]
    Sum {
        /// The file.
        file: String,
        /// The pinned sum, hexadecimal.
        expected: String,
        /// The file's sum, hexadecimal.
        found: String,
    },

    /// A source could not be read or does not hold what it should.
    #[error("{origin}: {message}")]
    Source {
        /// The archive, folder, repository or crate.
        origin: String,
        /// What is wrong with it.
        message: String,
    },

    /// More than is read.
    #[error("{origin}: it has more than {most} {unit}, the most that is read")]
    TooLarge {
        /// The archive, folder, file or tree.
        origin: String,
        /// The bound.
        most: u64,
        /// What is counted.
        unit: &'static str,
    },

    /// A git repository on this machine that does not serve.
    #[error("{path}: {fault}")]
    Repository {
        /// Where it lies.
        path: Utf8PathBuf,
        /// Why it does not.
        fault: RepositoryFault,
    },

    /// `--accept-tree` for a pin whose tree is known to be upstream's.
    #[error(
        "mlx.toml says that tree {0} is that of upstream's commit; only a reconstructed tree can be replaced"
    )]
    NotReplaceable(Oid),

    /// A path that would leave the tree, or that some file systems cannot hold.
    #[error("{origin}: unsafe path {path:?}: {why}")]
    UnsafePath {
        /// The archive, patch or folder it came from.
        origin: String,
        /// The path.
        path: String,
        /// The rule it breaks.
        why: String,
    },

    /// A patch is malformed or does not apply.
    #[error("patches/{patch}.patch: {reason}")]
    Patch {
        /// Its name in the series.
        patch: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A file has the line ends of Windows.
    #[error("{0}: it has CRLF line ends; expected LF")]
    LineEnds(String),

    /// `patches/series`, the patch files and `patches/files` do not agree.
    #[error("patches/: {}", .0.join("; "))]
    Series(Vec<String>),

    /// The lock was made from other patches or another pin.
    #[error("mlx.lock does not belong to what is here: {}", .0.join("; "))]
    LockDiffers(Vec<String>),

    /// The patches change more of upstream than `mlx.toml` allows.
    #[error("the patches change {changed} upstream lines, the budget in mlx.toml is {most}")]
    OverBudget {
        /// Lines added plus lines removed.
        changed: usize,
        /// The most they may be.
        most: usize,
    },

    /// A patch that an export would write otherwise.
    #[error("patches/{0}.patch is not in its canonical form")]
    NotCanonical(String),

    /// A line of the overlay is not formatted as MLX's own.
    #[error("{path}:{line}: not as MLX's clang-format would have it")]
    Layout {
        /// The file, in MLX's tree.
        path: String,
        /// The line, counted from 1.
        line: usize,
    },

    /// Watched definitions are not those that the patches were checked against.
    #[error(
        "{file}: {} {} not as in MLX {version}{}",
        .names.join(", "),
        if .names.len() == 1 { "is" } else { "are" },
        .followed_by.as_ref().map(|file| format!(", which {file} follows")).unwrap_or_default()
    )]
    WatchedChanged {
        /// The file, in MLX's tree.
        file: String,
        /// The names.
        names: Vec<String>,
        /// The MLX that the patches were checked against.
        version: String,
        /// The file of the overlay that repeats the definitions.
        followed_by: Option<String>,
    },

    /// No sums of the watched definitions were written yet.
    #[error("patches/watched.toml is missing; mlx.toml watches upstream definitions")]
    WatchedMissing,

    /// There is no lock yet.
    #[error("mlx.lock is missing")]
    LockMissing,

    /// Files of `vendor/mlx` were edited by hand.
    #[error("vendor/mlx was edited by hand: {}", edits(.0))]
    Tampered(Box<Difference>),

    /// A file or a link lies where `vendor/mlx` should be.
    #[error("{0} is a file or a link, expected a folder")]
    NotAFolder(Utf8PathBuf),

    /// `--check`: the overlay is not applied.
    #[error("vendor/mlx is {0}, expected applied")]
    NotApplied(String),

    /// Nobody has the pin that a bump asks for.
    #[error("nobody has MLX {wanted}; mlx.toml knows {}{}", .known.join(", "), .reasons.iter().map(|reason| format!("\n  - {reason}")).collect::<String>())]
    NoSuchPin {
        /// What was asked for.
        wanted: String,
        /// The pins of `mlx.toml`.
        known: Vec<String>,
        /// What each repository said.
        reasons: Vec<String>,
    },

    /// A bump waits for a person.
    #[error("a bump waits for a decision on {patch} in {worktree}")]
    BumpPending {
        /// The patch that does not fit.
        patch: String,
        /// Where to decide.
        worktree: Utf8PathBuf,
    },

    /// There is no bump to go on with or to give up.
    #[error("no bump waits")]
    NoBump,

    /// A bump cannot be taken a step back.
    #[error("nothing was decided before {0}, the patch that waits")]
    NothingDecided(String),

    /// The worktree of a bump holds work that a step back would lose.
    #[error("{worktree} holds work on {patch} that would be lost")]
    BumpEdited {
        /// The patch that waits.
        patch: String,
        /// Where the work lies.
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

    /// No patch of this name.
    #[error("there is no patch {wanted}; the series has {}", .known.join(", "))]
    NoSuchPatch {
        /// What was asked for.
        wanted: String,
        /// The patches of the series.
        known: Vec<String>,
    },

    /// Nothing is laid out for editing.
    #[error("no patches are laid out")]
    NoEdit,

    /// The worktree holds work that was not exported.
    #[error("{0} holds work that was not exported")]
    EditOpen(Utf8PathBuf),

    /// The project changed since the patches were laid out.
    #[error(
        "mlx.toml, mlx.lock or patches/ changed since the patches were laid out, so exporting would undo that change"
    )]
    EditStale,

    /// The commits of the worktree do not make patches.
    #[error("target/patches/worktree: {0}")]
    Edit(String),

    /// Nothing is left of a patch that comes after the edited one.
    #[error("target/patches/worktree: nothing is left of {0}, which comes later")]
    LaterEmpty(String),

    /// A patch that comes after the edited one no longer fits.
    #[error("{patch}, which comes later, no longer fits in {}; the conflict is laid out in {worktree}", .paths.join(", "))]
    LaterConflict {
        /// The patch.
        patch: String,
        /// The files in which it does not fit.
        paths: Vec<String>,
        /// Where to resolve it.
        worktree: Utf8PathBuf,
    },

    /// The worktree of a bump is not ready.
    #[error("{worktree} is not resolved yet:{}", .faults.iter().map(|fault| format!("\n  - {fault}")).collect::<String>())]
    Unresolved {
        /// The worktree.
        worktree: Utf8PathBuf,
        /// What is left to do.
        faults: Vec<String>,
    },
}

impl Error {
    /// An error of reading `origin`.
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

/// Why a git repository does not serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RepositoryFault {
    /// It cannot be opened.
    #[error("it is a git repository, but cannot be opened: {0}")]
    Unreadable(String),
    /// It has none of what would do.
    #[error("expected {wanted}: this repository has {}", none_of(.names))]
    Lacks {
        /// What is looked for.
        wanted: String,
        /// The names under which it was looked for.
        names: Vec<String>,
    },
    /// Its objects are not all here.
    #[error("objects are missing in this repository, as in a partial clone: {0}")]
    Incomplete(String),
}

/// A source that failed.
#[derive(Debug, Clone)]
pub struct SourceFailure {
    /// The source, in words.
    pub source: String,
    /// Why.
    pub reason: String,
    /// The tree that it has in place of the pinned one.
    pub other: Option<Oid>,
}

impl fmt::Display for SourceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.reason)
    }
}

fn edits(difference: &Difference) -> String {
    if difference.is_empty() {
        return "it holds no known tree, and no reference is at hand to name the files".to_owned();
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
