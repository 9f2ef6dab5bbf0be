//! The name of a build folder, made from everything that makes its objects unusable for another build.

use std::collections::BTreeMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::backend::{CUDA_VARIABLES, Configuration, Options};
use super::flags;
use mlx_prefix::Backend;

use crate::host::Host;

/// Variables that the cc crate reads as they are, with the target's name after them, or with `HOST_` or `TARGET_`
/// before.
const FLAGS: [&str; 4] = ["CC", "CXX", "CFLAGS", "CXXFLAGS"];

/// Variables that compilers, their child processes, a launcher and MLX's CMake files read.
const OTHERS: [&str; 31] = [
    "LDFLAGS",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    "OBJCPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "CCC_OVERRIDE_OPTIONS",
    "CCC_ADD_ARGS",
    "SDKROOT",
    "DEVELOPER_DIR",
    "TOOLCHAINS",
    "MACOSX_DEPLOYMENT_TARGET",
    "SOURCE_DATE_EPOCH",
    "AR",
    "RANLIB",
    "CCACHE_COMPILER",
    "CCACHE_PREFIX",
    "CCACHE_PREFIX_CPP",
    "CCACHE_CPP2",
    "BLA_VENDOR",
    "BLA_STATIC",
    "BLA_PREFER_PKGCONFIG",
    "BLAS_HOME",
    "BLAS_ROOT",
    "LAPACK_ROOT",
    "MKLROOT",
    "PKG_CONFIG_PATH",
    "PKG_CONFIG_LIBDIR",
];

/// Variables of CMake that change how a build runs but not its result. All others count.
const OF_CMAKE_ALONE: [&str; 5] = [
    "CMAKE_BUILD_PARALLEL_LEVEL",
    "CMAKE_COLOR_DIAGNOSTICS",
    "CMAKE_EXPORT_COMPILE_COMMANDS",
    "CMAKE_NO_VERBOSE",
    "CMAKE_TLS_VERIFY",
];

/// `<backend>[-cpu][-jit][-pristine]-<12 hex digits over options, tools and environment>`.
pub(super) fn key(
    host: &Host,
    options: &Options,
    pristine: bool,
    configuration: &Configuration,
    tools: &BTreeMap<String, String>,
) -> String {
    let mut hash = Sha256::new();
    let mut feed = |kind: &str, name: &str, value: &str| {
        // The lengths keep adjacent values apart.
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
    // Those of CUDA change no other build.
    let of_cuda = |name: &&str| options.backend == Backend::Cuda && CUDA_VARIABLES.contains(name);
    for name in host.names().filter(|name| matters(name) || of_cuda(name)) {
        feed("env", name, host.var(name).unwrap_or_default());
    }
    for (place, text) in flags::files(host) {
        feed("file", &place, &text);
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
        || (bare.starts_with("CMAKE_") && !OF_CMAKE_ALONE.contains(&bare))
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

    #[test]
    fn flags_matter_and_caches_do_not() {
        for name in [
            "CC",
            "HOST_CXX",
            "CXXFLAGS_aarch64_apple_darwin",
            "BLA_VENDOR",
            "CPLUS_INCLUDE_PATH",
            "CMAKE_CXX_COMPILER_LAUNCHER",
            "CMAKE_INCLUDE_PATH",
            "HOST_CMAKE_TOOLCHAIN_FILE",
        ] {
            assert!(matters(name), "{name}");
        }
        for name in [
            "CCACHE_DIR",
            "HOME",
            "CARGO_TARGET_DIR",
            "CCC",
            "CMAKE_BUILD_PARALLEL_LEVEL",
        ] {
            assert!(!matters(name), "{name}");
        }
    }

    const OPTIONS: Options = Options {
        backend: Backend::Cpu,
        cpu: false,
        jit: false,
        cuda_architectures: None,
    };

    #[test]
    fn every_ingredient_changes_the_key() {
        let host = Host::new(Os::Linux, "x86_64", []);
        let options = &OPTIONS;
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
                &Options {
                    jit: true,
                    ..OPTIONS
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

    #[test]
    fn variables_of_cuda_change_the_key_of_its_build_alone() {
        let plain = Host::new(Os::Linux, "x86_64", []);
        let set = plain.clone().with("NVCC_APPEND_FLAGS", "-lineinfo");
        let cuda = Options {
            backend: Backend::Cuda,
            ..OPTIONS
        };
        let key = |host: &Host, options: &Options| {
            let (plain, tools) = (Configuration::default(), BTreeMap::new());
            key(host, options, false, &plain, &tools)
        };
        assert_eq!(key(&plain, &OPTIONS), key(&set, &OPTIONS));
        assert_ne!(key(&plain, &cuda), key(&set, &cuda));
    }

    #[test]
    fn what_a_wrapper_a_launcher_or_a_named_file_says_changes_the_key() {
        let scratch = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = scratch.path().join(name);
            fs_err::write(&path, text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs_err::set_permissions(&path, mode).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let key = |host: &Host| {
            key(
                host,
                &OPTIONS,
                false,
                &Configuration::default(),
                &BTreeMap::new(),
            )
        };
        for (variable, name) in [
            ("CXX", "wrapper"),
            ("CMAKE_CXX_COMPILER_LAUNCHER", "launcher"),
            ("CMAKE_TOOLCHAIN_FILE", "toolchain.cmake"),
            ("CXXFLAGS", "response"),
        ] {
            let path = file(name, "#!/bin/sh\nexec c++ \"$@\"\n");
            let value = match variable {
                "CXXFLAGS" => format!("-O2 @{path}"),
                _ => path,
            };
            let host = Host::new(Os::Linux, "x86_64", []).with(variable, value);
            let one = key(&host);
            assert_eq!(key(&host), one);
            file(name, "#!/bin/sh\nexec c++ -O1 \"$@\"\n");
            assert_ne!(key(&host), one, "{variable}");
        }
    }
}
