//! `cargo xtask build` locks `vendor/mlx`: no other run swaps the tree while it compiles, and it does not compile a
//! tree that is being swapped. The processes that it started keep the lock if it is killed.

use std::ffi::OsString;
use std::fs::TryLockError;
use std::path::Path;
use std::thread::{scope, sleep};
use std::time::Duration;

use camino::Utf8DirEntry;
use sha2::{Digest, Sha256};
use xtask::proc::Cmd;

use crate::support::{FILE, Project, Run};

/// Long enough to catch a run that does not wait; one that waits takes this long.
const A_WHILE: Duration = Duration::from_millis(500);

/// Shell text that reports that it was reached, and then waits.
fn wait(project: &Project) -> String {
    let (started, go) = (project.path("started"), project.path("go"));
    format!(
        "touch {started}\ni=0\nwhile [ ! -e {go} ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done\nexit 1"
    )
}

/// `PATH` with `body` as `cmake`.
fn path_with_cmake(project: &Project, body: &str) -> OsString {
    let mut path = OsString::from(project.program("cmake", body));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

/// Builds with a `cmake` that waits when it is asked for its version.
fn build(project: &Project) -> Run {
    let path = path_with_cmake(project, &wait(project));
    project.run(
        project
            .command(&["build", "--backend", "cpu"])
            .env("PATH", path),
    )
}

/// Pins what MLX's build needs besides MLX, as local archives.
fn pin_inputs(project: &Project) {
    project.write("input/CMakeLists.txt", "");
    let mut manifest = project.read("checkout/mlx.toml");
    for name in ["fmt", "json"] {
        let archive = format!("checkout/target/overlay/archives/{name}.tar.gz");
        project.write(&archive, "");
        let archive = project.path(&archive);
        Cmd::new("tar")
            .args(["-czf", archive.as_str(), "input"])
            .dir(project.path(""))
            .run()
            .unwrap();
        let sum: String = Sha256::digest(fs_err::read(&archive).unwrap())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        manifest += &format!(
            "\n[[input]]\nname = \"{name}\"\nversion = \"1\"\nlicence = \"MIT\"\n\
             url = \"https://localhost/{name}.tar.gz\"\nsha256 = \"{sum}\"\npath = \"input\"\n\
             carrier = {{ crate = \"none\", version = \"1.0.0\", archive = \"{name}.tar.gz\" }}\n"
        );
    }
    project.write("checkout/mlx.toml", &manifest);
}

/// Kills the process whose id is in `file`.
fn kill(project: &Project, file: &str) {
    let number = project.read(file);
    Cmd::new("kill").args(["-9", number.trim()]).run().unwrap();
}

/// Whether no other process could lock the file.
fn is_held(path: impl AsRef<Path>) -> bool {
    let file = fs_err::File::open(path.as_ref()).unwrap();
    matches!(file.file().try_lock(), Err(TryLockError::WouldBlock))
}

fn wait_for(file: impl AsRef<Path>) {
    for _ in 0..600 {
        if file.as_ref().exists() {
            return;
        }
        sleep(Duration::from_millis(100));
    }
    panic!("{} does not appear", file.as_ref().display());
}

#[test]
fn no_other_run_swaps_the_tree_that_is_built() {
    let project = Project::new();
    let vendored = format!("checkout/vendor/mlx/{FILE}");
    scope(|scope| {
        let build = scope.spawn(|| build(&project));
        wait_for(project.path("started"));
        let revert = scope.spawn(|| project.xtask(&["apply-overlay", "--revert"]));
        sleep(A_WHILE);
        let waits = !revert.is_finished() && project.read(&vendored).contains("long line_30");
        // Before anything can fail: the build waits for it.
        project.write("go", "");
        assert!(waits, "the tree was swapped while it was built");
        build.join().unwrap().fails_with(&["cmake 3.25 or newer"]);
        revert.join().unwrap().exits(0);
        assert!(project.read(&vendored).contains("int line_30"));
    });
}

#[test]
fn a_tree_that_is_being_swapped_is_not_built() {
    let project = Project::new();
    let vendored = format!("checkout/vendor/mlx/{FILE}");
    let whole = project.read(&vendored);
    project.write("go", "");
    // Like a run in the middle of a swap.
    let lock = fs_err::File::open(project.path("checkout/vendor/.mlx-lock")).unwrap();
    lock.file().lock().unwrap();
    project.write(&vendored, "half written");
    scope(|scope| {
        let build = scope.spawn(|| build(&project));
        sleep(A_WHILE);
        project.write(&vendored, &whole);
        drop(lock);
        // It saw the complete tree, and so got as far as calling cmake.
        build.join().unwrap().fails_with(&["cmake 3.25 or newer"]);
    });
}

#[test]
fn a_tree_that_is_not_the_locks_is_not_built() {
    let project = Project::new();
    project.write("go", "");
    project.xtask(&["apply-overlay", "--revert"]).exits(0);
    build(&project).fails_with(&["mlx.lock has", "cargo xtask apply-overlay"]);
    fs_err::remove_dir_all(project.path("checkout/vendor/mlx")).unwrap();
    build(&project).fails_with(&["vendor/mlx is missing", "cargo xtask apply-overlay"]);
}

#[test]
fn an_edited_tree_is_not_built_and_the_way_out_of_it_works() {
    let project = Project::new();
    project.write("go", "");
    project.replace(
        &format!("checkout/vendor/mlx/{FILE}"),
        "int line_5 ",
        "long line_5 ",
    );
    build(&project).fails_with(&[FILE, "cargo xtask apply-overlay --discard-edits"]);
    project
        .xtask(&["apply-overlay", "--discard-edits"])
        .exits(0);
    build(&project).fails_with(&["cmake 3.25 or newer"]);
}

#[test]
fn choices_that_make_no_sense_are_wrong_usage() {
    let project = Project::new();
    let run = project.xtask(&["build", "-j", "0"]).exits(2);
    assert!(run.err.contains("0 is not in 1.."), "{run:?}");
    let run = project
        .xtask(&["build", "--backend", "cpu", "--jit"])
        .exits(2);
    assert!(run.err.starts_with("error: --jit selects"), "{run:?}");
    assert_eq!(run.err.lines().count(), 1, "{run:?}");
}

#[test]
fn a_path_that_breaks_builds_is_refused_before_anything_runs() {
    let project = Project::new();
    project.write("go", "");
    let mut checkout = project.path("checkout");
    let mut build_in = |name: &str| {
        let moved = project.path(name);
        fs_err::rename(&checkout, &moved).unwrap();
        checkout = moved;
        let path = path_with_cmake(&project, &wait(&project));
        let command = project.command(&["build", "--backend", "cpu"]);
        project.run(command.env("PATH", path).dir(&checkout))
    };
    for name in [
        "a(b)", "a[b]", "a\"b\"", "it's", "a\\b", "a#b", "a;b", "a\nb",
    ] {
        let bad = name.chars().find(|c| !c.is_alphanumeric()).unwrap();
        let run = build_in(name).fails_with(&[&format!("contains {bad:?}"), "move the checkout"]);
        assert!(run.err.contains(name), "{run:?}");
    }
    // It gets as far as calling cmake.
    let run = build_in("blank é日本 {b}, ~+@%!=^*?");
    run.fails_with(&["cmake 3.25 or newer"]);
}

/// Cargo does not compile xtask again in a checkout that was moved or copied.
#[test]
#[cfg(target_os = "linux")]
fn a_build_uses_the_files_of_the_checkout_that_it_runs_in() {
    let project = Project::new();
    project.write("checkout/xtask/cmake/metallib.cmake", "");
    let run = project.xtask(&["build", "--backend", "sim"]);
    run.fails_with(&["/checkout/crates/metal-sim is missing"]);
}

#[test]
fn a_build_names_its_step_and_the_files_in_work_at_once() {
    let project = Project::new();
    pin_inputs(&project);
    // Standard error is a pipe here, so a later step would first be reported after 15 s.
    let cmake = "case \"$*\" in
        --version) echo 'cmake version 3.25.1'; exit ;;
        --build*) ;;
        *) mkdir -p build 2>/dev/null
           echo '-- Looking for sgemm_'; sleep 3
           printf 'build a.o: CXX\\nbuild b.o: CXX\\n' > build.ninja
           echo '-- Build files have been written to: here'; exit ;;
    esac
    sh -c 'sleep 3; exit 1' c++ -o CMakeFiles/mlx.dir/mlx/ops.cpp.o -c ops.cpp
    exit 1";
    let path = path_with_cmake(&project, cmake);
    let run = project
        .run(
            project
                .command(&["build", "--backend", "cpu"])
                .env("PATH", path),
        )
        .exits(1);
    let at = |text: &str| {
        run.err
            .find(text)
            .unwrap_or_else(|| panic!("no `{text}`: {run:?}"))
    };
    assert!(
        at("... 2 s, configuring MLX: Looking for sgemm_") < at("compiling MLX 0/3: ops.cpp\n")
    );
}

#[test]
fn processes_of_a_killed_build_keep_its_locks() {
    let project = Project::new();
    pin_inputs(&project);
    let version = "case \"$*\" in --version) echo 'cmake version 3.25.1'; exit ;; esac";
    let (child, cmake) = (project.path("child"), wait(&project));
    let path = path_with_cmake(
        &project,
        &format!("{version}\necho $PPID > {child}\n{cmake}"),
    );
    // A shell that becomes the build, so that its process id is known.
    let becomes = format!("echo $$ > {}; exec \"$@\"", project.path("parent"));
    let build = Cmd::new("sh")
        .args(["-c", &becomes, "sh", env!("CARGO_BIN_EXE_xtask")])
        .args(["build", "--backend", "cpu"])
        .env("HOME", project.path("home"))
        .env("PATH", path)
        .dir(project.path("checkout"));
    let builds = project.path("checkout/target/mlx");
    let folder_is_held = || {
        let is_build = |folder: &&Utf8DirEntry| folder.file_name().starts_with("cpu-");
        let entries: Vec<_> = builds
            .read_dir_utf8()
            .unwrap()
            .map(Result::unwrap)
            .collect();
        is_held(entries.iter().find(is_build).unwrap().path().join("lock"))
    };
    scope(|scope| {
        let build = scope.spawn(|| build.output().unwrap());
        wait_for(project.path("started"));
        kill(&project, "parent");
        build.join().unwrap();
        let held = folder_is_held();
        let vendor_held = is_held(project.path("checkout/vendor/.mlx-lock"));
        // Only CMake is left.
        kill(&project, "child");
        sleep(A_WHILE);
        let still_held = folder_is_held();
        project.write("go", "");
        assert!(
            held,
            "a second build would run next to the first one's CMake"
        );
        assert!(vendor_held, "the tree would be swapped under CMake");
        assert!(still_held, "a second build would run next to CMake alone");
    });
    for _ in 0..100 {
        if !folder_is_held() {
            return;
        }
        sleep(Duration::from_millis(100));
    }
    panic!("nothing runs, but the folder is locked");
}
