//! A scratch workspace, and a folder of fake programs that record their arguments. Used by two tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::os::unix::fs::PermissionsExt;

use camino::{Utf8Path, Utf8PathBuf};
use xtask::host::{Host, Os};
use xtask::proc::Cmd;

pub(crate) struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let scratch = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for dir in ["bin", "root", "inputs/metal-cpp"] {
            fs_err::create_dir_all(scratch.path(dir)).unwrap();
        }
        // Enough of MLX's two inputs for its CMake files to configure.
        scratch.file("inputs/json/CMakeLists.txt", "");
        scratch.file(
            "inputs/fmt/CMakeLists.txt",
            "add_library(fmt-header-only INTERFACE)\n\
             add_library(fmt::fmt-header-only ALIAS fmt-header-only)\n",
        );
        scratch
    }

    pub(crate) fn path(&self, relative: &str) -> Utf8PathBuf {
        Utf8Path::from_path(self.dir.path()).unwrap().join(relative)
    }

    pub(crate) fn file(&self, relative: &str, text: &str) -> Utf8PathBuf {
        let path = self.path(relative);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, text).unwrap();
        path
    }

    /// A fake program: it appends its name and arguments to the record, then runs `body`.
    pub(crate) fn fake(&self, name: &str, body: &str) {
        let record = self.path("record");
        let text = format!("#!/bin/sh\necho \"{name} $*\" >> {record}\n{body}\n");
        let text = self.file("fake", &text);
        fs_err::set_permissions(&text, PermissionsExt::from_mode(0o755)).unwrap();
        // Written by another process: a test that starts a program while the file is written would inherit the open
        // file, and a file that is open for writing cannot be run ("text file busy").
        let path = self.path(&format!("bin/{name}"));
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        Cmd::new("cp").args([text, path]).run().unwrap();
    }

    /// A link to this machine's own program.
    pub(crate) fn real(&self, name: &str) {
        let found = Host::current()
            .find(name)
            .unwrap_or_else(|| panic!("{name} is not installed"));
        fs_err::os::unix::fs::symlink(found, self.path("bin").join(name)).unwrap();
    }

    /// The command lines that the fakes recorded.
    pub(crate) fn record(&self) -> Vec<String> {
        let text = fs_err::read_to_string(self.path("record")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A host that finds only the programs in `bin`.
    pub(crate) fn host(&self, os: Os, arch: &str) -> Host {
        Host::new(
            os,
            arch,
            [("PATH".into(), self.path("bin").into_os_string())],
        )
        .with_packages_in(self.path("bin"))
    }
}
