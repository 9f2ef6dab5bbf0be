//! Which paths may be part of a tree: none that leaves it, none that some file system would merge with another.

use std::collections::HashMap;

use crate::error::{Error, Result};

/// Checks one path of a tree (relative, with `/` between its parts).
///
/// # Errors
/// Empty or absolute paths, `.` and `..`, anything git takes for its own folder, backslashes, drive letters and
/// control characters. `origin` says in the error where the path came from.
pub fn check(path: &str, origin: &str) -> Result<()> {
    let refuse = |why: &str| {
        Err(Error::UnsafePath {
            origin: origin.to_owned(),
            path: path.to_owned(),
            why: why.to_owned(),
        })
    };
    if path.is_empty() {
        return refuse("it is empty");
    }
    if path.starts_with('/') {
        return refuse("it is absolute");
    }
    if path.contains('\\') || path.contains(':') {
        return refuse("backslashes and colons mean other things on other systems");
    }
    if path.chars().any(char::is_control) {
        return refuse("it holds a control character");
    }
    for part in path.split('/') {
        match part {
            "" => return refuse("it holds an empty part"),
            "." | ".." => return refuse("it holds a `.` or `..` part"),
            part if is_git_folder(part) => return refuse("git takes this name for its own folder"),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a link at `path` stays inside the tree.
///
/// # Errors
/// Absolute targets and those that climb above the tree's root.
pub fn check_link(path: &str, target: &str, origin: &str) -> Result<()> {
    let refuse = |why: String| {
        Err(Error::UnsafePath {
            origin: origin.to_owned(),
            path: path.to_owned(),
            why,
        })
    };
    if target.is_empty() || target.starts_with('/') || target.contains('\\') || target.contains(':')
    {
        return refuse(format!(
            "it is a link to {target:?}, which is not a relative path"
        ));
    }
    let mut depth = path.matches('/').count();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 => {
                return refuse(format!("it is a link to {target:?}, outside the tree"));
            }
            ".." => depth -= 1,
            part if is_git_folder(part) => {
                return refuse(format!("it is a link to {target:?}, into git's own folder"));
            }
            _ => depth += 1,
        }
    }
    Ok(())
}

/// Checks that all `paths` can lie in one tree, also on a file system that ignores case.
///
/// # Errors
/// Two paths that differ by case only, or one that is both a file and a folder.
pub fn check_together<'a>(paths: impl IntoIterator<Item = &'a str>, origin: &str) -> Result<()> {
    // Folded prefix -> (as it is written, whether it is a whole path).
    let mut seen: HashMap<String, (&str, bool)> = HashMap::new();
    for path in paths {
        let ends = path
            .match_indices('/')
            .map(|(end, _)| (end, false))
            .chain([(path.len(), true)]);
        for (end, whole) in ends {
            let prefix = &path[..end];
            let (other, other_whole) =
                *seen.entry(prefix.to_lowercase()).or_insert((prefix, whole));
            let why = if other != prefix {
                format!("it differs from {other:?} by case only")
            } else if other_whole != whole {
                format!("{prefix:?} is both a file and a folder")
            } else {
                continue;
            };
            return Err(Error::UnsafePath {
                origin: origin.to_owned(),
                path: path.to_owned(),
                why,
            });
        }
    }
    Ok(())
}

/// Names that some file system opens as `.git`: other case, trailing dots or spaces, the short name of Windows.
fn is_git_folder(part: &str) -> bool {
    let part = part.trim_end_matches(['.', ' ']);
    part.eq_ignore_ascii_case(".git") || part.eq_ignore_ascii_case("git~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_paths_are_refused() {
        for path in [
            "",
            "/a",
            "..",
            "a/../b",
            "./a",
            "a//b",
            "a/",
            ".git/config",
            "a/.GIT",
            ".git. /x",
            "git~1",
            "a\\b",
            "C:x",
            "a\nb",
            "a\0b",
        ] {
            assert!(check(path, "t").is_err(), "{path:?} was accepted");
        }
        for path in [
            "a",
            "a/b",
            ".gitignore",
            ".github/x",
            "..a",
            "a..",
            "git",
            "ä/ö",
        ] {
            check(path, "t").unwrap();
        }
    }

    #[test]
    fn links_stay_inside() {
        for (path, target) in [
            ("a", "/etc"),
            ("a", ".."),
            ("a/b", "../../c"),
            ("a/b", "../.git/x"),
            ("a", ""),
        ] {
            assert!(
                check_link(path, target, "t").is_err(),
                "{path} -> {target} was accepted"
            );
        }
        for (path, target) in [("a", "b"), ("a/b", "../c"), ("a/b/c", "../../x/./y")] {
            check_link(path, target, "t").unwrap();
        }
    }

    #[test]
    fn names_that_clash_are_refused() {
        for paths in [
            ["a", "A"],
            ["a/b", "A/c"],
            ["a", "a/b"],
            ["a/b", "a"],
            ["Ä", "ä"],
        ] {
            assert!(
                check_together(paths, "t").is_err(),
                "{paths:?} was accepted"
            );
        }
        check_together(["a/b", "a/c", "b", "bb"], "t").unwrap();
    }
}
