//! A Debian machine, and what may be wrong with it.

use xtask::doctor::Status::{Error, Ok, Warning};
use xtask::host::{Host, Os};

use crate::scratch::Scratch;
use crate::{finds, healthy};

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
    let pin = concat!(env!("CARGO_MANIFEST_DIR"), "/../mlx.toml");
    scratch.file("root/mlx.toml", &fs_err::read_to_string(pin).unwrap());
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
        &["cannot run `git --version`", "install git"],
    );
}

#[test]
fn a_policy_that_is_misspelt_and_a_pin_that_is_broken_are_named() {
    let scratch = Scratch::new();
    let host = debian(&scratch).with("MLX_QMV_POLICY", "stream");
    finds(
        &scratch,
        &host,
        "policy",
        Error,
        &["MLX_QMV_POLICY=stream", "streamed, exact"],
    );
    let host = host.with("MLX_QMV_POLICY", "streamed");
    finds(&scratch, &host, "policy", Ok, &["for every program"]);
    scratch.file("root/mlx.toml", "[mlx");
    finds(&scratch, &host, "pin", Error, &["mlx.toml", "git checkout"]);
}
