//! `cargo xtask bundle`: what it copies, what it replaces, and how it runs while a build uses the same folder.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use camino::{Utf8Path, Utf8PathBuf};
use mlx_prefix::{Backend, Stamp, sums};
use patchset::lock::Lock;

use crate::stamp::stamp;
use crate::support::{Project, Run};

/// A prefix's stamp, of this tree.
fn built_from(tree: &str) -> Stamp {
    stamp("1.0.0", tree, Backend::Cpu)
}

/// The files of a prefix and their content.
const FILES: [(&str, &str); 3] = [
    ("include/mlx/mlx.h", "#pragma once\n"),
    ("lib/libmlx.a", "a library"),
    ("share/cmake/MLX/MLXTargets.cmake", "# targets\n"),
];

/// A prefix of the lock's tree, as a build leaves it.
fn prefix(project: &Project) -> Utf8PathBuf {
    let lock = Lock::load(&project.path("checkout/mlx.lock"))
        .unwrap()
        .unwrap();
    let prefix = project.path("checkout/target/mlx/one/prefix");
    for (name, text) in FILES {
        project.write(&format!("checkout/target/mlx/one/prefix/{name}"), text);
    }
    built_from(&lock.final_tree.to_string())
        .write(&prefix)
        .unwrap();
    sums::write(&prefix).unwrap();
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        project.write(&format!("checkout/{name}"), name);
    }
    prefix
}

fn bundle(project: &Project, prefix: &Utf8Path, output: &Utf8Path) -> Run {
    let args = ["--prefix", prefix.as_str(), "--output", output.as_str()];
    project.xtask(&[["bundle"].as_slice(), &args].concat())
}

#[test]
fn a_prefix_that_is_not_as_it_was_built_is_not_passed_on() {
    let project = Project::new();
    let prefix = prefix(&project);
    let output = project.path("bundle");
    let refused = |words: &[&str]| {
        let words = [words, &["`cargo xtask build --backend cpu`"]].concat();
        bundle(&project, &prefix, &output).fails_with(&words);
        assert!(!output.exists());
    };

    let library = prefix.join("lib/libmlx.a");
    fs_err::write(&library, "a lib").unwrap();
    refused(&["lib/libmlx.a is not as it was built"]);
    fs_err::remove_file(&library).unwrap();
    refused(&["lib/libmlx.a is missing"]);
    fs_err::write(&library, "a library").unwrap();

    fs_err::write(prefix.join("include/mlx/other.h"), "").unwrap();
    refused(&["include/mlx/other.h was added"]);
    fs_err::remove_file(prefix.join("include/mlx/other.h")).unwrap();

    // Built by an earlier version of this program.
    let list = prefix.join(sums::FILE_NAME);
    let text = fs_err::read_to_string(&list).unwrap();
    fs_err::remove_file(&list).unwrap();
    refused(&["has no MANIFEST.sha256"]);
    fs_err::write(&list, "lib/libmlx.a").unwrap();
    refused(&["MANIFEST.sha256", "not a list of checksums"]);

    fs_err::write(&list, text).unwrap();
    let run = bundle(&project, &prefix, &output).exits(0);
    assert!(!run.out.contains("replaced"), "{run:?}");
    assert!(output.join("lib/libmlx.a").is_file());
}

#[test]
fn only_a_bundle_with_nothing_else_in_it_is_replaced() {
    let project = Project::new();
    let prefix = prefix(&project);
    let output = project.path("bundle");
    let again = || bundle(&project, &prefix, &output);
    again().exits(0);
    let run = again().exits(0);
    assert!(run.out.contains("replaced"), "{run:?}");

    // Files of the bundle may be gone; changed or added ones belong to someone.
    fs_err::remove_file(output.join("lib/libmlx.a")).unwrap();
    again().exits(0);
    for name in ["README.md", "include/mlx/mlx.h"] {
        let own = project.read(&format!("bundle/{name}"));
        fs_err::write(output.join(name), "mine").unwrap();
        again().fails_with(&[name, "was changed", "choose another path"]);
        assert_eq!(project.read(&format!("bundle/{name}")), "mine");
        fs_err::write(output.join(name), own).unwrap();
    }
    again().exits(0);
    project.write("bundle/share/results.csv", "1,2");
    again().fails_with(&["share/results.csv", "choose another path"]);
    assert_eq!(project.read("bundle/share/results.csv"), "1,2");
    fs_err::remove_file(output.join("share/results.csv")).unwrap();
    fs_err::os::unix::fs::symlink("/etc/hosts", output.join("link")).unwrap();
    again().fails_with(&["link", "choose another path"]);

    let data = project.path("data");
    project.write("data/MANIFEST.sha256", "");
    project.write("data/results.csv", "1,2");
    bundle(&project, &prefix, &data).fails_with(&["is not a bundle", Stamp::FILE_NAME]);
    assert_eq!(project.read("data/results.csv"), "1,2");
    // A prefix of another build has both, but is not a bundle.
    let other = project.path("other");
    fs_err::create_dir(&other).unwrap();
    built_from("one").write(&other).unwrap();
    sums::write(&other).unwrap();
    bundle(&project, &prefix, &other).fails_with(&["is not a bundle", "README.md"]);

    let archive = project.path("bundle.tar.zst");
    bundle(&project, &prefix, &archive).exits(0);
    let run = bundle(&project, &prefix, &archive).exits(0);
    assert!(run.out.contains("replaced"), "{run:?}");
}

/// A killed run cannot clean up after itself; and no run may remove what another works with.
#[test]
fn what_a_killed_bundle_left_is_cleared_by_the_next() {
    let project = Project::new();
    let prefix = prefix(&project);
    let output = project.path("out/bundle");
    project.write(
        "out/.mlx-overlay-bundle-unfinished-X1yZ/mlx-overlay/lib/libmlx.a",
        "half",
    );
    project.write("out/notes", "mine");
    project.write("out/.mlx-overlay-bundle-notes/lib", "mine");
    let prefix_of_ours = ".mlx-overlay-bundle-unfinished-";
    let live = patchset::place::Scratch::new(&project.path("out"), prefix_of_ours).unwrap();
    let dead = format!("out/{prefix_of_ours}dead/lib/libmlx.a");
    project.write(&dead, "half");
    bundle(&project, &prefix, &output).exits(0);
    assert!(live.path().is_dir());
    drop(live);
    let names = || {
        let entries = project.path("out").read_dir_utf8().unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(), [".mlx-overlay-bundle-notes", "bundle", "notes"]);

    // Killed between the two renames on a file system that cannot exchange.
    let aside = project.path("out/.mlx-overlay-earlier-bundle");
    fs_err::rename(&output, &aside).unwrap();
    let run = bundle(&project, &prefix, &output).exits(0);
    assert!(run.out.contains("replaced"), "{run:?}");
    assert_eq!(names(), [".mlx-overlay-bundle-notes", "bundle", "notes"]);
}

/// Old or new, whenever it is killed, and nothing left next to it in the end.
#[test]
#[expect(clippy::disallowed_methods, reason = "it is killed")]
fn a_bundle_that_is_killed_leaves_the_old_one_or_the_new_one() {
    const FILES: usize = 500;
    // Spread evenly over the time that one run takes.
    const KILLS: u32 = 12;
    let project = Project::new();
    let prefix = prefix(&project);
    // Enough files, so that most of the time is spent writing next to the output.
    for file in 0..FILES {
        project.write(
            &format!("checkout/target/mlx/one/prefix/include/mlx/{file}.h"),
            "#pragma once\n",
        );
    }
    sums::write(&prefix).unwrap();
    let output = project.path("out/bundle");
    bundle(&project, &prefix, &output).exits(0);
    let start = Instant::now();
    bundle(&project, &prefix, &output).exits(0);
    let whole = start.elapsed();
    let beside = || project.path("out").read_dir_utf8().unwrap().count() > 1;
    let mut working = 0;
    for kill in 0..KILLS {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["bundle", "--prefix", prefix.as_str()])
            .args(["--output", output.as_str()])
            .current_dir(project.path("checkout"))
            .env("HOME", project.path("home"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        sleep(whole * kill / KILLS);
        child.kill().unwrap();
        child.wait().unwrap();
        working += u32::from(beside());
        assert_eq!(sums::check(&output).unwrap(), None, "kill {kill}");
    }
    eprintln!("{working} of {KILLS} kills hit the run during its work");
    assert!(working > 0, "no kill hit the run during its work");
    bundle(&project, &prefix, &output).exits(0);
    let left = project.path("out").read_dir_utf8().unwrap();
    assert_eq!(left.count(), 1);
}

#[test]
fn an_archive_of_another_kind_and_an_empty_name_are_wrong_usage() {
    let project = Project::new();
    for name in [
        "x.tar.gz",
        "x.tgz",
        "x.tar.xz",
        "x.zip",
        "x.tar",
        "x.TAR.GZ",
        "x.tar.bz2",
        "",
    ] {
        let run = project.xtask(&["bundle", "--output", name]).exits(2);
        assert!(run.err.contains(".tar.zst"), "{name}: {run:?}");
        assert!(run.err.contains("--output"), "{name}: {run:?}");
    }
    project.xtask(&["bundle", "--prefix", ""]).exits(2);
}

#[test]
fn a_build_that_ends_while_bundle_waits_is_the_one_that_counts() {
    let project = Project::new();
    let lock = Lock::load(&project.path("checkout/mlx.lock"))
        .unwrap()
        .unwrap();
    let prefix = project.path("checkout/target/mlx/one/prefix");
    fs_err::create_dir_all(&prefix).unwrap();
    built_from(&lock.final_tree.to_string())
        .write(&prefix)
        .unwrap();

    // Like a build.
    let held = fs_err::File::create(prefix.with_file_name("lock")).unwrap();
    held.file().lock().unwrap();
    scope(|scope| {
        let bundle = scope.spawn(|| project.xtask(&["bundle", "--prefix", prefix.as_str()]));
        sleep(Duration::from_millis(500));
        built_from("another-tree").write(&prefix).unwrap();
        drop(held);
        bundle
            .join()
            .unwrap()
            .fails_with(&["built from tree another-tree"]);
    });
}

#[test]
fn a_bundle_prints_that_it_waits_for_another_program() {
    let project = Project::new();
    let prefix = prefix(&project);
    let output = project.path("out/bundle");
    fs_err::create_dir(project.path("out")).unwrap();
    let held = fs_err::File::open(project.path("out")).unwrap();
    held.file().lock().unwrap();
    let run = scope(|scope| {
        let run = scope.spawn(|| bundle(&project, &prefix, &output));
        sleep(Duration::from_millis(500));
        assert!(!output.exists());
        drop(held);
        run.join().unwrap()
    });
    let run = run.exits(0);
    let waits = format!(
        "waiting: another program, such as another `bundle`, has locked {}",
        project.path("out")
    );
    assert!(run.err.contains(&waits), "{run:?}");
}

/// A copy elsewhere is never built: files next to it belong to someone, and it need not be writable.
#[test]
fn what_lies_beside_a_prefix_is_left_alone() {
    let project = Project::new();
    let prefix = prefix(&project);
    let copy = project.path("elsewhere/prefix");
    fs_err::create_dir(project.path("elsewhere")).unwrap();
    fs_err::rename(&prefix, &copy).unwrap();
    let output = project.path("bundle");
    bundle(&project, &copy, &output).exits(0);
    assert!(!project.path("elsewhere/lock").exists());
    project.write("elsewhere/lock", "mine");
    bundle(&project, &copy, &output).exits(0);
    assert_eq!(project.read("elsewhere/lock"), "mine");
}

#[test]
fn nothing_is_bundled_into_what_a_build_writes() {
    let project = Project::new();
    let prefix = prefix(&project);
    let taken = [
        "target/mlx/one/prefix/lib/own",
        "target/mlx/own",
        "vendor/mlx/own",
    ];
    for place in taken {
        let output = project.path("checkout").join(place);
        bundle(&project, &prefix, &output).fails_with(&["other commands write"]);
        assert!(!output.exists());
    }
    let link = project.path("link");
    fs_err::os::unix::fs::symlink(prefix.join("lib"), &link).unwrap();
    bundle(&project, &prefix, &link.join("own")).fails_with(&["other commands write"]);
    bundle(
        &project,
        &prefix,
        &project.path("checkout/target/bundle/own"),
    )
    .exits(0);
}

#[test]
fn a_folder_that_is_no_prefix_is_left_as_it_is() {
    let project = Project::new();
    project.write("somewhere/prefix/notes", "mine");
    let prefix = project.path("somewhere/prefix");
    project
        .xtask(&["bundle", "--prefix", prefix.as_str()])
        .fails_with(&["no built MLX", "cargo xtask build"]);
    assert!(!project.path("somewhere/lock").exists());
}
