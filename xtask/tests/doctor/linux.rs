//! A Debian machine, and what can be wrong with it.

use xtask::doctor::Status::{Error, Ok, Warning};
use xtask::host::{Host, Os};

use crate::scratch::Scratch;
use crate::{finding, finds, follow, healthy, lists, mends, pin};

/// A complete machine with a checkout in which nothing was fetched or built yet.
fn debian(scratch: &Scratch) -> Host {
    scratch.fake("cmake", "echo 'cmake version 3.25.1'");
    scratch.fake("ninja", "echo 1.11.1");
    scratch.fake("cc", "echo 'gcc 12.2.0'");
    scratch.fake("c++", "echo 'g++ 12.2.0'");
    scratch.fake("clang++-19", "echo 'Debian clang version 19.1.7'");
    scratch.fake("apt-get", "");
    scratch.fake("id", "echo 0");
    scratch.fake("git", "echo 'git version 2.39.5'");
    scratch.fake("cargo", "");
    disk(scratch, 60_000_000);
    pin(scratch);
    scratch.host(Os::Linux, "x86_64")
}

fn disk(scratch: &Scratch, free: u64) {
    let table = format!(
        "echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'\n\
         echo '/dev/a 264212084 30300420 {free} 32% /'"
    );
    scratch.fake("df", &table);
}

/// What a checkout lacks before its first fetch.
const NEW: [&str; 3] = ["sources", "tree", "prefix"];

#[test]
fn a_complete_machine_lacks_only_what_the_quickstart_makes() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    healthy(&scratch, &host, &NEW);
    finds(&scratch, &host, "sources", Warning, &["cargo xtask fetch"]);
    finds(
        &scratch,
        &host,
        "prefix",
        Warning,
        &["not built yet", "cargo xtask build"],
    );
}

#[test]
fn missing_and_old_tools_come_with_the_command_that_installs_them() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    // The programs that it installs work.
    let bin = scratch.path("bin");
    let works = |name: &str, prints: &str| {
        format!(
            "*{name}*) printf '#!/bin/sh\\necho {prints}\\n' >{bin}/{name}; chmod +x {bin}/{name} ;;"
        )
    };
    let packages = format!(
        "case \"$*\" in\nupdate) ;;\n{}\n{}\n*) exit 1 ;; esac",
        works("cmake", "cmake version 3.25.1"),
        works("ninja", "1.11.1")
    );
    scratch.fake("apt-get", &packages);
    scratch.fake("cmake", "echo 'cmake version 3.22.1'");
    let install = "apt-get install -y --no-install-recommends";
    let old = [
        "is too old (cmake version 3.22.1)",
        &format!("{install} cmake"),
    ];
    mends(&scratch, &host, "cmake", &old);
    fs_err::remove_file(scratch.path("bin/ninja")).unwrap();
    mends(
        &scratch,
        &host,
        "ninja",
        &[&format!("{install} ninja-build")],
    );
    fs_err::remove_file(scratch.path("bin/clang++-19")).unwrap();
    finds(
        &scratch,
        &host,
        "kernel-compiler",
        Error,
        &["clang++ 16 or newer", "clang-19"],
    );
    scratch.fake(
        "c++",
        "case \"$*\" in --version) echo 'g++ 7.5' ;; *) echo 'error: unrecognized option -std=c++20' >&2; exit 1 ;; esac",
    );
    finds(
        &scratch,
        &host,
        "cxx-compiler",
        Error,
        &["a C++20 compiler", "-std=c++20"],
    );
    fs_err::remove_file(scratch.path("bin/cc")).unwrap();
    finds(
        &scratch,
        &host,
        "c-compiler",
        Error,
        &["`cc` is not on PATH", "gcc"],
    );
}

#[test]
fn blas_is_missed_only_where_it_is_needed() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    scratch.fake(
        "c++",
        "[ \"$1\" = --version ] && exit 0\n\
         case \"$(/bin/cat)\" in *lapacke.h*) echo 'x:1:10: fatal error: lapacke.h' >&2; exit 1 ;; esac",
    );
    let words = ["fatal error: lapacke.h", "--cpu", "liblapacke-dev"];
    finds(&scratch, &host, "blas", Warning, &words);
}

#[test]
fn cuda_is_looked_at_where_it_could_be_used() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    finds(&scratch, &host, "cuda", Ok, &["no nvcc and no NVIDIA GPU"]);
    assert!(!lists(&scratch, &host, "nvcc"));

    scratch.fake("nvidia-smi", "");
    assert!(!lists(&scratch, &host, "cuda"));
    let only = "only cargo xtask build --backend cuda needs it";
    let nvcc = ["neither on PATH", only, "-> ci/cuda-toolkit.sh"];
    finds(&scratch, &host, "nvcc", Warning, &nvcc);
    let cmake = ["cmake 3.26 or newer", only, "pip install 'cmake>=3.26'"];
    finds(&scratch, &host, "cuda-cmake", Warning, &cmake);
    finds(
        &scratch,
        &host,
        "cudnn",
        Warning,
        &["cudnn.h was not found", only],
    );

    scratch.fake(
        "nvcc",
        "echo 'Cuda compilation tools, release 13.1, V13.1.80'",
    );
    finds(
        &scratch,
        &host,
        "nvcc",
        Warning,
        &["is 13.1", "set CUDACXX"],
    );
    scratch.fake(
        "nvcc",
        "case \"$*\" in *-E*) echo 'error: unsupported GNU version' >&2; exit 1 ;; esac\n\
         echo 'Cuda compilation tools, release 13.0, V13.0.88'",
    );
    finds(&scratch, &host, "nvcc", Ok, &["13.0, V13.0.88"]);
    let compiler = ["unsupported GNU version", "CUDAHOSTCXX"];
    finds(&scratch, &host, "nvcc-host-compiler", Warning, &compiler);
    let libraries = [
        "has no cublasLt, cufft, cusolver, nvrtc",
        "ci/cuda-toolkit.sh",
    ];
    finds(&scratch, &host, "cuda-libraries", Warning, &libraries);
}

#[test]
fn flags_and_conda_are_noticed() {
    let scratch = Scratch::new();
    let host = debian(&scratch).with("CXXFLAGS", "-O3 -ffast-math");
    finds(
        &scratch,
        &host,
        "compiler-flags",
        Error,
        &["CXXFLAGS has -ffast-math", "remove it from"],
    );
    fs_err::create_dir_all(scratch.path("conda-meta")).unwrap();
    finds(&scratch, &host, "conda", Warning, &["conda deactivate"]);
}

#[test]
fn a_full_disk_is_told_before_a_build_fails_on_it() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    finds(&scratch, &host, "disk", Ok, &["58593 MiB free"]);
    disk(&scratch, 2_000_000);
    finds(&scratch, &host, "disk", Warning, &["1953 MiB free"]);
    disk(&scratch, 300_000);
    finds(
        &scratch,
        &host,
        "disk",
        Error,
        &["292 MiB free", "target/mlx"],
    );
}

#[test]
fn a_network_is_asked_for_only_what_is_not_here_and_one_source_is_enough() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    let no_route = "case \"$*\" in --version) echo 'git version 2.39.5' ;; \
                    *) echo 'fatal: Could not resolve host: github.com' >&2; exit 128 ;; esac";
    scratch.fake("git", no_route);
    let words = ["Could not resolve host", "git config http.proxy"];
    finds(&scratch, &host, "git-source", Warning, &words);
    finds(&scratch, &host, "registry", Ok, &["rlx-mlx-sys@0.2.19"]);
    scratch.fake(
        "cargo",
        "echo 'error: failed to query replaced source' >&2; exit 101",
    );
    finds(&scratch, &host, "git-source", Error, &words);
    finds(
        &scratch,
        &host,
        "registry",
        Error,
        &["failed to query", "--source PATH"],
    );
    fs_err::remove_file(scratch.path("bin/git")).unwrap();
    finds(
        &scratch,
        &host,
        "git",
        Error,
        &[
            "`git` is not on PATH",
            "apt-get install -y --no-install-recommends git",
        ],
    );
}

#[test]
fn a_policy_that_is_misspelt_and_a_pin_that_is_broken_are_named() {
    let scratch = Scratch::new();
    let host = debian(&scratch).with("MLX_ROW_POLICY", "stream");
    mends(
        &scratch,
        &host,
        "policy",
        &["MLX_ROW_POLICY=stream", "default, exact, narrow or wide"],
    );
    let host = host.with("MLX_ROW_POLICY", "exact:8");
    finds(
        &scratch,
        &host,
        "policy",
        Ok,
        &["MLX_ROW_POLICY=exact:8, for every program"],
    );
    let old = debian(&scratch).with("MLX_QMV_POLICY", "streamed");
    mends(
        &scratch,
        &old,
        "policy",
        &[
            "MLX_QMV_POLICY=streamed is no longer read",
            "streamed is now called exact",
        ],
    );
    scratch.file("root/mlx.toml", "[mlx");
    finds(&scratch, &host, "pin", Error, &["mlx.toml", "git checkout"]);
}

#[test]
fn a_variable_that_names_no_compiler_is_told_instead_of_a_package() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    scratch.fake("false", "exit 1");
    let cases = [
        (
            "CXX",
            "/no/such/c++",
            "cxx-compiler",
            "which does not exist",
        ),
        ("CXX", "false", "cxx-compiler", "failed (exit status: 1)"),
        ("CC", "nonesuch", "c-compiler", "which does not exist"),
        (
            "MTL_SIM_CXX",
            "/no/clang",
            "kernel-compiler",
            "which does not exist",
        ),
    ];
    for (variable, value, id, why) in cases {
        let host = host.clone().with(variable, value);
        let words = [
            &format!("{variable} names {value}"),
            why,
            &format!("unset {variable}"),
        ];
        finds(&scratch, &host, id, Error, &words);
        let text = finding(&scratch, &host, id).to_string();
        assert!(!text.contains("apt-get"), "{text}");
        assert_eq!(
            lists(&scratch, &host, "blas"),
            variable != "CXX",
            "BLAS is looked for with the C++ compiler"
        );
    }
    let value = format!("{} -std=c++11", scratch.path("bin/c++"));
    let host = host.with("CXX", &value);
    let words = [&value, "only the name of a program", "CXXFLAGS"];
    finds(&scratch, &host, "cxx-compiler", Error, &words);
}

#[test]
fn a_program_in_front_of_the_package_is_named() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    let shim = scratch.path("shim");
    let bin = scratch.path("bin");
    for (name, body) in [
        ("cmake", "echo 'cmake version 3.16.3'"),
        ("ninja", "echo 'No module named ninja' >&2; exit 1"),
    ] {
        scratch.fake(&format!("../shim/{name}"), body);
        let first = host.clone().with_path_first(&shim).unwrap();
        let remedy =
            format!("{shim}/{name} comes first on PATH: remove it, or put {bin} before it");
        finds(&scratch, &first, name, Error, &[&remedy]);
        assert!(
            !finding(&scratch, &first, name)
                .to_string()
                .contains("apt-get")
        );
    }
    // The package's program would come first: installing helps.
    fs_err::remove_file(bin.join("cmake")).unwrap();
    let last = host.with("PATH", format!("{bin}:{shim}"));
    finds(
        &scratch,
        &last,
        "cmake",
        Error,
        &["apt-get install", "3.16.3"],
    );
}

#[test]
fn flags_of_the_linker_count_too() {
    let scratch = Scratch::new();
    let host = debian(&scratch).with("LDFLAGS", "-s -ffast-math");
    let words = ["LDFLAGS has -ffast-math"];
    finds(&scratch, &host, "compiler-flags", Warning, &words);
}

#[test]
fn room_is_looked_for_where_builds_are_written() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    scratch.fake(
        "df",
        "case \"$2\" in */root/target) free=65536 ;; *) free=60000000 ;; esac\n\
         echo Filesystem; echo \"tmpfs 65536 0 $free 0% /\"",
    );
    finds(&scratch, &host, "disk", Ok, &["58593 MiB free"]);
    fs_err::create_dir_all(scratch.path("root/target")).unwrap();
    finds(&scratch, &host, "disk", Error, &["64 MiB free"]);
}

#[test]
fn a_target_that_cannot_be_written_is_told_before_a_build_fails_on_it() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    finds(&scratch, &host, "target", Ok, &[]);
    let target = scratch.path("root/target");
    fs_err::os::unix::fs::symlink("/no/such/disk", &target).unwrap();
    let words = [
        &format!("{target} "),
        "its target does not exist",
        &format!("rm {target}"),
    ];
    mends(&scratch, &host, "target", &words);
    let builds = scratch.file("root/target/mlx", "");
    let words = [builds.as_str(), "not a directory", &format!("rm {builds}")];
    mends(&scratch, &host, "target", &words);

    fs_err::create_dir_all(&target).unwrap();
    let mode = |bits| {
        fs_err::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(bits))
            .unwrap();
    };
    mode(0o555);
    // Root can write there anyway.
    if fs_err::write(target.join("probe"), "").is_err() {
        scratch.fake("sudo", "exec \"$@\"");
        mends(&scratch, &host, "target", &["permission denied", "chown"]);
    }
    mode(0o755);
    #[cfg(target_os = "linux")]
    {
        // Nobody can.
        fs_err::os::unix::fs::symlink("/sys", &builds).unwrap();
        finds(&scratch, &host, "target", Error, &["is not writable"]);
    }
}

#[test]
fn variables_that_name_what_is_not_there_are_told() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    finds(&scratch, &host, "variables", Ok, &[]);
    let file = scratch.file("a file", "");
    for (name, value, why) in [
        (
            "MLX_OVERLAY_METALLIB",
            "/no/mlx.metallib",
            "is not an existing file",
        ),
        (
            "MLX_OVERLAY_METALLIB",
            "/dev/null",
            "is not an existing file",
        ),
        ("MLX_OVERLAY_METALLIB", file.as_str(), "is not a metallib"),
        (
            "CMAKE_TOOLCHAIN_FILE",
            "/no/toolchain.cmake",
            "is not an existing file",
        ),
        (
            "CMAKE_CXX_COMPILER_LAUNCHER",
            "no-ccache",
            "is not a program",
        ),
        (
            "CMAKE_C_COMPILER_LAUNCHER",
            "/no/ccache;-v",
            "is not a program",
        ),
        ("CCACHE_PREFIX", "distcc", "is not a program"),
        ("MTL_SIM_COMPILER", "/no/metal-simc", "is not a program"),
        ("MTL_SIM_COMPILER", file.as_str(), "is not a program"),
        ("MTL_SIM_ARCH", "g99z", "generation 13 to 18"),
    ] {
        let host = host.clone().with(name, value);
        let remedy = format!("unset {name}");
        mends(&scratch, &host, "variables", &[name, why, &remedy]);
    }
    let kernels = metal_sim::Library::from_source("k.metal", "").unwrap();
    fs_err::write(&file, kernels.to_bytes()).unwrap();
    let good = host
        .with("MLX_OVERLAY_METALLIB", file.as_str())
        .with("CMAKE_TOOLCHAIN_FILE", file.as_str())
        .with("CMAKE_CXX_COMPILER_LAUNCHER", "c++;--version")
        .with("MTL_SIM_COMPILER", scratch.path("bin/c++").as_str())
        .with("MTL_SIM_ARCH", "applegpu_g15s");
    finds(&scratch, &good, "variables", Ok, &[]);
}

#[test]
fn a_path_that_breaks_builds_is_reported() {
    let scratch = Scratch::new();
    let host = debian(&scratch).with("HOME", scratch.path("home").as_str());
    fs_err::create_dir(scratch.path("home")).unwrap();
    finds(&scratch, &host, "path", Ok, &[]);
    fs_err::rename(scratch.path("root"), scratch.path("a b ü")).unwrap();
    let blank = xtask::doctor::examine(&host, &scratch.path("a b ü"));
    assert!(
        blank
            .iter()
            .any(|finding| finding.id == "path" && finding.status == Ok)
    );
    fs_err::rename(scratch.path("a b ü"), scratch.path("root")).unwrap();
    for name in [
        "a\tb", "a#b", "a(b", "a;b", "it's", "a$b", "a&b", "a:b", "a\\b", "a[b", "a\"b",
    ] {
        let root = scratch.path(name);
        fs_err::rename(scratch.path("root"), &root).unwrap();
        let on = |root: &camino::Utf8Path| {
            let findings = xtask::doctor::examine(&host, root);
            findings
                .into_iter()
                .find(|finding| finding.id == "path")
                .unwrap()
        };
        let found = on(&root);
        assert_eq!(found.status, Error, "{name}: {found}");
        // A shell needs some folder to start in.
        fs_err::create_dir(scratch.path("root")).unwrap();
        follow(&scratch, &host, &found);
        fs_err::remove_dir(scratch.path("root")).unwrap();
        let moved = scratch.path("home/mlx-overlay");
        assert_eq!(on(&moved).status, Ok, "{name}");
        fs_err::rename(moved, scratch.path("root")).unwrap();
    }
}

#[test]
fn folders_that_cannot_be_written_are_told_wherever_they_lie() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    let host = host.with("HOME", "/proc/no-home");
    // The temporary folder replaces a home folder, but not a folder that was named.
    let words = [
        "/proc/no-home/.cache/metal-sim",
        "are cached in /",
        "export MTL_SIM_CACHE=",
    ];
    finds(&scratch, &host, "kernel-cache", Warning, &words);
    mends(&scratch, &host, "kernel-cache", &words);
    let named = host.clone().with("MTL_SIM_CACHE", "/proc/no-cache");
    let words = [
        "cannot be cached in /proc/no-cache",
        "export MTL_SIM_CACHE=",
    ];
    finds(&scratch, &named, "kernel-cache", Error, &words);
    mends(&scratch, &named, "kernel-cache", &words);
    let vendor = scratch.path("root/vendor");
    fs_err::os::unix::fs::symlink("/no/such/disk", &vendor).unwrap();
    mends(
        &scratch,
        &host,
        "vendor",
        &[vendor.as_str(), "its target does not exist"],
    );
    // Another user's build is below a writable folder, but is not writable itself.
    let other = scratch.path("root/target/mlx/sim-0123456789ab");
    fs_err::create_dir_all(other.parent().unwrap()).unwrap();
    fs_err::os::unix::fs::symlink("/proc/self/attr", &other).unwrap();
    finds(
        &scratch,
        &host,
        "target",
        Error,
        &[other.as_str(), "is not writable"],
    );
    fs_err::remove_file(&other).unwrap();
    fs_err::create_dir_all(&other).unwrap();
    fs_err::os::unix::fs::symlink("/proc/self/attr", other.join("build")).unwrap();
    finds(
        &scratch,
        &host,
        "target",
        Error,
        &[other.join("build").as_str()],
    );
}

#[test]
fn a_lock_that_is_broken_or_gone_is_the_only_finding() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    let lock = scratch.path("root/mlx.lock");
    for text in [Some("[[patch"), Some(""), None] {
        match text {
            Some(text) => fs_err::write(&lock, text).unwrap(),
            None => fs_err::remove_file(&lock).unwrap(),
        }
        let words = [
            "mlx.lock",
            "-> `git checkout HEAD -- mlx.lock`",
            "apply-overlay --update-lock",
        ];
        finds(&scratch, &host, "lock", Error, &words);
        assert!(!lists(&scratch, &host, "tree"));
    }
    pin(&scratch);
    assert!(!lists(&scratch, &host, "lock"));
}

#[test]
fn patches_that_cannot_be_read_come_with_a_remedy_that_helps() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    finds(
        &scratch,
        &host,
        "tree",
        Error,
        &["patches", "git stash push --include-untracked -- patches"],
    );
}

#[test]
fn no_network_is_asked_where_cargo_must_not() {
    let scratch = Scratch::new();
    let host = debian(&scratch).with("CARGO_NET_OFFLINE", "true");
    finds(
        &scratch,
        &host,
        "sources",
        Warning,
        &[
            "CARGO_NET_OFFLINE",
            "forbids the network",
            "docs/guide/offline.md",
        ],
    );
    assert!(!lists(&scratch, &host, "git-source"));
    let asked = |line: &String| line.contains("ls-remote");
    assert_eq!(scratch.record().iter().find(|line| asked(line)), None);
    let online = host.with("CARGO_NET_OFFLINE", "false");
    assert!(lists(&scratch, &online, "git-source"));
}
