//! The name of a build folder: everything that makes its objects unusable for another build.

use std::collections::BTreeMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::backend::{Configuration, Options};
use crate::host::Host;

/// Variables that CMake, the cc crate or the compilers read. The cc crate also takes each of the
/// first four with the target's name after it or `HOST_`, `TARGET_` before it.
const FLAGS: [&str; 4] = ["CC", "CXX", "CFLAGS", "CXXFLAGS"];
const OTHERS: [&str; 8] = [
    "LDFLAGS",
    "CPATH",
    "LIBRARY_PATH",
    "BLA_VENDOR",
    "LAPACK_ROOT",
    "BLAS_HOME",
    "CMAKE_PREFIX_PATH",
    "CMAKE_TOOLCHAIN_FILE",
];

/// `<backend>[-cpu][-jit][-pristine]-<12 hex digits over options, tools and environment>`.
pub(super) fn key(
    host: &Host,
    options: Options,
    pristine: bool,
    configuration: &Configuration,
    tools: &BTreeMap<String, String>,
) -> String {
    let mut hash = Sha256::new();
    let mut feed = |kind: &str, name: &str, value: &str| {
        // Lengths keep neighbours apart.
        for part in [kind, name, value] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    };
    feed("target", "", &host.target);
    for (name, value) in &configuration.defines {
        feed("define", name, value);
    }
    for (name, value) in tools.iter().chain(&configuration.tools) {
        feed("tool", name, value);
    }
    for (name, value) in &configuration.env {
        feed("env", name, value);
    }
    for name in host.names().filter(|name| matters(name)) {
        feed("env", name, host.var(name).unwrap_or_default());
    }
    let mut key = options.backend.to_string();
    for (on, word) in [
        (options.cpu, "-cpu"),
        (options.jit, "-jit"),
        (pristine, "-pristine"),
    ] {
        if on {
            key += word;
        }
    }
    key.push('-');
    for byte in &hash.finalize()[..6] {
        // Writing to a string cannot fail.
        let _ = write!(key, "{byte:02x}");
    }
    key
}

fn matters(name: &str) -> bool {
    let bare = name
        .strip_prefix("HOST_")
        .or_else(|| name.strip_prefix("TARGET_"))
        .unwrap_or(name);
    OTHERS.contains(&name)
        || FLAGS.iter().any(|flag| {
            // `CC_x86_64-unknown-linux-gnu`, but not `CCACHE_DIR`.
            bare.strip_prefix(flag)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Os;
    use mlx_prefix::Backend;

    #[test]
    fn flags_matter_and_caches_do_not() {
        for name in [
            "CC",
            "HOST_CXX",
            "CXXFLAGS_aarch64_apple_darwin",
            "BLA_VENDOR",
        ] {
            assert!(matters(name), "{name}");
        }
        for name in ["CCACHE_DIR", "HOME", "CARGO_TARGET_DIR", "CCC"] {
            assert!(!matters(name), "{name}");
        }
    }

    #[test]
    fn every_ingredient_changes_the_key() {
        let host = Host::new(Os::Linux, "x86_64", []);
        let options = Options {
            backend: Backend::Cpu,
            cpu: false,
            jit: false,
        };
        let tools = |version: &str| BTreeMap::from([("c++".to_owned(), version.to_owned())]);
        let plain = Configuration::default();
        let mut defined = Configuration::default();
        defined
            .defines
            .push(("MLX_BUILD_CPU".to_owned(), "ON".to_owned()));
        let flags = host.clone().with("CXXFLAGS", "-O1");
        let keys = [
            key(&host, options, false, &plain, &tools("12")),
            key(&host, options, true, &plain, &tools("12")),
            key(&host, options, false, &plain, &tools("13")),
            key(&host, options, false, &defined, &tools("12")),
            key(&flags, options, false, &plain, &tools("12")),
            key(
                &host,
                Options {
                    jit: true,
                    ..options
                },
                false,
                &plain,
                &tools("12"),
            ),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(a.starts_with("cpu-"), "{a}");
            assert!(keys[..i].iter().all(|b| a != b), "{a} twice");
        }
        assert_eq!(keys[0], key(&host, options, false, &plain, &tools("12")));
    }
}
