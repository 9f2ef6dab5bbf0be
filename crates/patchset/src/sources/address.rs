//! Addresses of repositories and archives: which part may be committed, and whether two addresses are the same.

use camino::Utf8Path;

/// Whether an address is on another machine.
pub(crate) fn is_remote(url: &str) -> bool {
    !url.starts_with("file://") && !Utf8Path::new(url).exists()
}

/// Host and path, in any form of the address.
pub(crate) fn host_and_path(url: &str) -> String {
    let rest = url[host_at(url)..].replacen(':', "/", 1);
    rest.trim_end_matches('/')
        .trim_end_matches(".git")
        .to_lowercase()
}

/// The address without a password or token, which would otherwise be committed.
pub(crate) fn without_credentials(url: &str) -> String {
    let Some((scheme, _)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (before, rest) = url.split_at(host_at(url));
    let user = &before[scheme.len() + "://".len()..];
    let is_http = ["http", "https"]
        .iter()
        .any(|http| scheme.eq_ignore_ascii_case(http));
    // ssh needs the user name; with http it may be a token.
    match user.split([':', '@']).next() {
        Some(name) if !is_http && !name.is_empty() => format!("{scheme}://{name}@{rest}"),
        _ => format!("{scheme}://{rest}"),
    }
}

/// The start of the host: after the scheme and the user. An `@` in the path does not count.
fn host_at(url: &str) -> usize {
    let (start, ends): (_, &[char]) = match url.find("://") {
        Some(at) => (at + "://".len(), &['/', '?', '#']),
        // scp's notation.
        None => (0, &['/', ':']),
    };
    let authority = &url[start..];
    let authority = &authority[..authority.find(ends).unwrap_or(authority.len())];
    start + authority.rfind('@').map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_and_kept_without_what_is_secret() {
        for url in [
            "https://github.com/ml-explore/mlx.git",
            "git@github.com:ml-explore/mlx",
            "ssh://git@github.com/ml-explore/mlx.git/",
            "https://token@GitHub.com/ml-explore/mlx",
        ] {
            assert_eq!(host_and_path(url), "github.com/ml-explore/mlx", "{url}");
        }
        for url in [
            "https://evil.org/x@github.com/ml-explore/mlx",
            "https://evil.org?x@github.com/ml-explore/mlx",
            "evil.org:x@github.com/ml-explore/mlx",
            "evil.org/x@github.com:ml-explore/mlx",
        ] {
            let found = host_and_path(url);
            assert!(found.starts_with("evil.org"), "{url}: {found}");
        }
        for (url, kept) in [
            ("https://me:secret@a.org/x@y", "https://a.org/x@y"),
            ("HTTPS://me:secret@a.org/x", "HTTPS://a.org/x"),
            ("https://me:secret@a.org?x", "https://a.org?x"),
            ("https://a.org", "https://a.org"),
            ("ssh://me:secret@a.org/x", "ssh://me@a.org/x"),
            ("ssh://git@a.org/x", "ssh://git@a.org/x"),
            ("file:///a/b@c", "file:///a/b@c"),
            ("git@a.org:x", "git@a.org:x"),
        ] {
            assert_eq!(without_credentials(url), kept);
        }
    }
}
