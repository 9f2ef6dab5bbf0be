//! Tests what doctor reports for a checkout with broken files, and that its remedies repair it.

use patchset::place::holder::{Held, Kind};

use xtask::host::Host;

use crate::support::{FILE, Project};

struct Findings(Vec<serde_json::Value>);

impl Findings {
    /// The finding of one check.
    fn of(&self, id: &str) -> Option<serde_json::Value> {
        self.0.iter().find(|found| found["id"] == id).cloned()
    }
}

impl Project {
    /// Commits everything that git does not ignore.
    fn committed() -> Self {
        Self::new().commit()
    }

    fn commit(self) -> Self {
        let project = self;
        project.write("checkout/.gitignore", "target\nvendor\n");
        project.git("checkout", &["init", "--quiet"]);
        project.git("checkout", &["add", "--all"]);
        project.git("checkout", &["commit", "--quiet", "-m", "all"]);
        project
    }

    /// The output of `cargo xtask doctor --json` for the checkout. It finds git and no other tool, because running
    /// compilers takes seconds.
    fn findings(&self) -> Findings {
        let tools = self.path("tools");
        if !tools.exists() {
            fs_err::create_dir(&tools).unwrap();
            let git = Host::current().find("git").unwrap();
            fs_err::os::unix::fs::symlink(git, tools.join("git")).unwrap();
        }
        let doctor = self.command(&["doctor", "--json"]).env("PATH", tools);
        let report: serde_json::Value = serde_json::from_str(&self.run(doctor).out).unwrap();
        Findings(report["findings"].as_array().unwrap().clone())
    }

    /// The finding of one check.
    fn finding(&self, id: &str) -> Option<serde_json::Value> {
        self.findings().of(id)
    }

    /// Runs the first commands of a remedy as they are printed.
    #[track_caller]
    fn follow(&self, id: &str, commands: usize) -> serde_json::Value {
        let finding = self
            .finding(id)
            .unwrap_or_else(|| panic!("{id} finds nothing"));
        let remedy = finding["remedy"]
            .as_str()
            .unwrap_or_else(|| panic!("{finding}"));
        let quoted: Vec<_> = remedy.split('`').skip(1).step_by(2).collect();
        let lines = match quoted.is_empty() {
            true => vec![remedy],
            false => quoted,
        };
        for line in &lines[..commands] {
            self.shell("checkout", line);
        }
        finding
    }

    /// Follows a remedy to the end; then the check must pass.
    #[track_caller]
    fn mends(&self, id: &str, commands: usize) -> serde_json::Value {
        let finding = self.follow(id, commands);
        let after = self.findings();
        for id in ["pin", "merge", "lock"] {
            assert_eq!(after.of(id), None, "after {finding}");
        }
        for id in ["tree", "git-settings"] {
            let now = after.of(id).unwrap();
            assert_eq!(now["status"], "ok", "{now} after {finding}");
        }
        finding
    }
}

#[test]
fn a_tree_that_was_altered_in_the_lock_is_the_locks_fault() {
    let project = Project::committed();
    assert_eq!(project.finding("lock"), None);
    let lock = project.read("checkout/mlx.lock");
    for field in ["final_tree = \"", "base_tree = \"", "\ntree = \""] {
        let at = lock.find(field).unwrap() + field.len();
        let mut altered = lock.clone();
        altered.replace_range(at..at + 8, "00000000");
        project.write("checkout/mlx.lock", &altered);
        assert_eq!(project.finding("tree"), None);
        // Also if the altered one was staged.
        project.git("checkout", &["add", "mlx.lock"]);
        project.mends("lock", 1);
        assert_eq!(project.read("checkout/mlx.lock"), lock);
    }
    fs_err::remove_file(project.path("checkout/mlx.lock")).unwrap();
    project.mends("lock", 1);
    // The other remedy that errors about a lock name.
    fs_err::remove_file(project.path("checkout/mlx.lock")).unwrap();
    project.shell("checkout", "cargo xtask apply-overlay --update-lock");
    assert_eq!(project.read("checkout/mlx.lock"), lock);
}

/// Both sides changed a patch and therefore the lock. Git merges the patch but not the lock.
#[test]
fn a_lock_in_a_merge_conflict_is_made_anew() {
    let project = Project::new();
    // As in this checkout, with the published copy.
    fs_err::create_dir_all(project.path("checkout/crates/mlx-overlay-sys")).unwrap();
    project.xtask(&["apply-overlay", "--update-lock"]).exits(0);
    let project = project.commit();
    let git = |args: &[&str]| project.git("checkout", args);
    let main = git(&["branch", "--show-current"]);
    let change = |from: &str, to: &str| {
        project.replace("checkout/patches/widen.patch", from, to);
        project.xtask(&["apply-overlay", "--update-lock"]).exits(0);
        git(&["commit", "--quiet", "--all", "-m", to]);
    };
    git(&["checkout", "--quiet", "-b", "theirs"]);
    change("Why: to see", "Why: to know");
    git(&["checkout", "--quiet", &main]);
    change("Test: this", "Test: that");
    // It ends with 1, as it must.
    project.shell(
        "checkout",
        "git -c user.name=t -c user.email=t@localhost merge theirs || true",
    );
    let unmerged = || git(&["diff", "--name-only", "--diff-filter=U"]);
    assert_eq!(unmerged(), "crates/mlx-overlay-sys/mlx.lock\nmlx.lock");
    let finding = project.mends("merge", 1);
    assert!(
        finding["found"].as_str().unwrap().contains("mlx.lock"),
        "{finding}"
    );
    assert_eq!(unmerged(), "");
    assert_eq!(
        project.read("checkout/mlx.lock"),
        project.read("checkout/crates/mlx-overlay-sys/mlx.lock")
    );

    // Files that a person must resolve come first.
    let series = project.read("checkout/patches/series");
    let both = "<<<<<<< HEAD\nwiden\n=======\nother\n>>>>>>> theirs\n";
    project.write("checkout/patches/series", both);
    let finding = project.finding("merge").unwrap();
    let remedy = finding["remedy"].as_str().unwrap();
    assert!(
        remedy.starts_with("resolve patches/series; then `"),
        "{finding}"
    );
    project.write("checkout/patches/series", &series);
    assert_eq!(project.finding("merge"), None);
}

#[test]
fn patches_that_do_not_read_are_taken_out_and_kept() {
    let project = Project::committed();
    let series = "checkout/patches/series";
    let patch = project.read("checkout/patches/widen.patch");
    let breaks: [&dyn Fn(); 4] = [
        &|| fs_err::remove_file(project.path("checkout/patches/widen.patch")).unwrap(),
        &|| project.write("checkout/patches/mine.patch", &patch),
        &|| project.write(series, "widen\nno-such\n"),
        &|| project.write("checkout/patches/widen.patch", "no patch\n"),
    ];
    for broken in breaks {
        broken();
        let finding = project.mends("tree", 1);
        assert_eq!(finding["status"], "error");
        project.git("checkout", &["stash", "drop", "--quiet"]);
    }
}

#[test]
fn a_tree_that_is_not_the_locks_is_put_right() {
    let project = Project::committed();
    let tree = project.path("checkout/vendor/mlx");
    let edit = || {
        project.replace(
            &format!("checkout/vendor/mlx/{FILE}"),
            "line_5 = 5",
            "line_5 = 6",
        )
    };
    let breaks: [&dyn Fn(); 4] = [
        &|| drop(project.xtask(&["apply-overlay", "--revert"]).exits(0)),
        &|| fs_err::remove_dir_all(&tree).unwrap(),
        &edit,
        &|| {
            fs_err::remove_dir_all(&tree).unwrap();
            fs_err::write(&tree, "a file").unwrap();
        },
    ];
    for broken in breaks {
        broken();
        let finding = project.mends("tree", 1);
        assert_ne!(finding["status"], "ok");
    }
    assert_eq!(project.read("checkout/vendor/mlx-moved"), "a file");
}

/// The files as git writes them with these settings; the remedy is run as it is printed.
#[test]
fn what_gits_settings_made_of_the_files_is_named_and_mended() {
    let project = Project::committed();
    let settings = || project.finding("git-settings").unwrap();
    assert_eq!(settings()["status"], "ok");
    for (name, value) in [("core.autocrlf", "true"), ("core.eol", "crlf")] {
        project.git("checkout", &["config", name, value]);
        project.write("checkout/.git/info/attributes", "* text=auto\n");
        for file in ["patches/widen.patch", "mlx.toml"] {
            fs_err::remove_file(project.path("checkout").join(file)).unwrap();
            project.git("checkout", &["checkout", "--quiet", "--", file]);
            assert!(project.read(&format!("checkout/{file}")).contains("\r\n"));
        }
        let run = project.xtask(&["apply-overlay", "--update-lock"]);
        run.fails_with(&["CRLF", "core.autocrlf", "cargo xtask doctor"]);
        // A person's change in the meantime.
        project.replace("checkout/mlx.toml", "\r\n", "\r\n# mine\r\n");
        let finding = project.follow("git-settings", 0);
        assert_eq!(finding["status"], "error");
        let found = finding["found"].as_str().unwrap();
        assert!(found.contains(&format!("{name} is {value}")) || found.contains("core.eol crlf"));
        project.write("checkout/patches/mine.patch", "mine\r\n");
        project.follow("git-settings", 1);
        assert_eq!(settings()["status"], "ok");
        assert!(project.read("checkout/mlx.toml").contains("\n# mine\n"));
        assert_eq!(project.read("checkout/patches/mine.patch"), "mine\n");
        fs_err::remove_file(project.path("checkout/patches/mine.patch")).unwrap();
        project.xtask(&["apply-overlay", "--check"]).exits(0);
    }

    let copy = "crates/mlx-overlay-sys/mlx.lock";
    project.write(&format!("checkout/{copy}"), "../../mlx.lock");
    let finding = project.mends("git-settings", 1);
    assert!(finding["found"].as_str().unwrap().contains("core.symlinks"));
}

#[test]
fn a_pin_that_was_deleted_is_missed_in_its_checkout_and_nowhere_else() {
    let project = Project::committed();
    fs_err::remove_file(project.path("checkout/mlx.toml")).unwrap();
    let finding = project.finding("pin").unwrap();
    assert_eq!(finding["status"], "error");
    assert!(finding["found"].as_str().unwrap().contains("mlx.toml"));
    let inside = project
        .command(&["doctor"])
        .dir(project.path("checkout/patches"));
    let out = project.run(inside).exits(1).out;
    assert!(out.contains("ERROR    pin "), "{out}");
    let outside = project.command(&["doctor"]).dir(project.path("upstream"));
    project
        .run(outside)
        .fails_with(&["no mlx.toml", "inside a checkout"]);
    project.mends("pin", 1);
    project.write("checkout/mlx.toml", "[mlx");
    project.mends("pin", 1);
}

/// A run that is killed after it decided on a change leaves a journal; the doctor examines the finished change.
#[test]
fn a_change_that_was_cut_short_is_finished_before_it_is_looked_at() {
    let project = Project::committed();
    let lock = project.read("checkout/mlx.lock");
    project.write("checkout/vendor/.journal/0", &lock);
    let list = "[write]\n\"mlx.lock\" = \"0\"\n";
    project.write("checkout/vendor/.journal/list.toml", list);
    project.write("checkout/mlx.lock", "not yet the new one");
    assert_eq!(project.finding("lock"), None);
    assert_eq!(project.finding("tree").unwrap()["status"], "ok");
    assert_eq!(project.read("checkout/mlx.lock"), lock);
    assert!(!project.path("checkout/vendor/.journal").exists());
}

/// This test holds the lock of `vendor/`. Other runs print what they wait for, and the doctor does not wait.
#[test]
fn who_waits_for_a_lock_is_told_for_whom() {
    let project = Project::committed();
    let path = project.path("checkout/vendor/.mlx-lock");
    let file = fs_err::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let file = file.into_parts().0;
    let held = Held::take(file, &path, Kind::Alone, |_| panic!("it is free")).unwrap();
    let this = format!("(process {}, since ", std::process::id());
    let finding = project.finding("lock-held").unwrap();
    assert_eq!(finding["status"], "warning");
    assert!(
        finding["found"].as_str().unwrap().contains(&this),
        "{finding}"
    );
    assert_eq!(project.finding("tree"), None);
    std::thread::scope(|scope| {
        let runs = [
            &["status"][..],
            &["apply-overlay"],
            &["env", "--consumer", "cmake"],
        ];
        let runs = runs.map(|args| scope.spawn(|| project.xtask(args)));
        std::thread::sleep(std::time::Duration::from_secs(1));
        let all_wait = runs.iter().all(|run| !run.is_finished());
        drop(held);
        for run in runs {
            let run = run.join().unwrap();
            let line = run.err.lines().next().unwrap_or_default();
            assert!(
                line.starts_with("waiting for `") && line.contains(&this),
                "{run:#?}"
            );
        }
        assert!(all_wait, "one of them did not wait");
    });
    assert_eq!(project.finding("lock-held"), None);
}
