//! Every state is recognized, and changing states loses nothing.

use std::os::unix::fs::PermissionsExt as _;

use fs_err as fs;

use super::fixture::{ADDED, Fixture, edit, export, header, make_old, time_of, upstream};
use crate::Error;
use crate::apply::{Options, apply, check};
use crate::progress::QUIET;
use crate::state::{PatchState, State, status};

#[test]
fn the_plain_way_there_and_back() {
    let fixture = Fixture::new();
    assert_eq!(fixture.state(), State::Absent);

    let outcome = fixture.apply().unwrap();
    assert_eq!((outcome.before, outcome.written), (State::Absent, 5));
    assert_eq!(fixture.state(), State::Applied);
    assert_eq!(fixture.inspect().tree, Some(fixture.lock().final_tree));
    assert_eq!(
        check(&fixture.workspace, QUIET).unwrap(),
        fixture.lock().final_tree
    );

    let again = fixture.apply().unwrap();
    assert_eq!(
        (again.before, again.written, again.removed),
        (State::Applied, 0, 0)
    );

    let reverted = fixture.revert().unwrap();
    assert_eq!((reverted.written, reverted.removed), (2, 1));
    assert_eq!(fixture.state(), State::Pristine);
    assert!(
        matches!(check(&fixture.workspace, QUIET), Err(Error::NotApplied(state)) if state == "pristine")
    );
}

#[test]
fn a_whole_patch_short_is_partly_applied() {
    let fixture = Fixture::new();
    fixture.apply().unwrap();
    fs::remove_file(fixture.vendored(ADDED)).unwrap();
    let mut tree = upstream();
    edit(&mut tree, "a.txt", "line 3\n", "line three\n");
    fs::write(fixture.vendored("a.txt"), &tree.0["a.txt"].bytes).unwrap();

    let found = fixture.inspect();
    assert_eq!(found.state, State::PartlyApplied { applied: 1, of: 2 });
    assert_eq!(found.patches, [PatchState::Applied, PatchState::NotApplied]);
    fixture.apply().unwrap();
    assert_eq!(fixture.state(), State::Applied);
}

#[test]
fn a_patch_half_applied_by_hand_is_partly_applied() {
    let fixture = Fixture::new();
    fixture.revert().unwrap();
    let mut tree = upstream();
    edit(
        &mut tree,
        "b.txt",
        "line 2\n",
        "line two\nline two and a half\n",
    );
    fs::write(fixture.vendored("b.txt"), &tree.0["b.txt"].bytes).unwrap();

    let found = fixture.inspect();
    assert_eq!(found.state, State::PartlyApplied { applied: 0, of: 2 });
    assert_eq!(
        found.patches,
        [PatchState::PartlyApplied, PatchState::NotApplied]
    );
    fixture.apply().unwrap();
    assert_eq!(fixture.state(), State::Applied);
}

#[test]
fn another_lock_makes_the_tree_stale() {
    let fixture = Fixture::new();
    fixture.apply().unwrap();
    let mut tree = upstream();
    let before = tree.clone();
    edit(&mut tree, "a.txt", "line 3\n", "line iii\n");
    edit(&mut tree, "b.txt", "line 2\n", "line ii\n");
    fs::write(
        fixture.patch_file("one"),
        export("one", &header("none"), &before, &tree),
    )
    .unwrap();
    let before = tree.clone();
    edit(&mut tree, "a.txt", "line 15\n", "");
    fs::write(
        fixture.patch_file("two"),
        export("two", &header(ADDED), &before, &tree),
    )
    .unwrap();

    let error = fixture.apply().unwrap_err();
    assert!(
        matches!(&error, Error::LockDiffers(why) if why[0].contains("one.patch")),
        "{error}"
    );

    fixture.write_lock();
    assert_eq!(fixture.state(), State::Stale);
    // The state is not taken from the cache.
    fs::remove_dir_all(fixture.workspace.cache()).unwrap();
    assert_eq!(fixture.state(), State::Stale);
    fixture.fill_store();
    fixture.apply().unwrap();
    assert_eq!(fixture.state(), State::Applied);
}

#[test]
fn edits_are_named_refused_and_kept() {
    let fixture = Fixture::new();
    fixture.apply().unwrap();
    fs::write(fixture.vendored("b.txt"), "mine\n").unwrap();
    fs::write(fixture.vendored("dir/mine.txt"), "mine too\n").unwrap();
    fs::remove_file(fixture.vendored("dir/sub/link")).unwrap();
    let expected = ["dir/sub/link", "dir/mine.txt", "b.txt"];

    // With and without the cache: after `cargo clean` we must still know what was placed.
    for cached in [true, false] {
        if !cached {
            fs::remove_dir_all(fixture.workspace.cache()).unwrap();
        }
        let (state, status) = status(&fixture.workspace, QUIET).unwrap();
        assert_eq!(state.name(), "tampered");
        assert_eq!(status.edited, expected);
    }
    fixture.fill_store();
    let error = fixture.apply().unwrap_err();
    assert!(
        matches!(error, Error::Tampered(_)) && error.to_string().contains("b.txt"),
        "{error}"
    );
    assert_eq!(
        fs::read_to_string(fixture.vendored("b.txt")).unwrap(),
        "mine\n"
    );

    let options = Options {
        discard_edits: true,
        offline: true,
        ..Options::default()
    };
    let kept = apply(&fixture.workspace, &options, QUIET)
        .unwrap()
        .kept_edits
        .unwrap();
    assert_eq!(fixture.state(), State::Applied);
    assert_eq!(fs::read_to_string(kept.join("b.txt")).unwrap(), "mine\n");
    assert_eq!(
        fs::read_to_string(kept.join("dir/mine.txt")).unwrap(),
        "mine too\n"
    );
    assert!(!kept.join("a.txt").exists(), "only edited files are kept");
}

/// There is nothing to keep, and no missing folder is named.
#[test]
fn of_files_that_were_deleted_none_is_kept() {
    let fixture = Fixture::new();
    fixture.apply().unwrap();
    fs::remove_file(fixture.vendored("b.txt")).unwrap();
    let options = Options {
        discard_edits: true,
        offline: true,
        ..Options::default()
    };
    let outcome = apply(&fixture.workspace, &options, QUIET).unwrap();
    assert_eq!(outcome.kept_edits, None);
    assert_eq!(fixture.state(), State::Applied);
    let left = fs::read_dir(fixture.workspace.vendor()).unwrap();
    assert!(
        left.map(|entry| entry.unwrap().file_name())
            .all(|name| !name.to_string_lossy().contains("edits"))
    );
}

/// A link without a target, or to a folder, has no content to copy.
#[test]
fn links_put_in_by_hand_are_kept_as_links() {
    let fixture = Fixture::new();
    fixture.apply().unwrap();
    for (path, target) in [("b.txt", "/nowhere/at/all"), ("mine", "dir")] {
        let _ = fs::remove_file(fixture.vendored(path));
        fs_err::os::unix::fs::symlink(target, fixture.vendored(path)).unwrap();
    }
    let options = Options {
        discard_edits: true,
        offline: true,
        ..Options::default()
    };
    let outcome = apply(&fixture.workspace, &options, QUIET).unwrap();
    let kept = outcome.kept_edits.unwrap();
    assert_eq!(fs::read_link(kept.join("mine")).unwrap().as_os_str(), "dir");
    assert_eq!(
        fs::read_link(kept.join("b.txt")).unwrap().as_os_str(),
        "/nowhere/at/all"
    );
    assert_eq!(fixture.state(), State::Applied);
}

#[test]
fn a_file_or_link_in_the_trees_place_is_refused_and_stays() {
    let fixture = Fixture::new();
    let place = fixture.workspace.tree();
    let elsewhere = fixture.upstream();
    let put: [&dyn Fn(); 3] = [
        &|| fs::write(&place, "mine\n").unwrap(),
        &|| fs_err::os::unix::fs::symlink(&elsewhere, &place).unwrap(),
        &|| fs_err::os::unix::fs::symlink("/nowhere/at/all", &place).unwrap(),
    ];
    for put in put {
        put();
        for error in [
            fixture.apply().unwrap_err(),
            status(&fixture.workspace, QUIET).unwrap_err(),
        ] {
            assert!(matches!(&error, Error::NotAFolder(_)), "{error}");
        }
        assert!(!fs::symlink_metadata(&place).unwrap().is_dir());
        fs::remove_file(&place).unwrap();
    }
    assert_eq!(
        fs::read_to_string(elsewhere.join("b.txt"))
            .unwrap()
            .lines()
            .count(),
        5
    );
}

/// Even if the tree is in place already, a source that was named is checked.
#[test]
fn a_source_for_an_applied_tree_is_checked_all_the_same() {
    let fixture = Fixture::new();
    fixture.apply().unwrap();
    let options = |source: &str| Options {
        offline: true,
        source: Some(source.into()),
        ..Options::default()
    };
    let error = apply(&fixture.workspace, &options("/nowhere"), QUIET).unwrap_err();
    assert!(error.to_string().contains("/nowhere"), "{error}");
    let good = fixture.upstream();
    let outcome = apply(&fixture.workspace, &options(good.as_str()), QUIET).unwrap();
    assert_eq!((outcome.written, outcome.removed), (0, 0));
}

/// The swap is done by then; an error would claim that the old tree is in place.
#[test]
fn clutter_beside_the_listings_does_not_fail_an_apply() {
    let fixture = Fixture::new();
    fixture.revert().unwrap();
    fs::create_dir(fixture.workspace.vendor().join(".mlx-placed/clutter")).unwrap();
    fixture.apply().unwrap();
    assert_eq!(fixture.state(), State::Applied);
}

#[test]
fn one_mode_bit_is_an_edit() {
    let fixture = Fixture::new();
    fixture.apply().unwrap();
    let script = fixture.vendored("dir/run.sh");
    fs::set_permissions(&script, std::fs::Permissions::from_mode(0o644)).unwrap();
    let State::Tampered(edits) = fixture.state() else {
        panic!("{}", fixture.state())
    };
    assert_eq!(edits.modes, ["dir/run.sh"]);
}

#[test]
fn a_tree_from_elsewhere_is_tampered() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.workspace.tree()).unwrap();
    fs::write(fixture.vendored("other"), "").unwrap();
    fs::remove_dir_all(fixture.workspace.cache()).unwrap();
    assert!(matches!(fixture.state(), State::Tampered(edits) if edits.is_empty()));
}

#[test]
fn equal_files_keep_their_times_and_others_get_the_present() {
    let fixture = Fixture::new();
    fixture.apply().unwrap();
    let paths = ["a.txt", "b.txt", "dir/run.sh"].map(|path| fixture.vendored(path));
    for step in [Fixture::revert, Fixture::apply] {
        let old = paths.each_ref().map(|path| make_old(path));
        step(&fixture).unwrap();
        let new = paths.each_ref().map(|path| time_of(path));
        assert!(
            new[0] > old[0] && new[1] > old[1],
            "changed files must look changed"
        );
        assert_eq!(new[2], old[2], "an unchanged file must not look changed");
    }
}

#[test]
fn status_has_the_documented_fields() {
    let fixture = Fixture::new();
    fixture.apply().unwrap();
    let (_, status) = status(&fixture.workspace, QUIET).unwrap();
    let lock = fixture.lock();
    let expected = serde_json::json!({
        "state": "applied",
        "version": "1.0.0",
        "pin": "1.0.0",
        "source": "the fixture",
        "base_tree": fixture.base.to_string(),
        "final_tree": lock.final_tree.to_string(),
        "lock_tree": lock.final_tree.to_string(),
        "changed_lines": 6,
        "budget_lines": 60,
        "patches": [
            { "name": "one", "state": "applied", "changed_lines": 5 },
            { "name": "two", "state": "applied", "changed_lines": 1 },
        ],
        "edited": [],
        "bump": null,
        "bump_error": null,
    });
    assert_eq!(serde_json::to_value(&status).unwrap(), expected);
}
