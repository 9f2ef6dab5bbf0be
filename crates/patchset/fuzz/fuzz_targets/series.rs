//! For any text of `patches/series`: no panic, and each name is a valid file name and occurs once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use patchset::path;
use patchset::series::names;

fuzz_target!(|text: &str| {
    let Ok(found) = names(text) else { return };
    for (at, name) in found.iter().enumerate() {
        path::check(name, "fuzz").expect("a name that becomes a file's");
        assert!(!name.contains(['/', '.', '#']), "{name:?}");
        assert!(!found[..at].contains(name), "{name} twice");
    }
    assert_eq!(names(&found.join("\n")).expect("the names alone"), found);
});
