//! A small upstream and a project that pins it, both made with the programs that a person would use.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use xtask::proc::Cmd;

/// The file that patches edit.
pub(crate) const FILE: &str = "src/k.cpp";

/// The header of a patch.
pub(crate) const HEADER: &str = "\
Subject: Widen a line
Why: to see
Upstream: not submitted
Drop-When: upstream has it
Adds: none
Test: this
";

#[derive(Debug)]
pub(crate) struct Run {
    code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    /// Checks that it ended with this code, without a panic or a backtrace.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for leak in ["panicked", "stack backtrace"] {
            assert!(!self.err.contains(leak), "{self:#?}");
        }
        self
    }

    /// Checks that it failed, and that its one error chain contains all of `parts`.
    #[track_caller]
    pub(crate) fn fails_with(self, parts: &[&str]) -> Self {
        let run = self.exits(1);
        assert!(run.err.contains("error: "), "{run:#?}");
        for part in parts {
            assert!(run.err.contains(part), "no {part:?} in {run:#?}");
        }
        run
    }

    /// Checks that the command line was wrong and clap printed its usage.
    #[track_caller]
    pub(crate) fn shows_usage(self) {
        let run = self.exits(2);
        assert!(run.err.contains("Usage: cargo xtask"), "{run:#?}");
    }
}

/// The lines of a file in upstream.
pub(crate) fn text() -> String {
    (1..=40)
        .map(|line| format!("int line_{line} = {line};\n"))
        .collect()
}

/// A project with one patch, `widen`, that is applied.
pub(crate) struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    pub(crate) fn new() -> Self {
        let project = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for folder in ["upstream", "home", "checkout/patches"] {
            fs_err::create_dir_all(project.path(folder)).unwrap();
        }
        project.git("upstream", &["init", "--quiet", "--initial-branch=main"]);
        project.release("1.0.0", &text());
        let upstream = project.path("upstream");
        let tree = project.git("upstream", &["rev-parse", "HEAD^{tree}"]);
        let manifest = format!(
            "[overlay]\nbudget-lines = 60\n\n[mlx]\nversion = \"1.0.0\"\ntag = \"v1.0.0\"\n\
             tree = \"{tree}\"\ntree-origin = \"upstream\"\nlicence = \"MIT\"\n\n\
             [[mlx.source]]\ngit = {{ url = \"file://{upstream}\" }}\n"
        );
        project.write("checkout/mlx.toml", &manifest);
        project.write("checkout/patches/series", "");
        project.xtask(&["apply-overlay", "--update-lock"]).exits(0);
        project.xtask(&["patch", "edit"]).exits(0);
        let worktree = "checkout/target/patches/worktree";
        project.replace(&format!("{worktree}/{FILE}"), "int line_30", "long line_30");
        project.git(
            worktree,
            &[
                "commit",
                "--quiet",
                "--all",
                "-m",
                &format!("widen\n\n{HEADER}"),
            ],
        );
        project.xtask(&["patch", "export"]).exits(0);
        project.xtask(&["apply-overlay"]).exits(0);
        project
    }

    pub(crate) fn path(&self, relative: &str) -> Utf8PathBuf {
        Utf8Path::from_path(self.dir.path()).unwrap().join(relative)
    }

    pub(crate) fn read(&self, relative: &str) -> String {
        fs_err::read_to_string(self.path(relative)).unwrap()
    }

    pub(crate) fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    pub(crate) fn replace(&self, relative: &str, from: &str, to: &str) {
        let text = self.read(relative);
        assert!(text.contains(from), "{relative} has no {from:?}");
        self.write(relative, &text.replacen(from, to, 1));
    }

    /// Makes upstream's next release, with this text in its file.
    pub(crate) fn release(&self, version: &str, text: &str) {
        let [major, minor, patch] = version.split('.').collect::<Vec<_>>()[..] else {
            panic!("{version} is not a version")
        };
        let header = format!(
            "#define MLX_VERSION_MAJOR {major}\n#define MLX_VERSION_MINOR {minor}\n#define MLX_VERSION_PATCH {patch}\n"
        );
        self.write("upstream/mlx/version.h", &header);
        self.write(&format!("upstream/{FILE}"), text);
        for name in ["LICENSE", "ACKNOWLEDGMENTS.md"] {
            self.write(&format!("upstream/{name}"), name);
        }
        self.git("upstream", &["add", "--all"]);
        self.git("upstream", &["commit", "--quiet", "-m", version]);
        self.git("upstream", &["tag", &format!("v{version}")]);
    }

    pub(crate) fn git(&self, folder: &str, args: &[&str]) -> String {
        Cmd::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
            .args(args)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .dir(self.path(folder))
            .read()
            .unwrap()
    }

    /// Runs a line that a person copies from a remedy; `cargo xtask` in it is the program under test.
    #[track_caller]
    pub(crate) fn shell(&self, folder: &str, line: &str) {
        let cargo = format!("shift; exec '{}' \"$@\"", env!("CARGO_BIN_EXE_xtask"));
        let path = format!("{}:{}", self.program("cargo", &cargo), env!("PATH"));
        let command = Cmd::new("sh")
            .args(["-c", line])
            .env("PATH", path)
            .env("HOME", self.path("home"))
            .dir(self.path(folder));
        command.read().unwrap();
    }

    /// Runs `cargo xtask` in the project.
    pub(crate) fn xtask(&self, args: &[&str]) -> Run {
        self.run(self.command(args))
    }

    /// The same as a command, to be changed before it is run. Git's settings come from an empty home folder.
    pub(crate) fn command(&self, args: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xtask"))
            .args(args)
            .env("HOME", self.path("home"))
            .dir(self.path("checkout"))
    }

    pub(crate) fn run(&self, command: Cmd) -> Run {
        let output = command.output().unwrap();
        Run {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// All files of the project except those below `target` and `vendor`.
    pub(crate) fn files(&self) -> BTreeMap<Utf8PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.path("checkout")];
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir_utf8().unwrap() {
                let path = entry.unwrap().into_path();
                if ["target", "vendor"]
                    .map(|name| self.path("checkout").join(name))
                    .contains(&path)
                {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = fs_err::read(&path).unwrap();
                    files.insert(path, bytes);
                }
            }
        }
        files
    }

    /// Makes a program in its own folder and returns the folder.
    pub(crate) fn program(&self, name: &str, script: &str) -> Utf8PathBuf {
        use std::os::unix::fs::PermissionsExt;

        self.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        let path = self.path(&format!("bin/{name}"));
        fs_err::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        self.path("bin")
    }
}
