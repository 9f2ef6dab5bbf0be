//! `cargo xtask bundle` beside a build in the same folder.

use std::thread::{scope, sleep};
use std::time::Duration;

use overlay::lock::Lock;
use xtask::build::Backend;
use xtask::build::stamp::Stamp;

use crate::stamp::stamp;
use crate::support::Project;

/// A prefix's stamp, of this tree.
fn built_from(tree: &str) -> Stamp {
    stamp("1.0.0", tree, Backend::Cpu)
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

    // As a build would.
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
fn a_folder_that_is_no_prefix_is_left_as_it_is() {
    let project = Project::new();
    project.write("somewhere/prefix/notes", "mine");
    let prefix = project.path("somewhere/prefix");
    project
        .xtask(&["bundle", "--prefix", prefix.as_str()])
        .fails_with(&["no built MLX", "cargo xtask build"]);
    assert!(!project.path("somewhere/lock").exists());
}
