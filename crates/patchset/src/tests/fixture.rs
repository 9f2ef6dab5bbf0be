//! A small checkout: four upstream files, two patches, one added file, a lock.

use std::time::{Duration, SystemTime};

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::Oid;
use tempfile::TempDir;

use crate::apply::{Options, Outcome, Target, apply};
use crate::fetch::next_lock;
use crate::model::lock::Lock;
use crate::model::manifest::Manifest;
use crate::model::patch::{self, Header, Patch};
use crate::model::series::Series;
use crate::place::write_tree;
use crate::progress::QUIET;
use crate::sources::Fetched;
use crate::sources::store::Store;
use crate::state::{Inspection, State, inspect};
use crate::tree::{File, Mode, Snapshot};
use crate::{Result, Workspace};

pub(crate) const ADDED: &str = "dir/added.h";
const ADDED_TEXT: &[u8] = b"// added whole\n";

pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) workspace: Workspace,
    pub(crate) base: Oid,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn in_folder(folder: TempDir) -> Self {
        let root = Utf8Path::from_path(folder.path()).unwrap();
        let workspace = Workspace::at(root.join("checkout"));
        let upstream = upstream();
        write_snapshot(&root.join("upstream"), &upstream);
        let base = upstream.listing().unwrap().tree_id().unwrap();
        let fixture = Self {
            workspace,
            base,
            folder,
        };
        fs::create_dir_all(fixture.workspace.vendor()).unwrap();
        fixture.write_manifest(
            &format!("tree = \"{base}\"\ntree-origin = \"upstream\""),
            "",
        );
        fixture.write_patches();
        fixture.fill_store();
        fixture.write_lock();
        fixture
    }

    pub(crate) fn root(&self) -> &Utf8Path {
        Utf8Path::from_path(self.folder.path()).unwrap()
    }

    pub(crate) fn upstream(&self) -> Utf8PathBuf {
        self.root().join("upstream")
    }

    pub(crate) fn write_manifest(&self, tree: &str, sources: &str) {
        let text = format!(
            "[overlay]\nbudget-lines = 60\n\n[mlx]\nversion = \"1.0.0\"\ntag = \"v1.0.0\"\n{tree}\n\
             licence = \"MIT\"\n{sources}\n"
        );
        fs::write(self.workspace.manifest_path(), text).unwrap();
    }

    pub(crate) fn manifest(&self) -> Manifest {
        Manifest::load(&self.workspace.manifest_path()).unwrap()
    }

    pub(crate) fn series(&self) -> Series {
        Series::load(&self.workspace.patches()).unwrap()
    }

    pub(crate) fn lock(&self) -> Lock {
        Lock::load(&self.workspace.lock_path()).unwrap().unwrap()
    }

    /// Puts the upstream files into the store, so that nothing must be fetched.
    pub(crate) fn fill_store(&self) {
        let store = Store::open(&self.workspace).unwrap();
        let upstream = upstream();
        let listing = upstream.listing().unwrap();
        assert_eq!(store.insert(&upstream, &listing).unwrap(), self.base);
        store.adopt(self.base, "the fixture").unwrap();
    }

    pub(crate) fn write_lock(&self) {
        let fetched = Fetched {
            tree: self.base,
            source: String::new(),
            verdict: None,
            failures: Vec::new(),
            cached: true,
        };
        let repo = Store::open(&self.workspace).unwrap().overlay().unwrap();
        let manifest = self.manifest();
        let lock = next_lock(&repo, &manifest.mlx, &self.series(), None, &fetched, true).unwrap();
        lock.save(&self.workspace).unwrap();
    }

    /// Two patches on the upstream files; the first edits two of them, the second edits one of these again.
    fn write_patches(&self) {
        let patches = self.workspace.patches();
        let added = patches.join("files").join(ADDED);
        fs::create_dir_all(added.parent().unwrap()).unwrap();
        fs::write(added, ADDED_TEXT).unwrap();
        fs::write(patches.join("series"), "# in order\none\ntwo\n").unwrap();
        let mut tree = upstream();
        let before = tree.clone();
        edit(&mut tree, "a.txt", "line 3\n", "line three\n");
        edit(
            &mut tree,
            "b.txt",
            "line 2\n",
            "line two\nline two and a half\n",
        );
        fs::write(
            patches.join("one.patch"),
            export("one", &header("none"), &before, &tree),
        )
        .unwrap();
        let before = tree.clone();
        edit(&mut tree, "a.txt", "line 15\n", "");
        fs::write(
            patches.join("two.patch"),
            export("two", &header(ADDED), &before, &tree),
        )
        .unwrap();
    }

    pub(crate) fn patch_file(&self, name: &str) -> Utf8PathBuf {
        self.workspace.patches().join(format!("{name}.patch"))
    }

    pub(crate) fn parse(&self, name: &str) -> Patch {
        Patch::parse(name, &fs::read(self.patch_file(name)).unwrap()).unwrap()
    }

    pub(crate) fn apply(&self) -> Result<Outcome> {
        apply(
            &self.workspace,
            &Options {
                offline: true,
                ..Options::default()
            },
            QUIET,
        )
    }

    pub(crate) fn revert(&self) -> Result<Outcome> {
        let options = Options {
            offline: true,
            target: Target::Pristine,
            ..Options::default()
        };
        apply(&self.workspace, &options, QUIET)
    }

    pub(crate) fn inspect(&self) -> Inspection {
        inspect(&self.workspace, &self.lock(), &self.series()).unwrap()
    }

    pub(crate) fn state(&self) -> State {
        self.inspect().state
    }

    pub(crate) fn vendored(&self, path: &str) -> Utf8PathBuf {
        self.workspace.tree().join(path)
    }
}

/// Sets a file's time to an hour ago, so that a new time is visible.
pub(crate) fn make_old(path: &Utf8Path) -> SystemTime {
    let time = SystemTime::now() - Duration::from_secs(3600);
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
    time_of(path)
}

pub(crate) fn time_of(path: &Utf8Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

pub(crate) fn upstream() -> Snapshot {
    let lines = |count: usize| {
        (1..=count)
            .map(|n| format!("line {n}\n"))
            .collect::<String>()
    };
    let file = |mode, text: &str| File {
        mode,
        bytes: text.as_bytes().to_vec(),
    };
    Snapshot(
        [
            ("a.txt", file(Mode::Regular, &lines(20))),
            ("b.txt", file(Mode::Regular, &lines(5))),
            ("dir/run.sh", file(Mode::Executable, "#!/bin/sh\n")),
            ("dir/sub/link", file(Mode::Link, "../../a.txt")),
        ]
        .into_iter()
        .map(|(path, file)| (path.to_owned(), file))
        .collect(),
    )
}

pub(crate) fn edit(tree: &mut Snapshot, path: &str, from: &str, to: &str) {
    let file = tree.0.get_mut(path).unwrap();
    let text = String::from_utf8(file.bytes.clone()).unwrap();
    assert!(text.contains(from));
    file.bytes = text.replacen(from, to, 1).into_bytes();
}

pub(crate) fn header(adds: &str) -> Header {
    let text = format!(
        "Subject: A patch\nWhy: to test\n over two lines\nUpstream: none\nDrop-When: never\nAdds: {adds}\nTest: this\n\n"
    );
    Header::parse("header", &text).unwrap()
}

pub(crate) fn export(name: &str, header: &Header, before: &Snapshot, after: &Snapshot) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&Workspace::at(Utf8Path::from_path(folder.path()).unwrap())).unwrap();
    let insert = |tree: &Snapshot| store.insert(tree, &tree.listing().unwrap()).unwrap();
    patch::export(
        store.repo(),
        name,
        header,
        insert(before),
        insert(after),
        &[],
    )
    .unwrap()
}

pub(crate) fn write_snapshot(folder: &Utf8Path, snapshot: &Snapshot) {
    write_tree(folder, snapshot).unwrap();
}
