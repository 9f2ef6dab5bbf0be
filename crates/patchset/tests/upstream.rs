//! The bundle of a pull request.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use fs_err as fs;
use patchset::Error;
use patchset::progress::QUIET;
use patchset::upstream::{self, Bundle, Options};
use support::{Change, Project, Upstream, WIDEN, git, kernel};

const RECIPE: &str = "\
branch = \"wider\"
lineage = \"the first, then the second\"
[[table]]
file = \"tables/m3.tsv\"
hardware = \"Apple M3\"
[[evidence]]
file = \"evidence/device.md\"
what = \"the simulated device\"
[test]
file = \"src/other.cpp\"
before = \"int other;\\n\"
body = \"test.py\"
name = \"a.test\"
fails-without-the-change = false
";

const FIRST: Change<'_> = Change {
    name: "first",
    edits: &[("src/k.cpp", "int line_2 = 2;", "long line_2 = 2;")],
    adds: &[],
};

fn project(upstream: &Upstream) -> Project {
    // The patch is the second one: its branch must not contain the first.
    let project = Project::new(
        upstream,
        &[
            FIRST,
            Change {
                adds: &[("src/new.h", "int n;\n")],
                ..WIDEN
            },
        ],
    );
    let folder = project.root().join("upstream/widen");
    fs::create_dir_all(&folder).unwrap();
    for (file, text) in [
        ("bundle.toml", RECIPE),
        ("test.py", "int test;\n"),
        ("bench.py", ""),
        ("description.md", "PLACEHOLDER\n"),
        ("message-change.txt", "PLACEHOLDER\n"),
        ("message-test.txt", "PLACEHOLDER\n"),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
    project
}

fn bundle(project: &Project) -> Bundle {
    let options = Options {
        patch: "widen".to_owned(),
        ..Options::default()
    };
    upstream::bundle(&project.workspace, &options, QUIET).unwrap()
}

fn missing(bundle: &Bundle) -> String {
    bundle
        .missing()
        .filter_map(|point| point.missing.clone())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_branch_holds_the_change_with_its_files_and_the_test_and_nothing_else() {
    let upstream = Upstream::new();
    let project = project(&upstream);
    let bundle = bundle(&project);
    let mlx = bundle.folder.join("mlx");
    assert_eq!(
        git(&mlx, &["log", "--format=%s"]),
        "PLACEHOLDER\nPLACEHOLDER\nRelease 1.0.0\n"
    );
    assert_eq!(git(&mlx, &["branch", "--show-current"]), "wider\n");
    assert_eq!(
        git(&mlx, &["show", "--format=", "--name-only", "HEAD~1"]),
        "src/k.cpp\nsrc/new.h\n"
    );
    assert_eq!(
        git(&mlx, &["show", "HEAD:src/other.cpp"]),
        "int test;\n\nint other;\n"
    );
    assert!(
        git(&mlx, &["show", "HEAD:src/k.cpp"]).contains("int line_2 = 2;"),
        "the first patch is in it"
    );
    assert!(git(&mlx, &["remote"]).is_empty());
    let mails = bundle.folder.join("mails").read_dir_utf8().unwrap().count();
    assert_eq!(mails, 2);
}

#[test]
fn it_is_not_ready_before_a_person_wrote_and_the_hardware_was_there() {
    let upstream = Upstream::new();
    let project = project(&upstream);
    let folder = project.root().join("upstream/widen");
    let first = missing(&bundle(&project));
    for part in [
        "description.md is still a placeholder",
        "message-change.txt is still a placeholder",
        "message-test.txt is still a placeholder",
        "description.md does not name it",
        "tables/m3.tsv does not exist",
        "evidence/device.md does not exist yet",
    ] {
        assert!(first.contains(part), "no {part:?} in {first}");
    }
    fs::create_dir_all(folder.join("tables")).unwrap();
    fs::create_dir_all(folder.join("evidence")).unwrap();
    for (file, text) in [
        (
            "description.md",
            "Written. After the first, then\nthe second.\n",
        ),
        ("message-change.txt", "Widen\n"),
        ("message-test.txt", "Test it\n"),
        ("evidence/device.md", "seen\n"),
        ("tables/m3.tsv", "# hardware: x86_64\n"),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
    let then = missing(&bundle(&project));
    assert!(
        then.contains("tables/m3.tsv does not state Apple hardware"),
        "{then}"
    );
    assert!(
        !then.contains("placeholder") && !then.contains("does not name it"),
        "{then}"
    );
    fs::write(
        folder.join("tables/m3.tsv"),
        "# hardware: Apple M3, macOS 26\n",
    )
    .unwrap();
    let last = bundle(&project);
    assert!(!missing(&last).contains("tables/"), "{}", missing(&last));
    let text = fs::read_to_string(last.folder.join("CHECKLIST.md")).unwrap();
    assert!(
        text.contains("- [x] raw table from Apple M3\n")
            && text.contains("the test checks equality and must pass on both"),
        "{text}"
    );
    assert!(
        text.contains("**Not ready.**"),
        "no clang-format was given, so it cannot be ready"
    );
}

#[test]
fn a_fix_needs_neither_lineage_nor_benchmark() {
    let upstream = Upstream::new();
    let project = project(&upstream);
    let folder = project.root().join("upstream/widen");
    let test = RECIPE.find("[test]").unwrap();
    let recipe = format!("branch = \"wider\"\n{}", &RECIPE[test..])
        .replace("change = false", "change = true");
    fs::write(folder.join("bundle.toml"), recipe).unwrap();
    fs::remove_file(folder.join("bench.py")).unwrap();
    let bundle = bundle(&project);
    let text = fs::read_to_string(bundle.folder.join("CHECKLIST.md")).unwrap();
    assert!(!text.contains("lineage"), "{text}");
    assert!(
        text.contains("it must fail without the change and pass with it"),
        "{text}"
    );
    assert!(!bundle.folder.join("bench.py").exists());
}

#[test]
fn what_cannot_become_a_bundle_is_refused() {
    let upstream = Upstream::new();
    let project = project(&upstream);
    let of = |patch: &str| {
        upstream::bundle(
            &project.workspace,
            &Options {
                patch: patch.to_owned(),
                ..Options::default()
            },
            QUIET,
        )
    };
    assert!(matches!(of("wide"), Err(Error::NoSuchPatch { .. })));
    assert!(
        of("first")
            .unwrap_err()
            .to_string()
            .contains("upstream/first/bundle.toml is missing")
    );
    let recipe = project.root().join("upstream/widen/bundle.toml");
    fs::write(&recipe, RECIPE.replace("int other;\\n", "no such line")).unwrap();
    assert!(
        of("widen")
            .unwrap_err()
            .to_string()
            .contains("in it once, to put the test before")
    );
    fs::write(&recipe, RECIPE.replace("tables/m3.tsv", "../m3.tsv")).unwrap();
    assert!(of("widen").unwrap_err().to_string().contains("unsafe path"));
}

/// The bundle on upstream's `main`, which is release 1.0.0 with another text in the file.
fn on_main(upstream: &Upstream, project: &Project, text: &str) -> Result<Bundle, Error> {
    let commit = upstream.commit("Go on", &[("src/k.cpp", text)]);
    upstream
        .repo
        .reference("refs/heads/main", commit, true, "test")
        .unwrap();
    of_main(project, upstream.url())
}

fn of_main(project: &Project, url: String) -> Result<Bundle, Error> {
    let options = Options {
        patch: "widen".to_owned(),
        main_of: Some(url),
        ..Options::default()
    };
    upstream::bundle(&project.workspace, &options, QUIET)
}

#[test]
fn on_upstreams_main_the_branch_begins_there() {
    let upstream = Upstream::new();
    let project = project(&upstream);
    let text = kernel().replace("int line_5 = 5;", "int line_5 = 5;\nint new_on_main;");
    let bundle = on_main(&upstream, &project, &text).unwrap();
    let mlx = bundle.folder.join("mlx");
    let main = upstream.repo.revparse_single("main^{tree}").unwrap().id();
    assert_eq!(
        git(&mlx, &["rev-parse", "HEAD~2^{tree}"]).trim(),
        main.to_string()
    );
    let changed = git(
        &mlx,
        &["diff", "-U0", "HEAD~2", "HEAD~1", "--", "src/k.cpp"],
    );
    assert!(
        changed.contains("-int line_30 = 30;\n+long line_30 = 30;") && !changed.contains("line_2 "),
        "{changed}"
    );
    assert!(git(&mlx, &["show", "HEAD:src/k.cpp"]).contains("new_on_main"));
    let checklist = fs::read_to_string(bundle.folder.join("CHECKLIST.md")).unwrap();
    assert!(checklist.contains(&format!("tree `{main}`")), "{checklist}");
}

/// The branch can be pushed to a fork: its parent is upstream's commit, and its commits have today's date.
#[test]
fn the_branch_can_be_pushed_to_a_fork() {
    let upstream = Upstream::new();
    let project = project(&upstream);
    for main in [false, true] {
        let bundle = if main {
            let text = kernel().replace("int line_5 = 5;", "int line_5 = 5;\nint new_on_main;");
            on_main(&upstream, &project, &text).unwrap()
        } else {
            bundle(&project)
        };
        let mlx = bundle.folder.join("mlx");
        let folder = tempfile::tempdir().unwrap();
        let fork = camino::Utf8Path::from_path(folder.path()).unwrap();
        git(fork, &["clone", "--quiet", "--bare", &upstream.url(), "."]);
        let address = format!("file://{fork}");
        git(&mlx, &["push", "--quiet", &address, "wider"]);
        let head = if main { "main" } else { "v1.0.0" };
        let parent = upstream.repo.revparse_single(head).unwrap().id();
        assert_eq!(
            git(fork, &["merge-base", "wider", head]).trim(),
            parent.to_string()
        );
        assert_eq!(
            git(fork, &["rev-list", "--count", &format!("{head}..wider")]),
            "2\n"
        );
        let date: i64 = git(fork, &["log", "-1", "--format=%at", "wider"])
            .trim()
            .parse()
            .unwrap();
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert!(now.abs_diff(date.unsigned_abs()) < 600, "{date}");
        let mails = bundle.folder.join("mails");
        let mail = mails.read_dir_utf8().unwrap().next().unwrap().unwrap();
        let text = fs::read_to_string(mail.path()).unwrap();
        assert!(!text.contains("1970"), "{text}");
    }
}

#[test]
fn a_change_that_no_test_can_show_says_why() {
    let upstream = Upstream::new();
    let project = project(&upstream);
    let recipe = project.root().join("upstream/widen/bundle.toml");
    let test = RECIPE.find("[test]").unwrap();
    let without = format!(
        "no-test = \"it is a matter of compiling\"\n{}",
        &RECIPE[..test]
    );
    fs::write(&recipe, &without).unwrap();
    let made = bundle(&project);
    assert_eq!(
        git(&made.folder.join("mlx"), &["log", "--format=%s"]),
        "PLACEHOLDER\nRelease 1.0.0\n"
    );
    let text = fs::read_to_string(made.folder.join("CHECKLIST.md")).unwrap();
    assert!(
        text.contains("- [x] no test in upstream's layout: it is a matter of compiling\n")
            && !text.contains("unittest"),
        "{text}"
    );
    assert!(
        !missing(&made).contains("message-test"),
        "{}",
        missing(&made)
    );
    for both in [
        RECIPE.replace("branch", "no-test = \"x\"\nbranch"),
        RECIPE[..test].to_owned(),
    ] {
        fs::write(&recipe, both).unwrap();
        let options = Options {
            patch: "widen".to_owned(),
            ..Options::default()
        };
        let error = upstream::bundle(&project.workspace, &options, QUIET).unwrap_err();
        assert!(
            error.to_string().contains("either [test] or `no-test`"),
            "{error}"
        );
    }
}

#[test]
fn what_does_not_fit_on_upstreams_main_is_told_apart() {
    let upstream = Upstream::new();
    let project = project(&upstream);
    let has_it = kernel().replace("int line_30", "long line_30");
    upstream.commit("Add a file", &[("src/new.h", "int n;\n")]);
    let error = on_main(&upstream, &project, &has_it)
        .unwrap_err()
        .to_string();
    assert!(error.contains("the base already has all of it"), "{error}");
    let clashes = kernel().replace("int line_30", "short line_30");
    let error = on_main(&upstream, &project, &clashes)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("it does not fit on this base by itself, in src/k.cpp"),
        "{error}"
    );
    let error = of_main(&project, format!("{}/nothing", upstream.url()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("/nothing"), "{error}");
    upstream
        .repo
        .find_reference("refs/heads/main")
        .unwrap()
        .delete()
        .unwrap();
    let error = of_main(&project, upstream.url()).unwrap_err().to_string();
    assert!(error.contains("refs/heads/main"), "{error}");
}
