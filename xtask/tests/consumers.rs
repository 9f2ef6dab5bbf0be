//! The settings for other projects' bindings, and which projects are rejected.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/stamp.rs"]
mod stamp;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::SystemTime;

use camino::{Utf8Path, Utf8PathBuf};
use mlx_prefix::{Backend, Stamp};
use xtask::env::{Consumer, Overlay, settings};
use xtask::host::{Host, Os};
use xtask::proc::Cmd;

use crate::stamp::stamp;

struct Scratch {
    dir: tempfile::TempDir,
    /// The environment's `CMAKE_TOOLCHAIN_FILE`.
    toolchain: std::cell::RefCell<String>,
    /// The tree that the prefix was built from.
    tree: std::cell::Cell<&'static str>,
    /// Whether the prefix has the CPU back-end.
    cpu: std::cell::Cell<bool>,
}

impl Scratch {
    fn new() -> Self {
        let scratch = Self {
            dir: tempfile::tempdir().unwrap(),
            toolchain: String::new().into(),
            tree: "one".into(),
            cpu: true.into(),
        };
        scratch.file("root/vendor/mlx/setup.py", "");
        scratch
    }

    fn path(&self, relative: &str) -> Utf8PathBuf {
        Utf8Path::from_path(self.dir.path()).unwrap().join(relative)
    }

    fn file(&self, relative: &str, text: &str) -> Utf8PathBuf {
        let path = self.path(relative);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, text).unwrap();
        path
    }

    /// The mlx-c that is written for `version`.
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
        let host = Host::new(os, "aarch64", [("PATH".into(), path)])
            .with("CMAKE_TOOLCHAIN_FILE", self.toolchain.borrow().as_str());
        let stamp = Stamp {
            final_tree: self.tree.get().to_owned(),
            cpu: self.cpu.get(),
            ..built(backend)
        };
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
    has(&text, &["/share/cmake/MLX"]);
    let (_, file) = text.split_once("-DCMAKE_PROJECT_INCLUDE=").unwrap();
    let file = file.split(' ').next().unwrap();
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
            "set(MLX_OVERLAY_TREE one ",
        ],
    );
    // MLX's own tests fetch doctest; they and its examples are on by default.
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
        &[
            "MLX_DIR",
            "-DMLX_C_USE_SYSTEM_MLX=ON",
            "ci/mlx-c/project.cmake",
        ],
    );
    scratch.mlx_c("project", "0.32.2");
    let refusal = get(None).unwrap_err();
    has(
        &refusal,
        &[
            "MLX 0.32.2",
            "pins 0.32.4",
            "`cargo xtask bump-pin v0.32.2 --dry-run`",
            "may need manual work",
            "--accept 0.32.2",
        ],
    );
    assert_eq!(get(Some("0.31.2")).unwrap_err(), refusal);
    get(Some("0.32.2")).unwrap();
    scratch.file("project/CMakeLists.txt", "project(other)\n");
    has(&get(None).unwrap_err(), &["has no MLX release as GIT_TAG"]);
}

#[test]
fn a_project_that_is_not_there_is_named() {
    let scratch = Scratch::new();
    let missing = format!("the folder {} does not exist", scratch.path("project"));
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
        let refusal = format!("`--consumer {consumer}` does not accept `{option}`");
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
    // Kernels of one tree do not work with another.
    let kernels = || {
        value(
            &get(Os::MacOs, Backend::Metal).unwrap(),
            "MLX_RS_METAL_PATH",
        )
    };
    let of_one = kernels();
    scratch.tree.set("two");
    assert_ne!(kernels(), of_one);
    let linux = get(Os::Linux, Backend::Sim).unwrap();
    has(&linux, &["ci/mlx-rs.sh", "MLX_OVERLAY_PREFIX="]);
    assert!(!linux.contains("ACCEPT"), "{linux}");
    scratch.mlx_c("mlx-sys/src/mlx-c", "0.32.2");
    let accepted = scratch.settings(Os::Linux, Backend::Sim, Consumer::MlxRs, Some("0.32.2"));
    let script = format!(
        "#   ACCEPT=0.32.2 {}/ci/mlx-rs.sh {} test\n",
        scratch.path("root"),
        scratch.path("project")
    );
    has(&accepted.unwrap(), &[&script]);

    // A build without it compiles, but fails at run time.
    scratch.cpu.set(false);
    let refusal = scratch.settings(Os::Linux, Backend::Sim, Consumer::MlxRs, Some("0.32.2"));
    has(
        &refusal.unwrap_err(),
        &[
            "has no CPU back-end, but mlx-rs needs one",
            "`cargo xtask build --cpu`",
        ],
    );
}

#[test]
fn python_gets_a_wheel_over_the_library() {
    let scratch = Scratch::new();
    let get = || scratch.settings(Os::Linux, Backend::Sim, Consumer::Python, None);
    let text = get().unwrap();
    let root = scratch.path("root");
    let arguments = format!(r"'/opt/mlx'\''s' {root}/target/mlx/env/python");
    let install =
        format!("#   python3 -m pip install \"$({root}/ci/python-wheel.sh {arguments})\"\n");
    let environment = format!("#   {root}/ci/python-env.sh {arguments}\n");
    has(&text, &[&install, &environment, "MLX_OVERLAY_PREFIX="]);
    // Nothing is compiled, so nothing is copied.
    assert!(!root.join("target").exists());

    scratch.cpu.set(false);
    has(
        &get().unwrap_err(),
        &["has no CPU back-end, but python needs one", "--cpu`"],
    );
}

#[test]
fn python_on_a_mac_builds_from_a_copy_with_a_fingerprint_and_the_pins_version() {
    let scratch = Scratch::new();
    let text = scratch
        .settings(Os::MacOs, Backend::Metal, Consumer::Python, None)
        .unwrap();
    has(
        &text,
        &[
            "-DMLX_OVERLAY_TREE=one",
            "PYPI_RELEASE='1'",
            "DEV_RELEASE='0'",
        ],
    );
    let copy = value(&text, "MLX_PYTHON_SOURCE");
    assert!(Utf8Path::new(&copy).join("setup.py").is_file(), "{text}");
    has(&text, &["pip wheel", "\"$MLX_PYTHON_SOURCE\""]);
}

/// The value of a setting.
#[track_caller]
fn value(settings: &str, name: &str) -> String {
    let begin = format!("export {name}='");
    let mut lines = settings.lines();
    let value = lines.find_map(|line| line.strip_prefix(&begin)?.strip_suffix('\''));
    value
        .unwrap_or_else(|| panic!("no {name} in {settings}"))
        .to_owned()
}

/// Every file below `folder`: its inode, its time and its content.
fn snapshot(folder: &Utf8Path) -> BTreeMap<Utf8PathBuf, (u64, SystemTime, Vec<u8>)> {
    let mut files = BTreeMap::new();
    for entry in folder.read_dir_utf8().unwrap() {
        let path = entry.unwrap().into_path();
        if path.is_dir() {
            files.append(&mut snapshot(&path));
        } else {
            let metadata = fs_err::metadata(&path).unwrap();
            let time = metadata.modified().unwrap();
            let bytes = fs_err::read(&path).unwrap();
            files.insert(path, (metadata.ino(), time, bytes));
        }
    }
    files
}

/// What an earlier call named may be in use by a running build.
#[test]
fn printing_the_settings_again_leaves_what_they_named_alone() {
    let scratch = Scratch::new();
    let python = || {
        scratch
            .settings(Os::MacOs, Backend::Metal, Consumer::Python, None)
            .unwrap()
    };
    let cmake = || {
        scratch
            .settings(Os::MacOs, Backend::Metal, Consumer::Cmake, None)
            .unwrap()
    };
    let (first, sources) = (python(), cmake());
    let copy = Utf8PathBuf::from(value(&first, "MLX_PYTHON_SOURCE"));
    fs_err::create_dir(copy.join("build")).unwrap();
    fs_err::write(copy.join("build/object"), "half of it").unwrap();
    let env = scratch.path("root/target/mlx/env");
    let before = snapshot(&env);
    assert_eq!((python(), cmake()), (first.clone(), sources));
    assert_eq!(snapshot(&env), before);

    // Another tree has its own copy.
    scratch.file("root/vendor/mlx/setup.py", "another");
    scratch.tree.set("two");
    let two = value(&python(), "MLX_PYTHON_SOURCE");
    cmake();
    assert_ne!(two, copy);
    assert_eq!(
        fs_err::read_to_string(format!("{two}/setup.py")).unwrap(),
        "another"
    );
    let after = snapshot(&env);
    assert!(
        before
            .iter()
            .all(|(path, file)| after.get(path) == Some(file))
    );

    // Files lost or changed in a copy are restored, and nothing else changes.
    fs_err::write(format!("{two}/left"), "").unwrap();
    let before = snapshot(&env);
    fs_err::write(format!("{two}/setup.py"), "edited").unwrap();
    python();
    let after = snapshot(&env);
    let contents = |files: &BTreeMap<Utf8PathBuf, (_, _, Vec<u8>)>| {
        let files = files.iter();
        files
            .map(|(path, (_, _, bytes))| (path.clone(), bytes.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(contents(&after), contents(&before));
}

/// A toolchain file of ours that includes itself would never end.
#[test]
fn settings_in_force_include_the_toolchain_that_was_there_before_them() {
    let scratch = Scratch::new();
    let file = || {
        let text = scratch
            .settings(Os::MacOs, Backend::Metal, Consumer::Cmake, None)
            .unwrap();
        let (_, file) = text.split_once("-DCMAKE_PROJECT_INCLUDE=").unwrap();
        file.split(' ').next().unwrap().to_owned()
    };
    scratch
        .toolchain
        .replace("/their/toolchain.cmake".to_owned());
    let first = file();
    has(
        &fs_err::read_to_string(&first).unwrap(),
        &["include([==[/their/toolchain.cmake]==])"],
    );
    scratch.toolchain.replace(first.clone());
    assert_eq!(file(), first);
    // If there was none before, none is included.
    scratch.toolchain.replace(String::new());
    let alone = file();
    scratch.toolchain.replace(alone.clone());
    assert_eq!(file(), alone);
}
