//! For any patch file: no panic. An accepted one has a canonical header, counts no line twice, and edits no file twice
//! or outside the tree.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use patchset::patch::{Header, Patch};
use patchset::path;

fuzz_target!(|data: &[u8]| {
    let Ok(patch) = Patch::parse("fuzz", data) else {
        return;
    };
    let header = patch.header.to_text();
    assert!(
        data.starts_with(header.as_bytes()),
        "the header is not what was written:\n{header}"
    );
    assert_eq!(
        Header::parse("fuzz", &header).expect("its own text"),
        patch.header
    );
    assert!(patch.changed_lines <= data.iter().filter(|byte| **byte == b'\n').count());
    let paths: BTreeSet<_> = patch.edits.iter().map(|edit| &edit.path).collect();
    assert_eq!(paths.len(), patch.edits.len(), "a file is edited twice");
    for path in paths
        .into_iter()
        .map(String::as_str)
        .chain(patch.header.adds())
    {
        path::check(path, "fuzz").expect("a path in the tree");
    }
});
