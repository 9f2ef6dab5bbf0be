//! A small upstream repository, and a project that pins it.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::fmt::Write as _;
use std::process::{Command, Output};

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::{Oid, Repository, Signature, Time};
use patchset::Workspace;
use patchset::apply;
use patchset::bump::Outcome;
use patchset::patch::{self, Header};
use patchset::progress::QUIET;
use patchset::series::Series;

/// An upstream file: forty numbered lines and a function.
pub(crate) fn kernel() -> String {
    let mut text = String::from("// kernel\n");
    for line in 1..=20 {
        let _ = writeln!(text, "int line_{line} = {line};");
    }
    text += "\ntemplate <int bits>\nint dot(int a, int b) {\n  return a * b; // product\n}\n\n";
    for line in 21..=40 {
        let _ = writeln!(text, "int line_{line} = {line};");
    }
    text
}

/// Runs git without anyone's configuration or name.
#[allow(
    clippy::disallowed_methods,
    reason = "the engine's wrapper is not public"
)]
pub(crate) fn git_output(folder: &Utf8Path, args: &[&str]) -> Output {
    Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
        .args(["-c", "core.autocrlf=false"])
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_EDITOR", "true")
        .output()
        .unwrap()
}

/// The output of git, which must succeed.
pub(crate) fn git(folder: &Utf8Path, args: &[&str]) -> String {
    let out = git_output(folder, args);
    assert!(
        out.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

pub(crate) type Files<'a> = &'a [(&'a str, &'a str)];

/// A file's old path, its new one, and the change of its text.
pub(crate) type Renamed<'a> = (&'a str, &'a str, &'a dyn Fn(String) -> String);

/// An upstream repository in a temporary folder.
pub(crate) struct Upstream {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) repo: Repository,
}

impl Upstream {
    /// With release 1.0.0.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let repo = Repository::init(folder.path()).unwrap();
        let upstream = Self { folder, repo };
        upstream.release(
            "1.0.0",
            &[("src/k.cpp", &kernel()), ("src/other.cpp", "int other;\n")],
        );
        upstream
    }

    pub(crate) fn path(&self) -> &Utf8Path {
        Utf8Path::from_path(self.folder.path()).unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.path())
    }

    /// Changes some files, keeps the others, and tags the commit `v<version>`.
    pub(crate) fn release(&self, version: &str, files: Files<'_>) -> Oid {
        let parts: Vec<_> = version.split('.').collect();
        let header = format!(
            "#define MLX_VERSION_MAJOR {}\n#define MLX_VERSION_MINOR {}\n#define MLX_VERSION_PATCH {}\n",
            parts[0], parts[1], parts[2]
        );
        let mut files = files.to_vec();
        files.push(("mlx/version.h", &header));
        let commit = self.commit(&format!("Release {version}"), &files);
        let commit = self.repo.find_commit(commit).unwrap();
        self.repo
            .tag_lightweight(&format!("v{version}"), commit.as_object(), true)
            .unwrap();
        commit.id()
    }

    pub(crate) fn commit(&self, message: &str, files: Files<'_>) -> Oid {
        let parent = self
            .repo
            .head()
            .ok()
            .and_then(|head| head.peel_to_commit().ok());
        let mut index = git2::Index::new().unwrap();
        if let Some(parent) = &parent {
            index.read_tree(&parent.tree().unwrap()).unwrap();
        }
        for (path, text) in files {
            index
                .add(&entry(
                    path,
                    0o100_644,
                    self.repo.blob(text.as_bytes()).unwrap(),
                ))
                .unwrap();
        }
        let tree = index.write_tree_to(&self.repo).unwrap();
        let who = Signature::new("upstream", "upstream@localhost", &Time::new(0, 0)).unwrap();
        let tree = self.repo.find_tree(tree).unwrap();
        let parents: Vec<_> = parent.iter().collect();
        self.repo
            .commit(Some("HEAD"), &who, &who, message, &tree, &parents)
            .unwrap()
    }

    /// Changes the files of the next release with `change`, and tags it.
    pub(crate) fn release_with(
        &self,
        version: &str,
        change: impl FnOnce(&Repository, &mut git2::Index),
    ) -> Oid {
        let parent = self.repo.head().unwrap().peel_to_commit().unwrap();
        let mut index = git2::Index::new().unwrap();
        index.read_tree(&parent.tree().unwrap()).unwrap();
        change(&self.repo, &mut index);
        let tree = index.write_tree_to(&self.repo).unwrap();
        let tree = self.repo.find_tree(tree).unwrap();
        let who = parent.author();
        self.repo
            .commit(Some("HEAD"), &who, &who, "Change", &tree, &[&parent])
            .unwrap();
        self.release(version, &[])
    }

    /// Renames files in the next release, with their text changed.
    pub(crate) fn release_renamed(&self, version: &str, files: &[Renamed<'_>]) -> Oid {
        self.release_with(version, |repo, index| {
            for (from, to, change) in files {
                let old = index.get_path(from.as_ref(), 0).unwrap();
                let text = repo.find_blob(old.id).unwrap().content().to_vec();
                let text = change(String::from_utf8(text).unwrap());
                index.remove_path(from.as_ref()).unwrap();
                let blob = repo.blob(text.as_bytes()).unwrap();
                index.add(&entry(to, old.mode, blob)).unwrap();
            }
        })
    }

    pub(crate) fn tree(&self, commit: Oid) -> Oid {
        self.repo.find_commit(commit).unwrap().tree_id()
    }
}

pub(crate) fn entry(path: &str, mode: u32, id: Oid) -> git2::IndexEntry {
    let zero = git2::IndexTime::new(0, 0);
    git2::IndexEntry {
        ctime: zero,
        mtime: zero,
        dev: 0,
        ino: 0,
        mode,
        uid: 0,
        gid: 0,
        file_size: 0,
        id,
        flags: 0,
        flags_extended: 0,
        path: path.as_bytes().to_vec(),
    }
}

/// A project that pins [`Upstream`].
pub(crate) struct Project {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) workspace: Workspace,
}

/// A patch to make: its name, its edits of upstream files and the files it adds.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) name: &'a str,
    /// File, text to find, text to put in its place.
    pub(crate) edits: &'a [(&'a str, &'a str, &'a str)],
    pub(crate) adds: Files<'a>,
}

pub(crate) const WIDEN: Change<'_> = Change {
    name: "widen",
    edits: &[("src/k.cpp", "int line_30 = 30;", "long line_30 = 30;")],
    adds: &[],
};

pub(crate) fn header(name: &str, adds: Files<'_>) -> Header {
    let text = format!(
        "Subject: Change {name}\nWhy: because of\n a reason\nUpstream: not submitted.\nDrop-When: upstream has it.\nAdds: none\nTest: none\n\n"
    );
    let header = Header::parse(name, &text).unwrap();
    header.with_adds(adds.iter().map(|(path, _)| (*path).to_owned()))
}

impl Project {
    /// Pins upstream's release 1.0.0 with these patches, applied.
    pub(crate) fn new(upstream: &Upstream, changes: &[Change<'_>]) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), upstream, changes)
    }

    pub(crate) fn in_folder(
        folder: tempfile::TempDir,
        upstream: &Upstream,
        changes: &[Change<'_>],
    ) -> Self {
        let root = Utf8PathBuf::from_path_buf(fs::canonicalize(folder.path()).unwrap()).unwrap();
        let workspace = Workspace::at(&root);
        let commit = upstream.repo.revparse_single("v1.0.0").unwrap().id();
        let manifest = format!(
            "# A comment.\n[overlay]\nbudget-lines = 80\n\n[mlx]\nversion = \"1.0.0\" # why\ntag = \"v1.0.0\"\n\
             commit = \"{commit}\"\ntree = \"{}\"\ntree-origin = \"upstream\"\nlicence = \"MIT\"\n\n\
             [[mlx.source]]\ngit = {{ url = \"{}\" }}\n\n\
             [[watch]]\nfile = \"src/k.cpp\"\nfunctions = [\"dot\"]\n",
            upstream.tree(commit),
            upstream.url(),
        );
        fs::write(workspace.manifest_path(), manifest).unwrap();
        fs::create_dir_all(workspace.patches()).unwrap();
        let mut series = "# The order.\n".to_owned();
        let mut tree = upstream.tree(commit);
        for change in changes {
            let patched = edited(&upstream.repo, tree, change);
            let header = header(change.name, change.adds);
            let adds: Vec<_> = header.adds().collect();
            let bytes =
                patch::export(&upstream.repo, change.name, &header, tree, patched, &adds).unwrap();
            fs::write(
                workspace.patches().join(format!("{}.patch", change.name)),
                bytes,
            )
            .unwrap();
            for (path, text) in change.adds {
                let file = workspace.patches().join("files").join(path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            let _ = writeln!(series, "{}", change.name);
            tree = patched;
        }
        fs::write(workspace.patches().join("series"), series).unwrap();
        let options = apply::Options {
            update_lock: true,
            ..apply::Options::default()
        };
        assert_eq!(
            apply::apply(&workspace, &options, QUIET).unwrap().tree,
            tree
        );
        Self { folder, workspace }
    }

    pub(crate) fn root(&self) -> &Utf8Path {
        self.workspace.root()
    }

    /// All files of the project except `target` and `vendor`.
    pub(crate) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let walk = walkdir::WalkDir::new(self.root()).sort_by_file_name();
        let keep = |entry: &walkdir::DirEntry| {
            entry.depth() != 1 || !matches!(entry.file_name().to_str(), Some("target" | "vendor"))
        };
        walk.into_iter()
            .filter_entry(keep)
            .map(Result::unwrap)
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| {
                (
                    entry
                        .path()
                        .strip_prefix(self.root())
                        .unwrap()
                        .display()
                        .to_string(),
                    fs::read(entry.path()).unwrap(),
                )
            })
            .collect()
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }

    pub(crate) fn patch_names(&self) -> Vec<String> {
        Series::load(&self.workspace.patches())
            .unwrap()
            .patches
            .into_iter()
            .map(|patch| patch.name)
            .collect()
    }

    /// Applies the current files, and returns a file of the result.
    pub(crate) fn applied(&self, path: &str) -> String {
        apply::apply(&self.workspace, &apply::Options::default(), QUIET).unwrap();
        self.read(&format!("vendor/mlx/{path}"))
    }
}

/// The tree after a change.
pub(crate) fn edited(repo: &Repository, tree: Oid, change: &Change<'_>) -> Oid {
    let base = repo.find_tree(tree).unwrap();
    let mut index = git2::Index::new().unwrap();
    index.read_tree(&base).unwrap();
    for (path, from, to) in change.edits {
        let at = index.get_path(path.as_ref(), 0).unwrap();
        let text = String::from_utf8(repo.find_blob(at.id).unwrap().content().to_vec()).unwrap();
        assert!(text.contains(from), "{path} has no {from:?}");
        let blob = repo.blob(text.replacen(from, to, 1).as_bytes()).unwrap();
        index.add(&entry(path, at.mode, blob)).unwrap();
    }
    for (path, text) in change.adds {
        index
            .add(&entry(path, 0o100_644, repo.blob(text.as_bytes()).unwrap()))
            .unwrap();
    }
    index.write_tree_to(repo).unwrap()
}

/// The patch that waits and its worktree.
#[track_caller]
pub(crate) fn waits(outcome: Outcome) -> (String, Utf8PathBuf) {
    match outcome {
        Outcome::Conflict {
            patch,
            worktree: Some(worktree),
        } => (patch, worktree),
        outcome => panic!("{outcome:?}"),
    }
}
