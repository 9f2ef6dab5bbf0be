//! Build inputs whose files are pinned: a wheel or upstream's archive may provide them, and other
//! content is rejected.

use std::io::{Cursor, Write as _};

use camino::Utf8PathBuf;
use flate2::Compression;
use flate2::write::GzEncoder;
use fs_err as fs;
use sha2::{Digest as _, Sha256};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::fixture::Fixture;
use crate::model::manifest::{Carried, Input, Manifest};
use crate::progress::QUIET;
use crate::sources::inputs;
use crate::tree::{File, Mode, Snapshot};
use crate::{Result, fetch};

const WHEEL: &str = "heads_of-1.0-py3-none-any.whl";

/// The pinned headers, as in upstream.
fn headers() -> Snapshot {
    let files = ["one/a.h", "two/b.h"].map(|name| {
        let bytes = format!("// {name}\n").into_bytes();
        (
            name.to_owned(),
            File {
                mode: Mode::Regular,
                bytes,
            },
        )
    });
    Snapshot(files.into())
}

fn wheel(change: &str) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let mut add = |name: &str, mode: u32, text: &str| {
        let options = SimpleFileOptions::default().unix_permissions(mode);
        zip.start_file(name, options).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    };
    // Some packers make everything executable.
    add(
        "lib/include/one/a.h",
        0o755,
        &format!("// one/a.h\n{change}"),
    );
    add("lib/include/two/b.h", 0o644, "// two/b.h\n");
    add("lib/include/three/c.h", 0o644, "// not wanted\n");
    add("lib/large.so", 0o755, "not wanted");
    zip.finish().unwrap().into_inner()
}

fn archive() -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, file) in headers().0 {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(file.bytes.len() as u64);
        let path = format!("heads-1.0/c/include/{name}");
        tar.append_data(&mut header, path, file.bytes.as_slice())
            .unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// A manifest with one input, pinned by the right tree, and a wheel with this content.
fn manifest(fixture: &Fixture, wheel: &[u8]) -> Input {
    let file = fixture.workspace.manifest_path();
    let sum: String = Sha256::digest(wheel)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let tree = headers().listing().unwrap().tree_id().unwrap();
    let text = format!(
        "{}\n[[input]]\nname = 'heads'\nversion = '1.0'\nlicence = 'MIT'\nbackend = 'gpu'\n\
         url = 'http://127.0.0.1:9/v1.0.tar.gz'\npath = 'heads-1.0/c/include'\ntree = '{tree}'\ninto = 'include'\n\
         [input.wheel]\nfile = '{WHEEL}'\nsha256 = '{sum}'\npath = 'lib/include'\nonly = ['one', 'two']\n",
        fs::read_to_string(&file).unwrap()
    );
    let manifest = Manifest::parse(&file, &text).unwrap();
    fs::write(file, text).unwrap();
    manifest.inputs.into_iter().next().unwrap()
}

/// Puts a file where the engine looks for files provided by the user.
fn put(fixture: &Fixture, name: &str, bytes: &[u8]) -> Utf8PathBuf {
    let folder = fixture.workspace.cache().join("archives");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join(name);
    fs::write(&file, bytes).unwrap();
    file
}

fn bring(fixture: &Fixture, input: &Input) -> Result<inputs::Unpacked> {
    let one = std::slice::from_ref(input);
    let all = inputs::fetch(&fixture.workspace, one, true, QUIET)?;
    Ok(all.into_iter().next().unwrap())
}

/// The content of an input's folder.
fn content(input: &inputs::Unpacked) -> Snapshot {
    Snapshot::of_dir(&input.folder).unwrap()
}

fn expected() -> Snapshot {
    let inside = |(name, file)| (format!("include/{name}"), file);
    Snapshot(headers().0.into_iter().map(inside).collect())
}

#[test]
fn of_a_wheel_the_wanted_headers_are_taken() {
    let fixture = Fixture::new();
    let input = manifest(&fixture, &wheel(""));
    put(&fixture, WHEEL, &wheel(""));
    let first = bring(&fixture, &input).unwrap();
    assert!(!first.cached);
    assert_eq!(content(&first), expected());
    assert!(bring(&fixture, &input).unwrap().cached);
    // An edited file is noticed.
    fs::write(first.folder.join("include/one/a.h"), "edited").unwrap();
    let again = bring(&fixture, &input).unwrap();
    assert!(!again.cached);
    assert_eq!(content(&again), expected());
}

#[test]
fn upstreams_archive_with_the_same_headers_will_do() {
    let fixture = Fixture::new();
    let input = manifest(&fixture, b"a wheel that is not here");
    put(&fixture, "v1.0.tar.gz", &archive());
    assert_eq!(content(&bring(&fixture, &input).unwrap()), expected());
}

#[test]
fn other_headers_are_refused_whoever_has_them() {
    let fixture = Fixture::new();
    let input = manifest(&fixture, &wheel("changed\n"));
    put(&fixture, WHEEL, &wheel("changed\n"));
    let text = bring(&fixture, &input).unwrap_err().to_string();
    assert!(
        text.contains(WHEEL) && text.contains("expected files with tree"),
        "{text}"
    );
    let text = {
        put(&fixture, WHEEL, &wheel(""));
        bring(&fixture, &input).unwrap_err().to_string()
    };
    assert!(text.contains("expected sha256"), "{text}");
    let mut other = input.clone();
    other.path = "heads-1.0/c".to_owned();
    fs::remove_file(fixture.workspace.cache().join("archives").join(WHEEL)).unwrap();
    put(&fixture, "v1.0.tar.gz", &archive());
    let text = bring(&fixture, &other).unwrap_err().to_string();
    assert!(
        text.contains("v1.0.tar.gz") && text.contains("expected files with tree"),
        "{text}"
    );
    assert!(!fixture.workspace.cache().join("inputs").exists());
}

#[test]
fn without_a_network_both_sources_are_named() {
    let fixture = Fixture::new();
    let input = manifest(&fixture, &wheel(""));
    let text = bring(&fixture, &input).unwrap_err().to_string();
    assert_eq!(text.matches("not asked: offline").count(), 2, "{text}");
    for source in [WHEEL, "http://127.0.0.1:9/v1.0.tar.gz"] {
        assert!(text.contains(source), "{text}");
    }
}

#[test]
fn what_one_back_end_needs_is_fetched_for_it_alone() {
    let fixture = Fixture::new();
    fixture.fill_store();
    let input = manifest(&fixture, &wheel(""));
    assert!(matches!(input.carried, Carried::Files { .. }));
    put(&fixture, WHEEL, &wheel(""));
    let names = |backend: Option<&str>| {
        let options = fetch::Options {
            offline: true,
            backend: backend.map(str::to_owned),
            ..fetch::Options::default()
        };
        let outcome = fetch::fetch(&fixture.workspace, &options, QUIET).unwrap();
        outcome
            .inputs
            .into_iter()
            .map(|input| input.name)
            .collect::<Vec<_>>()
    };
    assert!(names(None).is_empty());
    assert!(names(Some("cpu")).is_empty());
    assert_eq!(names(Some("gpu")), ["heads"]);
}
