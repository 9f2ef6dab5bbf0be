//! Sources that provide something else, or nothing.

use std::os::unix::fs::PermissionsExt;

use camino::Utf8Path;
use fs_err as fs;
use git2::{Repository, Signature};

use super::fixture::{Fixture, upstream, write_snapshot};
use crate::error::RepositoryFault;
use crate::fetch::{Options, Outcome, fetch};
use crate::progress::QUIET;
use crate::sources::store::Store;
use crate::tree::Listing;
use crate::{Error, Result};

impl Fixture {
    /// Fetches from a path, with an empty store.
    fn fetch_from(&self, path: &Utf8Path) -> Result<Outcome> {
        let _ = fs::remove_dir_all(self.workspace.cache());
        let options = Options {
            source: Some(path.to_owned()),
            offline: true,
            ..Options::default()
        };
        fetch(&self.workspace, &options, QUIET)
    }

    fn fetch_pinned(&self) -> Result<Outcome> {
        let _ = fs::remove_dir_all(self.workspace.cache());
        fetch(&self.workspace, &Options::default(), QUIET)
    }
}

#[test]
fn a_folder_must_hash_to_the_pinned_tree() {
    let fixture = Fixture::new();
    let commit = fixture.make_upstream_repository(&upstream());
    assert_eq!(
        fixture.fetch_from(&fixture.upstream()).unwrap().mlx.tree,
        fixture.base
    );

    // The pin's own source then shows which files differ.
    let url = fixture.root().join("repository");
    let tree = format!(
        "tree = \"{}\"\ntree-origin = \"upstream\"\ncommit = \"{commit}\"",
        fixture.base
    );
    fixture.write_manifest(
        &tree,
        &format!("[[mlx.source]]\ngit = {{ url = \"{url}\" }}"),
    );
    type Spoil = fn(&Utf8Path);
    let spoil: [(Spoil, &str); 5] = [
        (
            |root| {
                fs::write(
                    root.join("b.txt"),
                    "line 1\nline 2\nline 3\nline 4\nline 6\n",
                )
                .unwrap()
            },
            "1 changed: b.txt",
        ),
        (
            |root| {
                fs::set_permissions(
                    root.join("dir/run.sh"),
                    std::fs::Permissions::from_mode(0o644),
                )
                .unwrap()
            },
            "1 with another mode: dir/run.sh",
        ),
        (
            |root| fs::remove_file(root.join("a.txt")).unwrap(),
            "1 missing: a.txt",
        ),
        (
            |root| fs::write(root.join("extra"), "").unwrap(),
            "1 added: extra",
        ),
        (
            |root| {
                fs::remove_file(root.join("dir/sub/link")).unwrap();
                std::os::unix::fs::symlink("../run.sh", root.join("dir/sub/link")).unwrap();
            },
            "1 changed: dir/sub/link",
        ),
    ];
    for (number, (spoil, expected)) in spoil.iter().enumerate() {
        let folder = fixture.root().join(format!("spoiled-{number}"));
        write_snapshot(&folder, &upstream());
        spoil(&folder);
        let error = fixture.fetch_from(&folder).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::Sources { .. }) && text.contains(expected),
            "{expected}: {text}"
        );
    }
}

#[test]
fn a_repository_gives_the_pinned_tree_whatever_is_checked_out() {
    let fixture = Fixture::new();
    fixture.make_upstream_repository(&upstream());
    let outcome = fixture
        .fetch_from(&fixture.root().join("repository"))
        .unwrap();
    assert_eq!(outcome.mlx.tree, fixture.base);
}

/// A repository with a work tree in the upstream folder, everything committed.
fn commit_all(folder: &Utf8Path) -> Repository {
    let repo = Repository::init(folder).unwrap();
    let mut index = repo.index().unwrap();
    index
        .add_all(["*"], git2::IndexAddOption::DEFAULT, None)
        .unwrap();
    index.write().unwrap();
    let tree = repo.find_tree(index.write_tree().unwrap()).unwrap();
    let who = Signature::now("upstream", "upstream@example.org").unwrap();
    repo.commit(Some("HEAD"), &who, &who, "all", &tree, &[])
        .unwrap();
    drop(tree);
    repo
}

#[test]
fn of_a_work_tree_its_commits_count_and_not_its_files() {
    let fixture = Fixture::new();
    let folder = fixture.upstream();
    commit_all(&folder);
    fs::write(folder.join("untracked"), "").unwrap();
    fs::write(folder.join("a.txt"), "edited").unwrap();
    assert_eq!(fixture.fetch_from(&folder).unwrap().mlx.tree, fixture.base);

    // The right files without a commit are not a commit.
    let other = fixture.root().join("uncommitted");
    write_snapshot(&other, &upstream());
    Repository::init(&other).unwrap();
    let error = fixture.fetch_from(&other).unwrap_err().to_string();
    let lacks = format!(
        "this repository has neither tag v1.0.0 nor tree {}",
        fixture.base
    );
    assert!(error.contains(&lacks), "{error}");
}

/// Each of them has the pinned files in its work tree.
#[test]
fn a_repository_that_does_not_open_is_no_folder_of_files() {
    let fixture = Fixture::new();
    type Spoil = fn(&Utf8Path);
    let spoil: [Spoil; 4] = [
        |git| {
            fs::write(
                git.join("config"),
                "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n",
            )
            .unwrap()
        },
        |git| {
            fs::write(
                git.join("config"),
                "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tnewer = true\n",
            )
            .unwrap()
        },
        |git| {
            fs::remove_dir_all(git).unwrap();
            fs::write(git, "gitdir: ../nowhere\n").unwrap();
        },
        |git| {
            fs::remove_dir_all(git).unwrap();
            std::os::unix::fs::symlink("nowhere", git).unwrap();
        },
    ];
    for (number, spoil) in spoil.iter().enumerate() {
        let folder = fixture.root().join(format!("spoiled-{number}"));
        write_snapshot(&folder, &upstream());
        commit_all(&folder);
        spoil(&folder.join(".git"));
        let error = fixture.fetch_from(&folder).unwrap_err();
        assert!(
            matches!(
                &error,
                Error::Repository {
                    fault: RepositoryFault::Unreadable(_),
                    ..
                }
            ),
            "{number}: {error}"
        );
    }
    let bare = fixture.root().join("bare");
    Repository::init_bare(&bare).unwrap();
    fs::write(bare.join("config"), "[core\n").unwrap();
    let error = fixture.fetch_from(&bare).unwrap_err().to_string();
    assert!(error.contains("cannot be opened"), "{error}");
}

/// A fault of a repository is not reported as the cache's.
#[test]
fn a_tag_without_a_commit_is_the_repositorys_fault() {
    let fixture = Fixture::new();
    let folder = fixture.root().join("repository");
    let repo = Repository::init_bare(&folder).unwrap();
    let blob = repo.blob(b"no commit").unwrap();
    repo.reference("refs/tags/v1.0.0", blob, false, "").unwrap();
    let error = fixture.fetch_from(&folder).unwrap_err();
    assert!(
        matches!(&error, Error::Source { origin, .. } if *origin == folder),
        "{error}"
    );
    let pipe = fixture.root().join("pipe");
    std::os::unix::net::UnixListener::bind(&pipe).unwrap();
    let error = fixture.fetch_from(&pipe).unwrap_err().to_string();
    assert!(error.contains("neither a file nor a folder"), "{error}");
}

/// The limit on paths also limits recursion over a tree.
#[test]
fn a_tree_of_git_that_is_too_deep_is_refused() {
    let fixture = Fixture::new();
    let store = Store::open(&fixture.workspace).unwrap();
    let repo = store.repo();
    let mut tree = repo.treebuilder(None).unwrap().write().unwrap();
    for _ in 0..5_000 {
        let mut builder = repo.treebuilder(None).unwrap();
        builder.insert("d", tree, 0o040_000).unwrap();
        tree = builder.write().unwrap();
    }
    let error = Listing::of_tree(repo, tree).unwrap_err().to_string();
    assert!(error.contains("below more than 64 folders"), "{error}");
}

#[test]
fn a_repository_whose_tag_has_another_tree_says_so() {
    let fixture = Fixture::new();
    let mut other = upstream();
    other.0.remove("b.txt");
    fixture.make_upstream_repository(&other);
    let error = fixture
        .fetch_from(&fixture.root().join("repository"))
        .unwrap_err()
        .to_string();
    let found = other.listing().unwrap().tree_id().unwrap();
    assert!(
        error.contains(&format!("expected tree {}, found {found}", fixture.base)),
        "{error}"
    );
}

/// The command in the remedy fetches what is missing.
#[test]
fn a_partial_clone_is_told_as_such_and_completed_by_git() {
    let fixture = Fixture::new();
    let commit = fixture.make_upstream_repository(&upstream());
    let root = fixture.root();
    let repo = Repository::open_bare(root.join("repository")).unwrap();
    repo.reference("refs/heads/main", commit, false, "")
        .unwrap();
    repo.set_head("refs/heads/main").unwrap();
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git")
            .args(["-c", "safe.directory=*"])
            .args(args)
            .current_dir(root)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    git(&[
        "-C",
        "repository",
        "config",
        "uploadpack.allowFilter",
        "true",
    ]);
    let url = format!("file://{root}/repository");
    for filter in ["blob:none", "tree:0"] {
        let name = filter.replace(':', "-");
        let filter = format!("--filter={filter}");
        git(&["clone", "-q", "--no-checkout", &filter, &url, &name]);
        let clone = root.join(&name);
        let error = fixture.fetch_from(&clone).unwrap_err();
        assert!(
            matches!(
                &error,
                Error::Repository {
                    fault: RepositoryFault::Incomplete(_),
                    ..
                }
            ),
            "{filter}: {error}"
        );
        git(&["-C", &name, "fetch", "-q", "--refetch", "--no-filter"]);
        let fetched = fixture.fetch_from(&clone).unwrap();
        assert_eq!(fetched.mlx.tree, fixture.base);
    }
}

#[test]
fn a_source_that_is_not_there_is_named() {
    let fixture = Fixture::new();
    let path = fixture.root().join("nothing-here");
    let error = fixture.fetch_from(&path).unwrap_err().to_string();
    assert!(
        error.contains("nothing-here")
            && error.contains("expected a folder, a git repository or an archive")
    );
}

#[test]
fn every_source_is_tried_and_every_reason_reported() {
    let fixture = Fixture::new();
    let commit = fixture.make_upstream_repository(&upstream());
    let (root, base) = (fixture.root(), fixture.base);
    let sources = |tag: &str| {
        format!(
            "commit = \"{commit}\"\n\
             [[mlx.source]]\ngit = {{ url = \"file://{root}/no-such-repository\" }}\n\
             [[mlx.source]]\ngit = {{ url = \"file://{root}/repository\" }}\n{tag}"
        )
    };
    let tree = format!("tree = \"{base}\"\ntree-origin = \"upstream\"");
    fixture.write_manifest(&tree, &sources(""));
    let outcome = fixture.fetch_pinned().unwrap();
    assert_eq!(outcome.mlx.failures.len(), 1);
    assert!(
        outcome.mlx.failures[0]
            .reason
            .contains("no-such-repository"),
        "{}",
        outcome.mlx.failures[0]
    );

    // A tag that upstream does not have.
    let text = fs::read_to_string(fixture.workspace.manifest_path()).unwrap();
    fs::write(
        fixture.workspace.manifest_path(),
        text.replace("v1.0.0", "v9.9.9"),
    )
    .unwrap();
    let error = fixture.fetch_pinned().unwrap_err().to_string();
    assert_eq!(error.matches("\n  - git file://").count(), 2, "{error}");
    assert!(
        error.contains("couldn't find remote ref refs/tags/v9.9.9"),
        "{error}"
    );

    // A commit that upstream does not have.
    let text = text
        .replace("tag = \"v1.0.0\"\n", "")
        .replace(&commit.to_string(), &"ab".repeat(20));
    fs::write(fixture.workspace.manifest_path(), text).unwrap();
    let error = fixture.fetch_pinned().unwrap_err().to_string();
    assert!(error.contains("not our ref abab"), "{error}");
}

#[test]
fn a_commit_can_be_fetched_where_there_is_no_tag() {
    let fixture = Fixture::new();
    let commit = fixture.make_upstream_repository(&upstream());
    let config = fixture.root().join("repository/config");
    let allow = format!(
        "{}[uploadpack]\n\tallowAnySHA1InWant = true\n",
        fs::read_to_string(&config).unwrap()
    );
    fs::write(&config, allow).unwrap();
    let tree = format!(
        "tree = \"{}\"\ntree-origin = \"upstream\"\ncommit = \"{commit}\"",
        fixture.base
    );
    let url = fixture.root().join("repository");
    fixture.write_manifest(
        &tree,
        &format!("[[mlx.source]]\ngit = {{ url = \"file://{url}\" }}"),
    );
    let text = fs::read_to_string(fixture.workspace.manifest_path()).unwrap();
    fs::write(
        fixture.workspace.manifest_path(),
        text.replace("tag = \"v1.0.0\"\n", ""),
    )
    .unwrap();
    assert_eq!(fixture.fetch_pinned().unwrap().mlx.tree, fixture.base);
}

#[test]
fn offline_asks_no_remote() {
    let fixture = Fixture::new();
    let tree = format!("tree = \"{}\"\ntree-origin = \"upstream\"", fixture.base);
    fixture.write_manifest(
        &tree,
        "[[mlx.source]]\ngit = { url = \"https://example.org/mlx.git\" }",
    );
    let _ = fs::remove_dir_all(fixture.workspace.cache());
    let error = fetch(
        &fixture.workspace,
        &Options {
            offline: true,
            ..Options::default()
        },
        QUIET,
    )
    .unwrap_err();
    assert!(error.to_string().contains("not tried: offline"), "{error}");
}

#[test]
fn a_damaged_store_is_an_error_and_never_other_files() {
    let fixture = Fixture::new();
    let blob = Listing::of_dir(&fixture.upstream()).unwrap().0["b.txt"]
        .blob
        .to_string();
    let object = fixture
        .workspace
        .cache()
        .join("mlx.git/objects")
        .join(&blob[..2])
        .join(&blob[2..]);
    let other = Listing::of_dir(&fixture.upstream()).unwrap().0["dir/run.sh"]
        .blob
        .to_string();
    let other = fixture
        .workspace
        .cache()
        .join("mlx.git/objects")
        .join(&other[..2])
        .join(&other[2..]);
    fs::remove_file(&object).unwrap();
    fs::copy(other, object).unwrap();
    let error = fixture.apply().unwrap_err();
    assert!(error.to_string().contains(&blob), "{error}");
    assert!(!fixture.workspace.tree().exists());
}
