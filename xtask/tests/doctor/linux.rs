//! A Debian machine, and what may be wrong with it.

use xtask::doctor::Status::{Error, Ok, Warning};
use xtask::host::{Host, Os};

use crate::scratch::Scratch;
use crate::{finding, finds, healthy, lists, pin};

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
    scratch.fake("cmake", "echo 'cmake version 3.22.1'");
    let install = "apt-get install -y --no-install-recommends";
    let old = [
        "is too old (cmake version 3.22.1)",
        &format!("{install} cmake"),
    ];
    finds(&scratch, &host, "cmake", Error, &old);
    fs_err::remove_file(scratch.path("bin/ninja")).unwrap();
    finds(
        &scratch,
        &host,
        "ninja",
        Error,
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
fn flags_and_conda_are_noticed() {
    let scratch = Scratch::new();
    let host = debian(&scratch).with("CXXFLAGS", "-O3 -ffast-math");
    finds(
        &scratch,
        &host,
        "compiler-flags",
        Error,
        &["CXXFLAGS has -ffast-math", "take it out"],
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
    finds(
        &scratch,
        &host,
        "policy",
        Error,
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
    finds(
        &scratch,
        &old,
        "policy",
        Error,
        &[
            "MLX_QMV_POLICY=streamed is no longer read",
            "streamed is now exact",
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
        ("CXX", "/no/such/c++", "cxx-compiler", "which is not there"),
        ("CXX", "false", "cxx-compiler", "failed (exit status: 1)"),
        ("CC", "nonesuch", "c-compiler", "which is not there"),
        (
            "MTL_SIM_CXX",
            "/no/clang",
            "kernel-compiler",
            "which is not there",
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
    let words = [&value, "the name of a program alone", "CXXFLAGS"];
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
        "leads nowhere",
        &format!("rm {target}"),
    ];
    finds(&scratch, &host, "target", Error, &words);
    fs_err::remove_file(&target).unwrap();
    let builds = scratch.file("root/target/mlx", "");
    let words = [builds.as_str(), "not a directory", &format!("rm {builds}")];
    finds(&scratch, &host, "target", Error, &words);
    fs_err::remove_file(&builds).unwrap();

    let mode = |bits| {
        fs_err::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(bits))
            .unwrap();
    };
    mode(0o555);
    // Root may write there all the same.
    if fs_err::write(target.join("probe"), "").is_err() {
        finds(
            &scratch,
            &host,
            "target",
            Error,
            &["permission denied", "chown"],
        );
    }
    mode(0o755);
    #[cfg(target_os = "linux")]
    {
        // Nobody can.
        fs_err::os::unix::fs::symlink("/sys", &builds).unwrap();
        finds(&scratch, &host, "target", Error, &["cannot be written"]);
    }
}

#[test]
fn variables_that_name_what_is_not_there_are_told() {
    let scratch = Scratch::new();
    let host = debian(&scratch);
    finds(&scratch, &host, "variables", Ok, &[]);
    for (name, value, why) in [
        ("MLX_OVERLAY_METALLIB", "/no/mlx.metallib", "not there"),
        ("MTL_SIM_COMPILER", "/no/metal-simc", "no program"),
        ("MTL_SIM_ARCH", "g99z", "generation 13 to 18"),
    ] {
        let host = host.clone().with(name, value);
        let remedy = format!("unset {name}");
        finds(
            &scratch,
            &host,
            "variables",
            Error,
            &[name, value, why, &remedy],
        );
    }
    let file = scratch.file("simc", "");
    let plain = host.clone().with("MTL_SIM_COMPILER", file.as_str());
    finds(&scratch, &plain, "variables", Error, &["no program"]);
    let good = host
        .with("MLX_OVERLAY_METALLIB", file.as_str())
        .with("MTL_SIM_COMPILER", scratch.path("bin/c++").as_str())
        .with("MTL_SIM_ARCH", "applegpu_g15s");
    finds(&scratch, &good, "variables", Ok, &[]);
}

#[test]
fn a_lock_that_is_broken_or_gone_is_the_only_thing_told_of_it() {
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
            "-> `git checkout mlx.lock`",
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
        &["patches", "git checkout patches"],
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
        &["CARGO_NET_OFFLINE", "not asked", "docs/offline.md"],
    );
    assert!(!lists(&scratch, &host, "git-source"));
    let asked = |line: &String| line.contains("ls-remote");
    assert_eq!(scratch.record().iter().find(|line| asked(line)), None);
    let online = host.with("CARGO_NET_OFFLINE", "false");
    assert!(lists(&scratch, &online, "git-source"));
}
