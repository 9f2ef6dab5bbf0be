//! What doctor says of a checkout whose own files were broken, and that its remedies mend it.

use patchset::place::holder::{Held, Kind};

use crate::support::{Project, Run};

impl Project {
    /// Commits everything that git does not ignore.
    fn committed() -> Self {
        let project = Self::new();
        project.write("checkout/.gitignore", "target\nvendor\n");
        project.git("checkout", &["init", "--quiet"]);
        project.git("checkout", &["add", "--all"]);
        project.git("checkout", &["commit", "--quiet", "-m", "all"]);
        project
    }

    /// What `cargo xtask doctor --json` says of one check.
    fn finding(&self, id: &str) -> Option<serde_json::Value> {
        let Run { out, .. } = self.xtask(&["doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|found| found["id"] == id).cloned()
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
        let finding = project.finding("lock").unwrap();
        let remedy = finding["remedy"].as_str().unwrap();
        assert!(remedy.starts_with("`git checkout mlx.lock`"), "{finding}");
        assert_eq!(project.finding("tree"), None);
        project.git("checkout", &["checkout", "--quiet", "mlx.lock"]);
        assert_eq!(project.finding("lock"), None);
        assert_eq!(project.finding("tree").unwrap()["status"], "ok");
    }
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
        let finding = settings();
        assert_eq!(finding["status"], "error");
        let found = finding["found"].as_str().unwrap();
        assert!(found.contains(&format!("{name} is {value}")) || found.contains("core.eol crlf"));
        let remedy = finding["remedy"].as_str().unwrap().to_owned();
        project.shell("checkout", &remedy);
        assert_eq!(settings()["status"], "ok");
        project.xtask(&["apply-overlay", "--check"]).exits(0);
    }

    let copy = "crates/mlx-overlay-sys/mlx.lock";
    project.write(&format!("checkout/{copy}"), "../../mlx.lock");
    let finding = settings();
    assert!(finding["found"].as_str().unwrap().contains("core.symlinks"));
    project.shell("checkout", finding["remedy"].as_str().unwrap());
    assert_eq!(settings()["status"], "ok");
    assert_eq!(project.finding("lock"), None);
}

#[test]
fn a_pin_that_was_deleted_is_missed_in_its_checkout_and_nowhere_else() {
    let project = Project::committed();
    fs_err::remove_file(project.path("checkout/mlx.toml")).unwrap();
    let finding = project.finding("pin").unwrap();
    assert_eq!(finding["status"], "error");
    assert!(finding["found"].as_str().unwrap().contains("mlx.toml"));
    let remedy = finding["remedy"].as_str().unwrap();
    assert!(remedy.contains("git checkout mlx.toml"), "{finding}");
    let inside = project
        .command(&["doctor"])
        .dir(project.path("checkout/patches"));
    let out = project.run(inside).exits(1).out;
    assert!(out.contains("ERROR    pin "), "{out}");
    let outside = project.command(&["doctor"]).dir(project.path("upstream"));
    project
        .run(outside)
        .fails_with(&["no mlx.toml", "inside a checkout"]);
}

/// A run that is killed after it decided a change leaves a journal; what the doctor looks at is the change.
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

/// A run that holds the lock of `vendor/`, as this test does: who waits is told for whom, and the doctor does not wait.
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
