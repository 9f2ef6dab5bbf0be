//! The settings for other people's bindings, and which of them are refused.

#![allow(clippy::unwrap_used, reason = "a test stops where something is amiss")]

#[path = "support/stamp.rs"]
mod stamp;

use std::os::unix::fs::PermissionsExt;

use camino::{Utf8Path, Utf8PathBuf};
use mlx_prefix::{Backend, Stamp};
use xtask::env::{Consumer, Overlay, settings};
use xtask::host::{Host, Os};
use xtask::proc::Cmd;

use crate::stamp::stamp;

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        let scratch = Self(tempfile::tempdir().unwrap());
        scratch.file("root/vendor/mlx/setup.py", "");
        scratch
    }

    fn path(&self, relative: &str) -> Utf8PathBuf {
        Utf8Path::from_path(self.0.path()).unwrap().join(relative)
    }

    fn file(&self, relative: &str, text: &str) -> Utf8PathBuf {
        let path = self.path(relative);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, text).unwrap();
        path
    }

    /// mlx-c as it is when it is written for `version`.
    fn mlx_c(&self, folder: &str, version: &str) -> Utf8PathBuf {
        let text = format!(
            "find_package(MLX REQUIRED)\nFetchContent_Declare(\n    mlx\n    \
             GIT_REPOSITORY \"https://github.com/ml-explore/mlx.git\"\n    GIT_TAG v{version})\n"
        );
        self.file(&format!("{folder}/CMakeLists.txt"), &text);
        self.path(folder)
    }

    /// The settings, with `pinned` as this checkout's version.
    fn settings(
        &self,
        os: Os,
        backend: Backend,
        consumer: Consumer,
        accept: Option<&str>,
    ) -> Result<String, String> {
        let path = self.path("bin").into_os_string();
        let host = Host::new(os, "aarch64", [("PATH".into(), path)]);
        let stamp = built(backend);
        let overlay = Overlay {
            host: &host,
            root: &self.path("root"),
            version: "0.32.4",
            prefix: Utf8Path::new("/opt/mlx's"),
            stamp: &stamp,
            tree: &|| Ok(self.path("root/vendor/mlx")),
            input: &|name| Ok(Utf8Path::new("/inputs").join(name)),
            accept,
        };
        let project = matches!(consumer, Consumer::MlxC | Consumer::MlxRs);
        let project = project.then(|| self.path("project"));
        settings(&overlay, consumer, project.as_deref())
            .map(|settings| settings.to_string())
            .map_err(|error| format!("{error:#}"))
    }
}

fn built(backend: Backend) -> Stamp {
    Stamp {
        cpu: true,
        deployment_target: (backend == Backend::Metal).then(|| "26.2".to_owned()),
        ..stamp("0.32.4", "", backend)
    }
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn rust_gets_the_prefix_and_the_target_as_a_shell_reads_them() {
    let scratch = Scratch::new();
    let linux = scratch.settings(Os::Linux, Backend::Sim, Consumer::Rust, None);
    assert_eq!(
        linux.unwrap(),
        "export MLX_OVERLAY_PREFIX='/opt/mlx'\\''s'\n"
    );
    let mac = scratch.settings(Os::MacOs, Backend::Metal, Consumer::Rust, None);
    has(&mac.unwrap(), &["export MACOSX_DEPLOYMENT_TARGET='26.2'"]);
}

#[test]
fn cmake_gets_the_package_or_the_source_with_every_input() {
    let scratch = Scratch::new();
    let text = scratch
        .settings(Os::MacOs, Backend::Metal, Consumer::Cmake, None)
        .unwrap();
    has(&text, &["/share/cmake/MLX", "-DCMAKE_PROJECT_INCLUDE="]);
    let file = scratch.path("root/target/mlx/env/cmake/mlx-overlay-source.cmake");
    let text = fs_err::read_to_string(file).unwrap();
    let mlx = format!(
        "FETCHCONTENT_SOURCE_DIR_MLX [==[{}]==]",
        scratch.path("root/vendor/mlx")
    );
    has(
        &text,
        &[
            &mlx,
            "DIR_FMT [==[/inputs/fmt]==]",
            "DIR_JSON",
            "DIR_METAL_CPP",
        ],
    );
    // MLX's own tests fetch doctest, and they and its examples are on by default.
    for part in ["TESTS", "EXAMPLES", "BENCHMARKS"] {
        has(
            &text,
            &[&format!("set(MLX_BUILD_{part} OFF CACHE BOOL \"\" FORCE)")],
        );
    }
}

#[test]
fn a_consumer_for_another_mlx_is_refused_until_it_is_accepted_by_version() {
    let scratch = Scratch::new();
    let get = |accept| scratch.settings(Os::Linux, Backend::Sim, Consumer::MlxC, accept);
    scratch.mlx_c("project", "0.32.4");
    has(
        &get(None).unwrap(),
        &["MLX_DIR", "-DMLX_C_USE_SYSTEM_MLX=ON"],
    );
    scratch.mlx_c("project", "0.32.2");
    let refusal = get(None).unwrap_err();
    has(
        &refusal,
        &[
            "MLX 0.32.2",
            "pins 0.32.4",
            "`cargo xtask bump-pin v0.32.2 --dry-run`",
            "may need work by hand",
            "--accept 0.32.2",
        ],
    );
    assert_eq!(get(Some("0.31.2")).unwrap_err(), refusal);
    get(Some("0.32.2")).unwrap();
    scratch.file("project/CMakeLists.txt", "project(other)\n");
    has(&get(None).unwrap_err(), &["names no release of MLX"]);
}

#[test]
fn a_project_that_is_not_there_is_named() {
    let scratch = Scratch::new();
    let missing = format!("there is no folder {}", scratch.path("project"));
    for consumer in [Consumer::MlxC, Consumer::MlxRs] {
        let refusal = scratch.settings(Os::Linux, Backend::Sim, consumer, None);
        assert_eq!(refusal.unwrap_err(), missing);
    }
}

#[test]
fn an_option_that_a_consumer_has_no_use_for_is_a_usage_error() {
    let refuses = |consumer: &str, option: &str| {
        let run = Cmd::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["env", "--consumer", consumer, option, "0.32.2"])
            .output()
            .unwrap();
        let text = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{consumer} {option}: {text}");
        let refusal = format!("`--consumer {consumer}` takes no `{option}`");
        has(&text, &[&refusal]);
    };
    for consumer in ["rust", "cmake", "python"] {
        refuses(consumer, "--project");
        refuses(consumer, "--accept");
    }
}

#[test]
fn mlx_rs_is_found_by_cargo_and_has_a_folder_of_its_own_for_kernels() {
    let scratch = Scratch::new();
    let get = |os, backend| scratch.settings(os, backend, Consumer::MlxRs, None);
    scratch.file("project/Cargo.toml", "");
    let cargo = scratch.file("bin/cargo", "");
    let packages = |name: &str| {
        let manifest = scratch.path("mlx-sys/Cargo.toml");
        let json = format!(r#"{{"packages":[{{"name":"{name}","manifest_path":"{manifest}"}}]}}"#);
        fs_err::write(&cargo, format!("#!/bin/sh\necho '{json}'\n")).unwrap();
        fs_err::set_permissions(&cargo, PermissionsExt::from_mode(0o755)).unwrap();
    };
    packages("serde");
    has(
        &get(Os::MacOs, Backend::Metal).unwrap_err(),
        &["does not depend on mlx-rs"],
    );
    packages("mlx-sys");
    scratch.mlx_c("mlx-sys/src/mlx-c", "0.32.2");
    has(
        &get(Os::MacOs, Backend::Metal).unwrap_err(),
        &["mlx-sys/src/mlx-c", "MLX 0.32.2"],
    );
    scratch.mlx_c("mlx-sys/src/mlx-c", "0.32.4");
    has(
        &get(Os::MacOs, Backend::Metal).unwrap(),
        &[
            "CMAKE_TOOLCHAIN_FILE=",
            "MLX_RS_METAL_PATH=",
            "mlx-rs-kernels",
        ],
    );
    has(
        &get(Os::Linux, Backend::Sim).unwrap(),
        &["ci/mlx-rs.sh", "MLX_OVERLAY_PREFIX="],
    );
}

#[test]
fn python_builds_from_a_copy_and_on_the_simulated_device() {
    let scratch = Scratch::new();
    let text = scratch
        .settings(Os::Linux, Backend::Sim, Consumer::Python, None)
        .unwrap();
    has(
        &text,
        &[
            "CMAKE_PROJECT_mlx_INCLUDE=",
            "metal-simc",
            "-DMLX_BUILD_CPU=ON",
            "PYPI_RELEASE='1'",
        ],
    );
    let copy = scratch.path("root/target/mlx/env/python/mlx");
    has(&text, &[copy.as_str()]);
    // setup.py leaves files behind: they go with the next copy, and vendor/mlx never has them.
    fs_err::write(copy.join("left"), "").unwrap();
    scratch
        .settings(Os::Linux, Backend::Cpu, Consumer::Python, None)
        .unwrap();
    assert!(copy.join("setup.py").is_file() && !copy.join("left").exists());
}
