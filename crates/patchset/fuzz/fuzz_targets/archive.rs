//! For any archive: no panic, and the result can be stored in a tree.
#![no_main]

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use patchset::sources::unpack;

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    // Even: the bytes as they are, in most cases a zip. Odd: a tar in a whole .gz.
    let archive = if kind % 2 == 0 {
        data.to_vec()
    } else {
        gz(data)
    };
    let folder = (kind % 4 >= 2).then_some("t");
    let Ok(snapshot) = unpack("fuzz", &archive, folder) else {
        return;
    };
    snapshot
        .check_paths("again")
        .expect("a path that unpack let through");
    let listing = snapshot.listing().expect("a listing");
    listing.tree_id().expect("a tree id");
    assert_eq!(listing.0.len(), snapshot.0.len());
});

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::none());
    out.write_all(bytes).expect("memory to write to");
    out.finish().expect("memory to write to")
}
