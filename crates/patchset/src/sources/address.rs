//! Addresses of repositories and archives: what may be committed of one, and whether two name the same.

use camino::Utf8Path;

/// Whether an address leads off this machine.
pub(crate) fn is_remote(url: &str) -> bool {
    !url.starts_with("file://") && !Utf8Path::new(url).exists()
}

/// Host and path, however the address is written.
pub(crate) fn host_and_path(url: &str) -> String {
    let rest = url[host_at(url)..].replacen(':', "/", 1);
    rest.trim_end_matches('/')
        .trim_end_matches(".git")
        .to_lowercase()
}

/// The address without a password or a token, which would be committed with it.
pub(crate) fn without_credentials(url: &str) -> String {
    let Some((scheme, _)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (before, rest) = url.split_at(host_at(url));
    let user = &before[scheme.len() + "://".len()..];
    let is_http = ["http", "https"]
        .iter()
        .any(|http| scheme.eq_ignore_ascii_case(http));
    // ssh needs the user's name; where http has one, it may be a token.
    match user.split([':', '@']).next() {
        Some(name) if !is_http && !name.is_empty() => format!("{scheme}://{name}@{rest}"),
        _ => format!("{scheme}://{rest}"),
    }
}

/// Where the host begins: after the scheme and the user. An `@` in the path divides nothing.
fn host_at(url: &str) -> usize {
    let (start, ends): (_, &[char]) = match url.find("://") {
        Some(at) => (at + "://".len(), &['/', '?', '#']),
        // As scp writes it.
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
