//! Moves the pin of a small upstream made for these tests.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use fs_err as fs;
use patchset::bump::{self, Fate, Options, Outcome, Report, When};
use patchset::progress::QUIET;
use patchset::watch::Change as Watch;
use patchset::{Error, Manifest};
use support::{Change, Project, Upstream, WIDEN, entry, git, kernel, waits};

fn to(wanted: &str) -> Options {
    Options {
        wanted: wanted.to_owned(),
        ..Options::default()
    }
}

fn from(wanted: &str, upstream: &Upstream) -> Options {
    Options {
        source: Some(upstream.path().to_string()),
        ..to(wanted)
    }
}

fn start(project: &Project, options: &Options) -> Result<(Report, Outcome), Error> {
    bump::start(&project.workspace, options, QUIET)
}

/// Fails with the error's text, and checks that the project has not changed.
fn refused(project: &Project, options: &Options) -> String {
    let before = project.files();
    let error = start(project, options).unwrap_err().to_string();
    assert_eq!(project.files(), before, "something was written");
    assert!(!project.root().join("target/bump").exists());
    error
}

#[test]
fn a_new_release_is_found_by_version_tag_commit_and_address() {
    let upstream = Upstream::new();
    let commit = upstream.release(
        "1.1.0",
        &[("src/k.cpp", &kernel().replace("line_1 ", "first "))],
    );
    let id = commit.to_string();
    let path = upstream.path().to_string();
    for (wanted, source) in [
        ("1.1.0", None),
        ("v1.1.0", None),
        (id.as_str(), None),
        ("1.1.0", Some(upstream.url())),
        ("v1.1.0", Some(path.clone())),
        (&id[..9], Some(path)),
    ] {
        let project = Project::new(&upstream, &[WIDEN]);
        let (report, outcome) = start(
            &project,
            &Options {
                source,
                ..to(wanted)
            },
        )
        .unwrap();
        assert!(matches!(outcome, Outcome::Done), "{wanted}: {outcome:?}");
        assert_eq!(report.patches[0].fate, Fate::Clean, "{wanted}");
        let manifest = Manifest::load(&project.workspace.manifest_path()).unwrap();
        assert_eq!(
            (
                manifest.mlx.version.as_str(),
                manifest.mlx.commit.as_deref()
            ),
            ("1.1.0", Some(id.as_str()))
        );
        assert_eq!(
            manifest.known[0].version, "1.0.0",
            "the old pin is forgotten"
        );
        assert!(project.read("mlx.toml").contains("# A comment."));
        assert!(project.applied("src/k.cpp").contains("long line_30"));
    }
}

#[test]
fn a_patch_that_moved_names_the_lines_that_moved_it() {
    let upstream = Upstream::new();
    let text = kernel()
        .replace("int line_5 = 5;", "int line_5 = 5;\nint new_1;\nint new_2;")
        .replace("line_28 ", "before ");
    upstream.release("1.1.0", &[("src/k.cpp", &text)]);
    let project = Project::new(&upstream, &[WIDEN]);
    let (report, _) = start(&project, &to("1.1.0")).unwrap();
    let Fate::Moved(files) = &report.patches[0].fate else {
        panic!("{:?}", report.patches[0].fate)
    };
    let hunk = &files[0].hunks[0];
    assert_eq!((hunk.from, hunk.to), (34, 36));
    assert_eq!(hunk.context, ["-int line_28 = 28;", "+int before = 28;"]);
    let moved_by: Vec<_> = files[0]
        .upstream
        .iter()
        .flat_map(|hunk| hunk.lines.clone())
        .collect();
    assert_eq!(
        moved_by,
        [
            "+int new_1;",
            "+int new_2;",
            "-int line_28 = 28;",
            "+int before = 28;"
        ]
    );
    let text = report.to_markdown();
    for part in [
        "line 34 to line 36 (+2)",
        "+int new_1;",
        "+int before = 28;",
        "| `src/k.cpp` | widen | +3 -1 |",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let (_, kept) = project
        .files()
        .into_iter()
        .find(|(path, _)| path == "docs/pin-moves/1.0.0-to-1.1.0.md")
        .unwrap();
    assert_eq!(String::from_utf8(kept).unwrap(), report.summary());
    assert_eq!(project.read(&report.file()), text);
}

#[test]
fn an_absorbed_patch_is_dropped_only_when_asked_for() {
    let upstream = Upstream::new();
    upstream.release(
        "1.1.0",
        &[(
            "src/k.cpp",
            &kernel().replace("int line_30", "long line_30"),
        )],
    );
    let add = Change {
        name: "add",
        edits: &[("src/other.cpp", "int other;", "long other;")],
        adds: &[("src/new.h", "int n;\n")],
    };
    let project = Project::new(&upstream, &[WIDEN, add]);
    let before = project.files();
    let (report, outcome) = start(&project, &to("1.1.0")).unwrap();
    assert!(
        matches!(&outcome, Outcome::Absorbed { names, .. } if names == &["widen"]),
        "{outcome:?}"
    );
    assert!(report.to_markdown().contains("### widen: absorbed"));
    assert_eq!(project.files(), before);

    let (_, outcome) = start(
        &project,
        &Options {
            drop_absorbed: true,
            ..to("1.1.0")
        },
    )
    .unwrap();
    assert!(matches!(outcome, Outcome::Done));
    assert_eq!(project.read("patches/series"), "# The order.\nadd\n");
    assert!(!project.root().join("patches/widen.patch").exists());
    assert!(project.applied("src/k.cpp").contains("long line_30"));
    assert_eq!(project.applied("src/new.h"), "int n;\n");
}

#[test]
fn a_file_that_upstream_adds_too_is_a_conflict_unless_it_is_the_same() {
    let upstream = Upstream::new();
    upstream.release("1.1.0", &[("src/new.h", "int other;\n")]);
    upstream.release("1.2.0", &[("src/new.h", "int n;\n")]);
    let add = Change {
        name: "add",
        edits: &[],
        adds: &[("src/new.h", "int n;\n")],
    };
    let project = Project::new(&upstream, &[add]);
    let (report, outcome) = start(
        &project,
        &Options {
            dry_run: true,
            ..to("1.1.0")
        },
    )
    .unwrap();
    assert!(matches!(outcome, Outcome::Conflict { worktree: None, .. }));
    assert!(
        report
            .to_markdown()
            .contains("upstream has a file of its own where the patch adds one")
    );
    let options = Options {
        drop_absorbed: true,
        ..to("1.2.0")
    };
    assert!(matches!(
        start(&project, &options).unwrap().1,
        Outcome::Done
    ));
    assert!(!project.root().join("patches/files").exists());
    assert_eq!(project.patch_names(), Vec::<String>::new());
}

/// The patch continues without the file, which is now upstream's.
#[test]
fn a_file_that_upstream_adds_as_it_is_leaves_the_patch() {
    let upstream = Upstream::new();
    upstream.release("1.1.0", &[("src/new.h", "int n;\n")]);
    let adds = &[("src/new.h", "int n;\n"), ("src/own.h", "int o;\n")];
    let project = Project::new(&upstream, &[Change { adds, ..WIDEN }]);
    let (report, outcome) = start(&project, &to("1.1.0")).unwrap();
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let Fate::Moved(files) = &report.patches[0].fate else {
        panic!("{:?}", report.patches[0].fate)
    };
    assert_eq!(
        (files[0].path.as_str(), files[0].absorbed),
        ("src/new.h", 1)
    );
    assert!(
        project
            .read("patches/widen.patch")
            .contains("\nAdds: src/own.h\n")
    );
    assert!(!project.root().join("patches/files/src/new.h").exists());
    assert!(project.applied("src/k.cpp").contains("long line_30"));
    assert_eq!(project.applied("src/new.h"), "int n;\n");
}

#[test]
fn a_watched_function_is_reported_though_every_hunk_applies() {
    let upstream = Upstream::new();
    upstream.release(
        "1.1.0",
        &[(
            "src/k.cpp",
            &kernel().replace("  return a * b; // product", "  return a\n    * b;"),
        )],
    );
    upstream.release(
        "1.2.0",
        &[(
            "src/k.cpp",
            &kernel().replace("return a * b;", "return b * a;"),
        )],
    );
    let project = Project::new(&upstream, &[WIDEN]);
    let (report, _) = start(
        &project,
        &Options {
            dry_run: true,
            ..to("1.1.0")
        },
    )
    .unwrap();
    assert_eq!(
        report.changed().count(),
        0,
        "a comment or a line end counted"
    );
    let (report, _) = start(&project, &to("1.2.0")).unwrap();
    assert_eq!(report.patches[0].fate, Fate::Clean);
    let changed: Vec<_> = report.changed().collect();
    let Watch::Changed(diff) = &changed[0].change else {
        panic!("{changed:?}")
    };
    assert!(
        diff.contains("-  return a * b; // product\n+  return b * a; // product\n"),
        "{diff}"
    );
    assert!(report.to_markdown().contains(diff.as_str()));
}

#[test]
fn commits_are_named_where_the_source_has_history() {
    let upstream = Upstream::new();
    upstream.commit(
        "Touch the kernel",
        &[("src/k.cpp", &kernel().replace("line_2 ", "second "))],
    );
    upstream.commit("Touch another file", &[("src/other.cpp", "long other;\n")]);
    upstream.release("1.1.0", &[]);
    let project = Project::new(&upstream, &[WIDEN]);
    let (report, _) = start(
        &project,
        &Options {
            dry_run: true,
            ..from("1.1.0", &upstream)
        },
    )
    .unwrap();
    let commits = report.commits.unwrap();
    assert!(
        commits.len() == 1 && commits[0].ends_with("Touch the kernel"),
        "{commits:?}"
    );
}

#[test]
fn commits_are_not_known_where_objects_of_the_history_are_missing() {
    for folder in [None, Some("src")] {
        let upstream = Upstream::new();
        let touched = kernel().replace("line_2 ", "second ");
        let middle = upstream.commit("Touch the kernel", &[("src/k.cpp", &touched)]);
        upstream.release("1.1.0", &[("src/other.cpp", "long other;\n")]);
        let project = Project::new(&upstream, &[WIDEN]);
        let tree = upstream.repo.find_tree(upstream.tree(middle)).unwrap();
        let lost = folder.map_or(tree.id(), |name| tree.get_name(name).unwrap().id());
        let lost = lost.to_string();
        let objects = upstream.path().join(".git/objects");
        fs::remove_file(objects.join(&lost[..2]).join(&lost[2..])).unwrap();
        let dry = Options {
            dry_run: true,
            ..from("1.1.0", &upstream)
        };
        let (report, _) = start(&project, &dry).unwrap();
        assert_eq!(report.commits, None, "{folder:?}");
    }
}

fn conflicting(upstream: &Upstream) {
    let text = kernel().replace("int line_30 = 30;", "short line_30 = 30;");
    upstream.release("1.1.0", &[("src/k.cpp", &text)]);
}

const AFTER: Change<'_> = Change {
    name: "after",
    edits: &[("src/k.cpp", "int line_35 = 35;", "long line_35 = 35;")],
    adds: &[("src/new.h", "int n;\n")],
};

#[test]
fn a_conflict_waits_for_a_person_and_goes_on() {
    let upstream = Upstream::new();
    conflicting(&upstream);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let before = project.files();
    let (report, outcome) = start(&project, &to("1.1.0")).unwrap();
    let (patch, worktree) = waits(outcome);
    assert_eq!(patch, "widen");
    assert_eq!(report.patches[1].fate, Fate::Clean, "it was not tried");
    assert_eq!(project.files(), before);
    let text = report.to_markdown();
    assert!(
        text.contains("short line_30 = 30;") && text.contains("+long line_30 = 30;"),
        "{text}"
    );

    let file = worktree.join("src/k.cpp");
    let marked = fs::read_to_string(&file).unwrap();
    for mark in [
        "<<<<<<< the new pin\n",
        "||||||| the old pin\n",
        "=======\n",
        ">>>>>>> widen\n",
    ] {
        assert!(marked.contains(mark), "no {mark:?} in\n{marked}");
    }
    // Nothing else can start before this one is resolved.
    assert!(matches!(
        start(&project, &to("1.1.0")),
        Err(Error::BumpPending { .. })
    ));
    // Markers, a stray file and a missing file are each named.
    fs::write(worktree.join("k.orig"), "").unwrap();
    fs::remove_file(worktree.join("src/other.cpp")).unwrap();
    let error = bump::resume(&project.workspace, false, QUIET)
        .unwrap_err()
        .to_string();
    for part in [
        "src/k.cpp:37: it still has a conflict marker",
        "k.orig is neither",
        "src/other.cpp is missing",
    ] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
    fs::remove_file(worktree.join("k.orig")).unwrap();
    fs::write(worktree.join("src/other.cpp"), "int other;\n").unwrap();
    let resolved = kernel().replace("int line_30 = 30;", "long long line_30 = 30;");
    fs::write(&file, resolved).unwrap();

    let (report, outcome) = bump::resume(&project.workspace, false, QUIET).unwrap();
    assert!(matches!(outcome, Outcome::Done));
    assert_eq!(report.patches[0].fate, Fate::Resolved(When::Now));
    assert!(!project.root().join("target/bump").exists());
    let text = project.applied("src/k.cpp");
    assert!(text.contains("long long line_30") && text.contains("long line_35"));
    assert!(matches!(
        bump::resume(&project.workspace, false, QUIET),
        Err(Error::NoBump)
    ));
}

#[test]
fn a_second_conflict_waits_too() {
    let upstream = Upstream::new();
    let text = kernel()
        .replace("int line_30", "short line_30")
        .replace("int line_35", "short line_35");
    upstream.release("1.1.0", &[("src/k.cpp", &text)]);
    let project = Project::new(&upstream, &[WIDEN, AFTER]);
    let mut waiting = start(&project, &to("1.1.0")).unwrap().1;
    let mut decided = text;
    for (name, line) in [("widen", "30"), ("after", "35")] {
        let (patch, worktree) = waits(waiting);
        assert_eq!(patch, name);
        decided = decided.replace(&format!("short line_{line}"), &format!("long line_{line}"));
        fs::write(worktree.join("src/k.cpp"), &decided).unwrap();
        waiting = bump::resume(&project.workspace, false, QUIET).unwrap().1;
    }
    assert!(matches!(waiting, Outcome::Done));
    assert_eq!(project.applied("src/k.cpp"), decided);
    assert_eq!(project.applied("src/new.h"), "int n;\n");
}

#[test]
fn giving_up_leaves_everything_as_it_was() {
    let upstream = Upstream::new();
    conflicting(&upstream);
    let project = Project::new(&upstream, &[WIDEN]);
    let before = project.files();
    start(&project, &to("1.1.0")).unwrap();
    bump::abort(&project.workspace, QUIET).unwrap();
    assert_eq!(project.files(), before);
    assert!(!project.root().join("target/bump").exists());
    assert!(matches!(
        bump::abort(&project.workspace, QUIET),
        Err(Error::NoBump)
    ));
}

#[test]
fn a_project_that_changed_while_a_bump_waited_is_not_overwritten() {
    let upstream = Upstream::new();
    conflicting(&upstream);
    let project = Project::new(&upstream, &[WIDEN]);
    start(&project, &to("1.1.0")).unwrap();
    let series = project.workspace.patches().join("series");
    fs::write(&series, "# Another comment.\nwiden\n").unwrap();
    assert!(matches!(
        bump::resume(&project.workspace, false, QUIET),
        Err(Error::BumpStale)
    ));
}

#[test]
fn a_dry_run_writes_nothing() {
    let upstream = Upstream::new();
    conflicting(&upstream);
    upstream.release("1.2.0", &[("src/k.cpp", &kernel())]);
    let project = Project::new(&upstream, &[WIDEN]);
    let before = project.files();
    for wanted in ["1.1.0", "1.2.0"] {
        start(
            &project,
            &Options {
                dry_run: true,
                ..to(wanted)
            },
        )
        .unwrap();
        assert_eq!(project.files(), before);
        assert!(!project.root().join("target/bump").exists());
    }
}

#[test]
fn what_nobody_has_is_named_with_what_is_known() {
    let upstream = Upstream::new();
    let project = Project::new(&upstream, &[WIDEN]);
    for wanted in [
        "9.9.9",
        "no-such-tag",
        "0123456789012345678901234567890123456789",
    ] {
        let error = refused(&project, &to(wanted));
        assert!(
            error.contains(&format!(
                "no source provides MLX {wanted}; mlx.toml has v1.0.0"
            )),
            "{error}"
        );
        let error = refused(&project, &from(wanted, &upstream));
        assert!(
            error.contains(&format!("expected a tag or commit {wanted}")),
            "{error}"
        );
    }
    let error = refused(&project, &to("0123456"));
    assert!(
        error.contains("expected a complete commit id of 40 digits"),
        "{error}"
    );
    assert!(refused(&project, &to("1.0.0")).contains("pins v1.0.0 already"));
}

#[test]
fn a_tag_object_leads_to_its_commit() {
    let upstream = Upstream::new();
    let commit = upstream.release("1.1.0", &[]);
    let commit = upstream.repo.find_commit(commit).unwrap();
    upstream.repo.tag_delete("v1.1.0").unwrap();
    let who = commit.author();
    upstream
        .repo
        .tag("v1.1.0", commit.as_object(), &who, "annotated", false)
        .unwrap();
    for options in [to("v1.1.0"), from("v1.1.0", &upstream)] {
        let project = Project::new(&upstream, &[WIDEN]);
        start(&project, &options).unwrap();
        let pin = Manifest::load(&project.workspace.manifest_path())
            .unwrap()
            .mlx;
        assert_eq!(pin.commit.unwrap(), commit.id().to_string());
    }
}

#[test]
fn a_shallow_source_does_and_says_that_history_is_missing() {
    let upstream = Upstream::new();
    upstream.release(
        "1.1.0",
        &[("src/k.cpp", &kernel().replace("line_2 ", "second "))],
    );
    let folder = tempfile::tempdir().unwrap();
    git(
        upstream.path(),
        &[
            "clone",
            "--quiet",
            "--depth=1",
            "--branch=v1.1.0",
            &upstream.url(),
            folder.path().to_str().unwrap(),
        ],
    );
    let project = Project::new(&upstream, &[WIDEN]);
    let source = Some(folder.path().to_str().unwrap().to_owned());
    let (report, outcome) = start(
        &project,
        &Options {
            source,
            ..to("1.1.0")
        },
    )
    .unwrap();
    assert!(matches!(outcome, Outcome::Done));
    assert!(report.to_markdown().contains("Commits: not known"));
}

#[test]
fn trees_that_mlx_cannot_be_are_refused() {
    let upstream = Upstream::new();
    let project = Project::new(&upstream, &[WIDEN]);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    upstream.release("1.1.0", &[("weights.bin", pointer)]);
    for options in [to("1.1.0"), from("1.1.0", &upstream)] {
        let error = refused(&project, &options);
        assert!(
            error.contains("found Git LFS pointers for weights.bin"),
            "{error}"
        );
    }

    let head = upstream.release("1.2.0", &[]);
    let mut index = git2::Index::new().unwrap();
    let commit = upstream.repo.find_commit(head).unwrap();
    index.read_tree(&commit.tree().unwrap()).unwrap();
    index.add(&entry("third_party", 0o160_000, head)).unwrap();
    let tree = upstream
        .repo
        .find_tree(index.write_tree_to(&upstream.repo).unwrap())
        .unwrap();
    let with = upstream.repo.commit(
        Some("HEAD"),
        &commit.author(),
        &commit.author(),
        "Add a submodule",
        &tree,
        &[&commit],
    );
    for options in [
        to(&with.as_ref().unwrap().to_string()),
        from(&with.unwrap().to_string(), &upstream),
    ] {
        let error = refused(&project, &options);
        assert!(
            error.contains("third_party has mode 160000; only files and links are supported"),
            "{error}"
        );
    }
}

/// One small object that stands for many large files.
#[test]
fn a_tree_with_more_bytes_than_are_read_is_refused() {
    let upstream = Upstream::new();
    let project = Project::new(&upstream, &[WIDEN]);
    let commit = upstream.release_with("1.1.0", |repo, index| {
        let blob = repo.blob(&vec![0; 1 << 20]).unwrap();
        for at in 0..256 {
            index
                .add(&entry(&format!("many/{at}"), 0o100_644, blob))
                .unwrap();
        }
    });
    let known = format!(
        "\n[[known]]\nversion = \"1.1.0\"\ntag = \"v1.1.0\"\ncommit = \"{commit}\"\ntree = \"{}\"\n\
         tree-origin = \"upstream\"\nlicence = \"MIT\"\n\n[[known.source]]\ngit = {{ url = \"{}\" }}\n",
        upstream.tree(commit),
        upstream.url(),
    );
    let by_address = Options {
        source: Some(upstream.url()),
        ..to("1.1.0")
    };
    let error = refused(&project, &by_address);
    assert!(error.contains("more than 268435456 bytes"), "{error}");
    let manifest = project.read("mlx.toml") + &known;
    fs::write(project.workspace.manifest_path(), manifest).unwrap();
    let error = refused(&project, &to("1.1.0"));
    assert!(
        error.contains("no source provides MLX 1.1.0")
            && error.contains("more than 268435456 bytes"),
        "{error}"
    );
}

#[test]
fn windows_line_ends_are_called_by_their_name() {
    let upstream = Upstream::new();
    upstream.release("1.1.0", &[("src/k.cpp", &kernel().replace('\n', "\r\n"))]);
    let project = Project::new(&upstream, &[WIDEN]);
    let (report, outcome) = start(
        &project,
        &Options {
            dry_run: true,
            ..to("1.1.0")
        },
    )
    .unwrap();
    assert!(matches!(outcome, Outcome::Conflict { .. }));
    assert!(
        report
            .to_markdown()
            .contains("upstream's file has Windows line ends now")
    );
}

#[test]
fn a_version_that_the_tree_denies_is_refused() {
    let upstream = Upstream::new();
    let commit = upstream.release("1.1.0", &[]);
    let commit = upstream.repo.find_commit(commit).unwrap();
    upstream
        .repo
        .tag_lightweight("v2.0.0", commit.as_object(), false)
        .unwrap();
    let project = Project::new(&upstream, &[WIDEN]);
    let error = refused(&project, &to("2.0.0"));
    assert!(
        error.contains("expected version v2.0.0, but mlx/version.h has 1.1.0"),
        "{error}"
    );
}

#[test]
fn a_folder_is_taken_with_its_tree_id_given_or_computed() {
    let upstream = Upstream::new();
    let commit = upstream.release("1.1.0", &[]);
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("src/k.cpp", kernel()),
        ("src/other.cpp", "int other;\n".into()),
    ] {
        fs::create_dir_all(folder.path().join("src")).unwrap();
        fs::write(folder.path().join(path), text).unwrap();
    }
    let source = Some(folder.path().to_str().unwrap().to_owned());
    let project = Project::new(&upstream, &[WIDEN]);
    let error = refused(
        &project,
        &Options {
            source: source.clone(),
            ..to("1.1.0")
        },
    );
    assert!(error.contains("is this MLX?"), "{error}");
    fs::create_dir_all(folder.path().join("mlx")).unwrap();
    let version =
        "#define MLX_VERSION_MAJOR 1\n#define MLX_VERSION_MINOR 1\n#define MLX_VERSION_PATCH 0\n";
    fs::write(folder.path().join("mlx/version.h"), version).unwrap();
    let tree = upstream.tree(commit);
    let wrong = Some(upstream.tree(upstream.repo.revparse_single("v1.0.0").unwrap().id()));
    let error = refused(
        &project,
        &Options {
            source: source.clone(),
            tree: wrong,
            ..to("1.1.0")
        },
    );
    assert!(error.contains(&format!("found {tree}")), "{error}");
    start(
        &project,
        &Options {
            source,
            tree: Some(tree),
            ..to("1.1.0")
        },
    )
    .unwrap();
    let text = project.read("mlx.toml");
    assert!(
        text.contains("tree-origin = \"reconstructed\"") && text.contains(&tree.to_string()),
        "{text}"
    );
}

#[test]
fn files_answer_to_their_version_alone() {
    let upstream = Upstream::new();
    let commit = upstream.release("1.1.0", &[]);
    let folder = tempfile::tempdir().unwrap();
    let tree = patchset::tree::Snapshot::of_tree(&upstream.repo, upstream.tree(commit)).unwrap();
    let folder = camino::Utf8Path::from_path(folder.path()).unwrap();
    patchset::place::write_tree(folder, &tree).unwrap();
    let project = Project::new(&upstream, &[WIDEN]);
    let of_folder = |wanted: &str| Options {
        source: Some(folder.to_string()),
        ..to(wanted)
    };
    for wanted in [&commit.to_string(), "1.2.0", "v1.1.0-rc1", "main"] {
        let error = refused(&project, &of_folder(wanted));
        assert!(
            error.contains("files have no tags and commits") && error.contains("1.1.0"),
            "{error}"
        );
    }
    start(&project, &of_folder("v1.1.0")).unwrap();
    let text = project.read("mlx.toml");
    let (pin, _) = text.split_once("[[known]]").unwrap();
    assert!(
        pin.contains("version = \"1.1.0\"") && !pin.contains("tag =") && !pin.contains("commit ="),
        "{pin}"
    );
    for wanted in ["1.1.0", "v1.1.0"] {
        let error = refused(&project, &of_folder(wanted));
        assert!(error.contains("pins 1.1.0 already"), "{error}");
    }
}

/// The work tree has the files of 1.1.0 and one more; the tag leads to neither.
#[test]
fn a_tag_comes_from_the_repository_or_not_at_all() {
    let upstream = Upstream::new();
    let commit = upstream.release("1.1.0", &[]);
    let scratch = tempfile::tempdir().unwrap();
    let folder = camino::Utf8Path::from_path(scratch.path()).unwrap();
    let tree = patchset::tree::Snapshot::of_tree(&upstream.repo, upstream.tree(commit)).unwrap();
    patchset::place::write_tree(folder, &tree).unwrap();
    fs::write(folder.join("untracked"), "").unwrap();
    let repo = git2::Repository::init(folder).unwrap();
    let project = Project::new(&upstream, &[WIDEN]);
    let of_folder = |wanted: &str| Options {
        source: Some(folder.to_string()),
        ..to(wanted)
    };
    for (wanted, names) in [
        ("1.1.0", "neither tag v1.1.0 nor tag 1.1.0"),
        ("v1.1.0", "no tag v1.1.0"),
        ("abcdef0123", "neither tag abcdef0123 nor commit abcdef0123"),
        ("main", "no tag main"),
    ] {
        let error = refused(&project, &of_folder(wanted));
        assert!(
            error.contains(&format!("this repository has {names}")),
            "{error}"
        );
    }
    let mut config = repo.config().unwrap();
    config.set_i32("core.repositoryformatversion", 1).unwrap();
    config.set_str("extensions.objectformat", "sha256").unwrap();
    let error = refused(&project, &of_folder("v1.1.0"));
    assert!(
        error.contains("it is a git repository, but cannot be opened"),
        "{error}"
    );
}

#[test]
fn a_vendor_that_was_edited_by_hand_stops_a_bump() {
    let upstream = Upstream::new();
    upstream.release("1.1.0", &[]);
    let project = Project::new(&upstream, &[WIDEN]);
    fs::write(project.root().join("vendor/mlx/src/other.cpp"), "edited\n").unwrap();
    let error = refused(&project, &to("1.1.0"));
    assert!(
        error.contains("vendor/mlx was edited by hand") && error.contains("src/other.cpp"),
        "{error}"
    );
}

#[test]
fn a_series_that_is_not_what_the_lock_says_stops_a_bump() {
    let upstream = Upstream::new();
    upstream.release("1.1.0", &[]);
    let patches = |project: &Project| project.workspace.patches();
    let rename: fn(&camino::Utf8Path) =
        |patches| fs::rename(patches.join("widen.patch"), patches.join("w.patch")).unwrap();
    let twice: fn(&camino::Utf8Path) =
        |patches| fs::write(patches.join("series"), "widen\nwiden\n").unwrap();
    let missing: fn(&camino::Utf8Path) =
        |patches| fs::remove_file(patches.join("widen.patch")).unwrap();
    let edited: fn(&camino::Utf8Path) = |patches| {
        let text = fs::read_to_string(patches.join("widen.patch")).unwrap();
        fs::write(
            patches.join("widen.patch"),
            text.replace("a reason", "another reason"),
        )
        .unwrap();
    };
    for (spoil, expected) in [
        (rename, "w.patch is not listed in series"),
        (twice, "widen is listed twice"),
        (missing, "widen.patch does not exist"),
        (edited, "patches/widen.patch has changed"),
    ] {
        let project = Project::new(&upstream, &[WIDEN]);
        spoil(&patches(&project));
        let error = refused(&project, &to("1.1.0"));
        assert!(error.contains(expected), "expected {expected:?} in {error}");
    }
}
