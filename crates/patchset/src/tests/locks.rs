//! The lock: it round-trips, it is compared with pin and patches, and git confirms a reconstructed pin.

use std::sync::Mutex;

use fs_err as fs;
use git2::{Oid, Repository, Signature};

use super::fixture::{Fixture, edit, upstream};
use crate::Error;
use crate::check::{Check, check};
use crate::fetch::{Options, fetch};
use crate::model::lock::Lock;
use crate::progress::{Event, QUIET};
use crate::sources::store::Store;
use crate::state::State;
use crate::tree::Snapshot;

#[test]
fn the_text_round_trips() {
    let fixture = Fixture::new();
    let text = fs::read_to_string(fixture.workspace.lock_path()).unwrap();
    assert_eq!(fixture.lock().to_text().unwrap(), text);
    assert!(text.contains("dir/added.h"));
}

#[test]
fn a_lock_of_other_things_is_refused() {
    let fixture = Fixture::new();
    let good = fs::read_to_string(fixture.workspace.lock_path()).unwrap();
    let final_tree = fixture.lock().final_tree.to_string();
    let cases = [
        (
            "version = \"1.0.0\"",
            "version = \"0.9.0\"",
            "locks MLX 0.9.0",
        ),
        ("name = \"one\"", "name = \"uno\"", "[uno, two]"),
        (
            final_tree.as_str(),
            "00000000000000000000000000000000000000aa",
            "produce tree",
        ),
    ];
    for (from, to, expected) in cases {
        fs::write(fixture.workspace.lock_path(), good.replace(from, to)).unwrap();
        let error = fixture.apply().unwrap_err();
        assert!(
            matches!(&error, Error::LockDiffers(_)) && error.to_string().contains(expected),
            "{error}"
        );
        assert_eq!(fixture.state_of_tree(), None, "nothing may be written");
    }
    fs::write(
        fixture.workspace.lock_path(),
        good.replace("format = 1", "format = 2"),
    )
    .unwrap();
    assert!(matches!(fixture.apply(), Err(Error::Format { .. })));
    fs::remove_file(fixture.workspace.lock_path()).unwrap();
    assert!(matches!(fixture.apply(), Err(Error::LockMissing)));
}

impl Fixture {
    fn state_of_tree(&self) -> Option<()> {
        self.workspace.tree().exists().then_some(())
    }

    /// A repository next to the checkout, with `tree` at the tag v1.0.0; returns the commit.
    pub(crate) fn make_upstream_repository(&self, tree: &Snapshot) -> Oid {
        self.make_repository("repository", tree)
    }

    pub(crate) fn make_repository(&self, name: &str, tree: &Snapshot) -> Oid {
        let folder = self.root().join(name);
        let repo = Repository::init_bare(&folder).unwrap();
        let scratch = Store::open(&crate::Workspace::at(self.root().join("scratch"))).unwrap();
        let id = scratch.insert(tree, &tree.listing().unwrap()).unwrap();
        let objects = scratch.folder().join("objects");
        repo.odb()
            .unwrap()
            .add_disk_alternate(objects.as_str())
            .unwrap();
        fs::write(
            folder.join("objects/info/alternates"),
            format!("{objects}\n"),
        )
        .unwrap();
        let who = Signature::now("upstream", "upstream@example.org").unwrap();
        let commit = repo
            .commit(
                None,
                &who,
                &who,
                "release",
                &repo.find_tree(id).unwrap(),
                &[],
            )
            .unwrap();
        let object = repo.find_object(commit, None).unwrap();
        repo.tag("v1.0.0", &object, &who, "annotated", false)
            .unwrap();
        commit
    }

    pub(crate) fn pin_reconstructed(&self, commit: &str) {
        let tree = format!(
            "tree = \"{}\"\ntree-origin = \"reconstructed\"\ncommit = \"{commit}\"",
            self.base
        );
        let url = self.root().join("repository");
        self.write_manifest(
            &tree,
            &format!("[[mlx.source]]\ngit = {{ url = \"file://{url}\" }}"),
        );
    }
}

#[test]
fn git_confirms_a_reconstructed_pin() {
    let fixture = Fixture::new();
    let commit = fixture.make_upstream_repository(&upstream());
    fixture.pin_reconstructed(&commit.to_string()[..7]);
    let options = Options {
        refresh: true,
        ..Options::default()
    };
    let outcome = fetch(&fixture.workspace, &options, QUIET).unwrap();

    assert!(outcome.lock_written);
    let lock = fixture.lock();
    let confirmed = lock.confirmed.as_ref().unwrap();
    assert_eq!((confirmed.commit, confirmed.tree), (commit, fixture.base));
    assert_eq!(lock.base_tree, fixture.base);
    assert!(
        !fetch(&fixture.workspace, &options, QUIET)
            .unwrap()
            .lock_written,
        "the second time nothing is new"
    );
    fixture.apply().unwrap();
    assert_eq!(fixture.lock(), lock, "applying keeps what git said");
}

/// Upstream's files with one change, like those of a forger or a moved tag.
fn other() -> Snapshot {
    let mut other = upstream();
    edit(&mut other, "dir/run.sh", "#!/bin/sh\n", "#!/bin/bash\n");
    other
}

/// Seven digits can be brute-forced in a second: a commit that starts with them proves nothing about its tree.
#[test]
fn a_commit_with_the_pinned_digits_confirms_no_other_tree() {
    let fixture = Fixture::new();
    let commit = fixture.make_upstream_repository(&other());
    fixture.pin_reconstructed(&commit.to_string()[..7]);
    let lock = fixture.lock();
    let options = Options {
        refresh: true,
        ..Options::default()
    };
    // The tree is here already, so the difference can be reported.
    let text = fetch(&fixture.workspace, &options, QUIET)
        .unwrap_err()
        .to_string();
    let tree = other().listing().unwrap().tree_id().unwrap();
    for part in [
        &fixture.base.to_string(),
        &tree.to_string(),
        "1 changed: dir/run.sh",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(fixture.lock(), lock);
    fixture.apply().unwrap();
    assert_eq!(
        fs::read_to_string(fixture.vendored("dir/run.sh")).unwrap(),
        "#!/bin/sh\n"
    );
}

#[test]
fn a_source_with_another_tree_is_skipped_with_a_warning_and_the_next_serves() {
    let fixture = Fixture::new();
    fixture.make_repository("forged", &other());
    let commit = fixture.make_repository("right", &upstream());
    let source = |name: &str| {
        let root = fixture.root();
        format!("[[mlx.source]]\ngit = {{ url = \"file://{root}/{name}\" }}\n")
    };
    let tree = format!(
        "tree = \"{}\"\ntree-origin = \"reconstructed\"",
        fixture.base
    );
    fixture.write_manifest(&tree, &(source("forged") + &source("right")));
    fs::remove_dir_all(fixture.workspace.cache()).unwrap();

    let warnings = Mutex::new(Vec::new());
    let outcome = fetch(&fixture.workspace, &Options::default(), &|event| {
        if let Event::Skipped(text) = event {
            warnings.lock().unwrap().push(text.to_owned());
        }
    })
    .unwrap();
    let forged = other().listing().unwrap().tree_id().unwrap();
    let warnings = warnings.into_inner().unwrap();
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}")
    };
    for part in [
        "forged",
        &fixture.base.to_string(),
        &forged.to_string(),
        "1 changed: dir/run.sh",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert_eq!(outcome.mlx.failures[0].other, Some(forged));
    let confirmed = fixture.lock().confirmed.unwrap();
    assert_eq!((confirmed.commit, confirmed.tree), (commit, fixture.base));
}

#[test]
fn another_tree_replaces_a_reconstructed_one_by_the_users_word_and_back() {
    let fixture = Fixture::new();
    let commit = fixture.make_upstream_repository(&other());
    fixture.pin_reconstructed(&commit.to_string()[..7]);
    let before = fixture.lock();
    let tree = other().listing().unwrap().tree_id().unwrap();
    let accept = |tree| Options {
        accept: Some(tree),
        ..Options::default()
    };
    let outcome = fetch(&fixture.workspace, &accept(tree), QUIET).unwrap();
    assert!(outcome.lock_written);
    let lock = fixture.lock();
    let replaced = lock.replaced.as_ref().unwrap();
    assert_eq!(
        (replaced.tree, replaced.pinned, replaced.commit),
        (tree, fixture.base, Some(commit))
    );
    assert_eq!((lock.base_tree, &lock.confirmed), (tree, &None));
    fixture.apply().unwrap();
    assert_eq!(fixture.state(), State::Applied);
    assert_eq!(fixture.lock(), lock, "applying keeps the user's decision");
    assert_eq!(
        fs::read_to_string(fixture.vendored("dir/run.sh")).unwrap(),
        "#!/bin/bash\n"
    );
    // The reconstruction no longer counts.
    let old = Options {
        source: Some(fixture.upstream()),
        ..Options::default()
    };
    let error = fetch(&fixture.workspace, &old, QUIET)
        .unwrap_err()
        .to_string();
    assert!(error.contains("1 changed: dir/run.sh"), "{error}");

    fetch(&fixture.workspace, &accept(fixture.base), QUIET).unwrap();
    assert_eq!(fixture.lock(), before);
    // A verdict on one pin must not be used for another.
    fixture.write_manifest(
        &format!("tree = \"{}\"\ntree-origin = \"upstream\"", fixture.base),
        "",
    );
    let error = fetch(&fixture.workspace, &accept(tree), QUIET).unwrap_err();
    assert!(matches!(error, Error::NotReplaceable(tree) if tree == fixture.base));
}

/// A lock in the form of an earlier version, based on seven digits.
#[test]
fn a_lock_that_calls_another_tree_confirmed_is_refused() {
    let fixture = Fixture::new();
    let commit = fixture.make_upstream_repository(&other());
    fixture.pin_reconstructed(&commit.to_string()[..7]);
    let tree = other().listing().unwrap().tree_id().unwrap();
    fetch(
        &fixture.workspace,
        &Options {
            accept: Some(tree),
            ..Options::default()
        },
        QUIET,
    )
    .unwrap();
    let text = fs::read_to_string(fixture.workspace.lock_path()).unwrap();
    let forged = text
        .replace("[replaced]", "[confirmed]")
        .replace(&format!("pinned = \"{}\"\n", fixture.base), "");
    assert!(forged.contains("[confirmed]") && !forged.contains("pinned"));
    fs::write(fixture.workspace.lock_path(), forged).unwrap();
    let error = fixture.apply().unwrap_err();
    assert!(
        matches!(&error, Error::LockDiffers(_)) && error.to_string().contains("its base is tree"),
        "{error}"
    );
}

#[test]
fn another_commit_at_the_tag_is_refused() {
    let fixture = Fixture::new();
    let commit = fixture.make_upstream_repository(&upstream());
    fixture.pin_reconstructed("0123456");
    let error = fetch(
        &fixture.workspace,
        &Options {
            refresh: true,
            ..Options::default()
        },
        QUIET,
    )
    .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("expected commit 0123456") && text.contains(&commit.to_string()),
        "{text}"
    );
    assert_eq!(
        Lock::load(&fixture.workspace.lock_path())
            .unwrap()
            .unwrap()
            .confirmed,
        None
    );
}

/// A merge leaves such a file; even `--update-lock` reads it first.
#[test]
fn a_lock_that_does_not_read_is_refused_with_its_line() {
    let fixture = Fixture::new();
    let file = fixture.workspace.lock_path();
    fs::write(&file, "<<<<<<< HEAD\n").unwrap();
    let error = fixture.apply().unwrap_err();
    assert!(
        matches!(&error, Error::Format { file, line: 1, .. } if file == "mlx.lock"),
        "{error}"
    );
}

#[test]
fn a_lock_file_of_git_that_a_killed_run_left_stops_nobody() {
    let fixture = Fixture::new();
    let store = Store::open(&fixture.workspace).unwrap();
    let trees = store.folder().join("refs/trees");
    fs::create_dir_all(&trees).unwrap();
    fs::write(trees.join(format!("{}.lock", fixture.base)), "").unwrap();
    fixture.fill_store();
    assert_eq!(
        store.source_of(fixture.base).as_deref(),
        Some("the fixture")
    );
    // Other lock files of git do not either, in a complete cache and in an unfinished one.
    fs::write(store.folder().join("config.lock"), "").unwrap();
    let again = Store::open(&fixture.workspace).unwrap();
    assert!(again.source_of(fixture.base).is_some());
    for missing in ["config", "HEAD"] {
        fs::remove_file(store.folder().join(missing)).unwrap();
        Store::open(&fixture.workspace).unwrap();
        fixture.fill_store();
        assert!(store.source_of(fixture.base).is_some());
    }
    let left = fs::read_dir(fixture.workspace.cache()).unwrap();
    assert_eq!(left.count(), 1);
}

/// With the names of this version and of earlier ones.
#[test]
fn what_a_killed_fetch_left_is_removed_by_the_next_run() {
    let fixture = Fixture::new();
    let cache = fixture.workspace.cache();
    let left = ["tmp-1/fetched", "mlx.git-2/made", "inputs/.unpacking-3/fmt"];
    for name in left {
        fs::create_dir_all(cache.join(name)).unwrap();
    }
    let label = cache.join("mlx.git/sources");
    fs::write(label.join(format!(".{}.4711", fixture.base)), "begun").unwrap();
    fixture.fill_store();
    for name in left {
        let folder = cache.join(name);
        assert!(!folder.parent().unwrap().exists(), "{name}");
    }
    assert_eq!(fs::read_dir(label).unwrap().count(), 1);
}

#[test]
fn the_published_copy_follows_the_lock() {
    let fixture = Fixture::new();
    let copy = fixture
        .workspace
        .root()
        .join("crates/mlx-overlay-sys/mlx.lock");
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    let lock = fs::read_to_string(fixture.workspace.lock_path()).unwrap();
    let update = || {
        let options = crate::apply::Options {
            update_lock: true,
            offline: true,
            ..Default::default()
        };
        crate::apply::apply(&fixture.workspace, &options, QUIET).unwrap()
    };
    // Missing, a link as git writes it without links, a link, and one for another pin.
    type Spoil = fn(&camino::Utf8Path);
    let spoil: [Spoil; 4] = [
        |_| {},
        |copy| fs::write(copy, "../../mlx.lock").unwrap(),
        |copy| {
            fs::remove_file(copy).unwrap();
            std::os::unix::fs::symlink("../../mlx.lock", copy).unwrap();
        },
        |copy| {
            let text = fs::read_to_string(copy).unwrap();
            fs::write(copy, text.replace("1.0.0", "0.9.0")).unwrap();
        },
    ];
    for spoil in spoil {
        spoil(&copy);
        let faults = check(&fixture.workspace, Check::Lock, None, QUIET).faults;
        if !copy.is_symlink() {
            assert!(
                matches!(faults.as_slice(), [Error::LockDiffers(why)] if why[0].contains("mlx-overlay-sys/mlx.lock")),
                "{faults:?}"
            );
        }
        assert!(update().lock_written);
        assert!(!copy.is_symlink());
        assert_eq!(fs::read_to_string(&copy).unwrap(), lock);
        assert!(!update().lock_written);
        let findings = check(&fixture.workspace, Check::Lock, None, QUIET);
        assert!(findings.faults.is_empty());
    }
    assert_eq!(
        fs::read_to_string(fixture.workspace.lock_path()).unwrap(),
        lock
    );
}

/// The lock of this repository.
#[test]
fn the_published_copy_is_a_file_that_equals_the_lock() {
    let workspace = super::real::repository();
    let [lock, copy] = workspace.lock_files()[..] else {
        panic!("{:?}", workspace.lock_files())
    };
    let copy = workspace.root().join(copy);
    assert!(!copy.is_symlink());
    let lock = fs::read_to_string(workspace.root().join(lock)).unwrap();
    assert_eq!(fs::read_to_string(copy).unwrap(), lock);
}

/// This repository as people with these settings have it.
#[test]
fn a_clone_has_the_same_bytes_whatever_git_is_set_to() {
    let scratch = tempfile::tempdir().unwrap();
    let clone = camino::Utf8Path::from_path(scratch.path())
        .unwrap()
        .join("clone");
    let root = super::real::repository().root().to_owned();
    let status = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "clone", "-q", "--depth=1"])
        .args(["-c", "core.autocrlf=true", "-c", "core.eol=crlf"])
        .args(["-c", "core.symlinks=false"])
        .arg(format!("file://{root}"))
        .arg(&clone)
        .status()
        .unwrap();
    assert!(status.success());
    let files = Snapshot::of_dir(&clone).unwrap();
    let changed = files
        .0
        .iter()
        .filter(|(_, file)| file.bytes.windows(2).any(|pair| pair == b"\r\n"));
    assert_eq!(changed.map(|(path, _)| path).next(), None);
    let workspace = crate::Workspace::at(&clone);
    crate::Project::open(&workspace, QUIET).unwrap();
    let lock = Lock::load(&workspace.lock_path()).unwrap().unwrap();
    assert_eq!(lock.other_copy(&workspace), None);
}
