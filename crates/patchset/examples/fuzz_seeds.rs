//! Writes seed inputs for the fuzz targets into `fuzz/corpus`; without them they never get past the first line. `cargo
//! run -p patchset --example fuzz_seeds`
#![allow(clippy::unwrap_used, reason = "a generator may panic")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{Cursor, Write as _};

use camino::Utf8Path;
use flate2::Compression;
use flate2::write::GzEncoder;
use fs_err as fs;
use liblzma::write::XzEncoder;
use support::{Change, Project, Upstream, WIDEN};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// The fuzz target `archive` uses its first byte to decide how to read the others.
const AS_IS: u8 = 2;
const AS_TAR: u8 = 3;

const TEXTS: [(&str, &str); 2] = [("t/a.txt", "line 1\n"), ("t/dir/run.sh", "#!/bin/sh\n")];
const LINK: (&str, &str) = ("t/dir/link", "../a.txt");

fn main() {
    let added = Change {
        name: "added",
        edits: &[("src/k.cpp", "int line_35 = 35;", "long line_35 = 35;")],
        adds: &[("src/new.h", "int n;\n")],
    };
    let project = Project::new(&Upstream::new(), &[WIDEN, added]);
    let here = Utf8Path::new(env!("CARGO_MANIFEST_DIR"));
    let archive = |kind: u8, bytes: Vec<u8>| [vec![kind], bytes].concat();
    let seeds = [
        ("archive/tar", archive(AS_TAR, tar())),
        ("archive/gz", archive(AS_IS, gz())),
        ("archive/xz", archive(AS_IS, xz())),
        ("archive/zip", archive(AS_IS, zip())),
        ("manifest/small", project.read("mlx.toml").into_bytes()),
        (
            "manifest/whole",
            fs::read(here.join("../../mlx.toml")).unwrap(),
        ),
        (
            "patch/one",
            project.read("patches/widen.patch").into_bytes(),
        ),
        (
            "patch/two",
            project.read("patches/added.patch").into_bytes(),
        ),
        (
            "series/two",
            b"# in order\none # the first\n\ntwo\n".to_vec(),
        ),
    ];
    for (name, bytes) in seeds {
        let file = here.join("fuzz/corpus").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }
}

fn tar() -> Vec<u8> {
    let mut out = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    for (name, text) in TEXTS {
        header.set_size(text.len() as u64);
        header.set_mode(if name.ends_with(".sh") { 0o755 } else { 0o644 });
        out.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    out.append_link(&mut header, LINK.0, LINK.1).unwrap();
    out.into_inner().unwrap()
}

fn gz() -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(&tar()).unwrap();
    out.finish().unwrap()
}

fn xz() -> Vec<u8> {
    let mut out = XzEncoder::new(Vec::new(), 1);
    out.write_all(&tar()).unwrap();
    out.finish().unwrap()
}

fn zip() -> Vec<u8> {
    let mut out = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in TEXTS {
        out.start_file(name, SimpleFileOptions::default()).unwrap();
        out.write_all(text.as_bytes()).unwrap();
    }
    out.add_symlink(LINK.0, LINK.1, SimpleFileOptions::default())
        .unwrap();
    out.finish().unwrap().into_inner()
}
