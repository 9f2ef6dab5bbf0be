//! Which paths a tree may have: none that leads out of it, and none that some file system would merge with another.

use std::collections::HashMap;

use crate::error::{Error, Result};

/// The most folders and bytes of a path and of a link's target. MLX's deepest file is below eight folders; recursion
/// over a tree relies on this limit.
const DEEPEST: usize = 64;
const LONGEST: usize = 1024;

/// The most links that are followed in a row, as on Linux.
const MOST_LINKS: usize = 40;

/// Checks one path of a tree (relative, with `/` between its parts).
///
/// # Errors
/// Paths of more than 64 folders or 1024 bytes, empty or absolute paths, `.` and `..`, names that git treats as its own
/// folder, backslashes, drive letters and control characters. `origin` is the source of the path for errors.
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
    if path.len() > LONGEST {
        // Printing all of it would not help.
        let start: String = path.chars().take(80).collect();
        return Err(Error::UnsafePath {
            origin: origin.to_owned(),
            path: format!("{start}…"),
            why: format!("it has more than {LONGEST} bytes"),
        });
    }
    if path.matches('/').count() > DEEPEST {
        return refuse(&format!("it is below more than {DEEPEST} folders"));
    }
    if path.starts_with('/') {
        return refuse("it is absolute");
    }
    if path.contains('\\') || path.contains(':') {
        return refuse("backslashes and colons have other meanings on other systems");
    }
    if path.chars().any(char::is_control) {
        return refuse("it has a control character");
    }
    for part in path.split('/') {
        match part {
            "" => return refuse("it has an empty part"),
            "." | ".." => return refuse("it has a `.` or `..` part"),
            part if is_git_folder(part) => return refuse("git takes this name for its own folder"),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a link at `path` stays inside the tree.
///
/// # Errors
/// Absolute targets, those that lead above the tree's root, and those of more than 64 folders or 1024 bytes.
pub fn check_link(path: &str, target: &str, origin: &str) -> Result<()> {
    let refuse = |why: String| {
        Err(Error::UnsafePath {
            origin: origin.to_owned(),
            path: path.to_owned(),
            why,
        })
    };
    if target.len() > LONGEST {
        return refuse(format!("it is a link to more than {LONGEST} bytes"));
    }
    if target.matches('/').count() > DEEPEST {
        return refuse(format!("it is a link through more than {DEEPEST} folders"));
    }
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

/// Checks that no link leads out of the tree through another one. `links` are the paths and targets of all links of a
/// tree, each accepted by [`check_link`].
///
/// # Errors
/// A link that leads out of the tree, or through more than 40 links.
pub fn check_chains<'a>(
    links: impl IntoIterator<Item = (&'a str, &'a str)>,
    origin: &str,
) -> Result<()> {
    // With folded paths: a file system that ignores case follows `A` where the tree has `a`.
    let links: HashMap<String, (&str, &str, String)> = links
        .into_iter()
        .map(|(path, target)| (path.to_lowercase(), (path, target, target.to_lowercase())))
        .collect();
    for (folded, (path, target, first)) in &links {
        let refuse = |why: String| {
            Err(Error::UnsafePath {
                origin: origin.to_owned(),
                path: (*path).to_owned(),
                why,
            })
        };
        let up = |place: &str| place.rfind('/').unwrap_or(0);
        let mut place = folded[..up(folded)].to_owned();
        let mut followed = 0;
        // The next part is the last.
        let mut ahead: Vec<&str> = first.rsplit('/').collect();
        while let Some(part) = ahead.pop() {
            match part {
                "" | "." => continue,
                ".." if place.is_empty() => {
                    return refuse(format!(
                        "it is a link to {target:?}, which leads out of the tree through another link"
                    ));
                }
                ".." => {
                    place.truncate(up(&place));
                    continue;
                }
                _ if place.is_empty() => place.push_str(part),
                _ => place.extend(["/", part]),
            }
            // Nothing exists there, and each part would cost as much as all before it.
            if place.len() > LONGEST {
                return refuse(format!("it leads to more than {LONGEST} bytes"));
            }
            let Some((.., next)) = links.get(&place) else {
                continue;
            };
            followed += 1;
            if followed >= MOST_LINKS {
                return refuse(format!("it leads through more than {MOST_LINKS} links"));
            }
            place.truncate(up(&place));
            ahead.extend(next.rsplit('/'));
        }
    }
    Ok(())
}

/// Checks that all `paths` can be in one tree, even on a file system that ignores case.
///
/// # Errors
/// Two paths that differ only by case, or one that is both a file and a folder.
pub fn check_together<'a>(paths: impl IntoIterator<Item = &'a str>, origin: &str) -> Result<()> {
    // Folded prefix -> (its spelling, whether it is a complete path).
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

/// Names that some file system opens as `.git`: other case, trailing dots or spaces, the Windows short name, and on
/// HFS+ characters without width.
fn is_git_folder(part: &str) -> bool {
    let ignored = |c: char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let part: String = part.chars().filter(|c| !ignored(*c)).collect();
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
            ".g\u{200c}it/config",
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
    fn deep_and_long_paths_are_refused_by_a_bound_that_is_named() {
        let deep = |folders: usize| format!("{}a", "d/".repeat(folders));
        check(&deep(DEEPEST), "t").unwrap();
        let error = check(&deep(DEEPEST + 1), "t").unwrap_err().to_string();
        assert!(error.contains("more than 64 folders"), "{error}");
        let error = check(&deep(12_000), "t").unwrap_err().to_string();
        assert!(error.contains("more than 1024 bytes"), "{error}");
        assert!(error.len() < 200, "{error}");
    }

    #[test]
    fn deep_and_long_targets_are_refused_by_a_bound_that_is_named() {
        let long = "a/".repeat(1 << 20);
        let deep = format!("{}a", "d/".repeat(DEEPEST + 1));
        for (target, expected) in [
            (&long, "more than 1024 bytes"),
            (&deep, "more than 64 folders"),
        ] {
            let error = check_link("a", target, "t").unwrap_err().to_string();
            assert!(error.contains(expected) && error.len() < 200, "{error}");
        }
        check_link("a", &deep[2..], "t").unwrap();
        // Each is short, but together they lead where nothing can exist.
        let (long, path) = ("a".repeat(600), format!("{}/b", "b".repeat(600)));
        check_link(&path, &long, "t").unwrap();
        let error = check_chains([(path.as_str(), long.as_str())], "t").unwrap_err();
        assert!(
            error.to_string().contains("more than 1024 bytes"),
            "{error}"
        );
    }

    #[test]
    fn chains_of_links_stay_inside() {
        let leaving: [&[(&str, &str)]; 3] = [
            // Each by itself stays inside.
            &[("a/b/c/top", "../../.."), ("out", "a/b/c/top/../secret")],
            &[("a/b/top", "../.."), ("x", "a/b"), ("out", "x/top/../etc")],
            &[("a/B/top", "../.."), ("out", "A/b/TOP/../etc")],
        ];
        for links in leaving {
            for (path, target) in links {
                check_link(path, target, "t").unwrap();
            }
            let error = check_chains(links.iter().copied(), "t").unwrap_err();
            assert!(
                error.to_string().contains("\"out\"")
                    && error.to_string().contains("through another link"),
                "{error}"
            );
        }
        let around = [("a", "b"), ("b", "a")];
        let error = check_chains(around, "t").unwrap_err().to_string();
        assert!(error.contains("more than 40 links"), "{error}");
        check_chains([("a/b", ".."), ("c", "a/b/a/x"), ("d", "c/../y")], "t").unwrap();
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
