//! Changes that git's settings made to the checkout's files.

use camino::Utf8Path;
use patchset::Workspace;

use super::finding::Finding;
use crate::files::walk;
use crate::host::Host;

/// Whether git wrote the files as they were committed.
pub(super) fn settings(host: &Host, workspace: &Workspace) -> Finding {
    let id = "git-settings";
    let root = workspace.root();
    let setting = |name: &str| {
        let command = host
            .cmd("git")
            .args(["-C", root.as_str(), "config", "--get", name]);
        command.read().unwrap_or_else(|_| "not set".to_owned())
    };
    if let Some(file) = with_windows_line_ends(workspace) {
        return Finding::error(
            id,
            format!(
                "{file} has CRLF line ends, but checksums need LF; core.autocrlf is {}, core.eol {}",
                setting("core.autocrlf"),
                setting("core.eol")
            ),
            // Converts the files in place: restoring the committed ones would lose local changes.
            r"git config core.autocrlf false && git config core.eol lf && find patches mlx.toml mlx.lock -type f -exec perl -pi -e 's/\r\n/\n/' {} +",
        );
    }
    let copy = Workspace::LOCK_COPY;
    // It was a link in earlier versions.
    let text = fs_err::read_to_string(root.join(copy)).unwrap_or_default();
    if text.trim_end() == "../../mlx.lock" {
        return Finding::error(
            id,
            format!(
                "{copy} is a text file instead of a link; core.symlinks is {}",
                setting("core.symlinks")
            ),
            format!("cp mlx.lock {copy}"),
        );
    }
    Finding::ok(id, "git's settings change no files of the checkout")
}

/// The first file with CRLF among those that are compared byte by byte.
fn with_windows_line_ends(workspace: &Workspace) -> Option<String> {
    let mut files = vec![workspace.manifest_path(), workspace.lock_path()];
    // Links and pipes among the patches are reported with the lock.
    files.extend(walk(&workspace.patches()).unwrap_or_default());
    let found = files.into_iter().find(|file| {
        let bytes = fs_err::read(file).unwrap_or_default();
        bytes.windows(2).any(|pair| pair == b"\r\n")
    })?;
    let name = found
        .strip_prefix(workspace.root())
        .map(Utf8Path::to_string);
    Some(name.unwrap_or_else(|_| found.to_string()))
}
