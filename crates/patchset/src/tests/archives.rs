//! Archives: each kind can be read, damage is noticed, and no name leads out of the tree.

use std::io::{Cursor, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use fs_err as fs;
use liblzma::write::XzEncoder;
use tar::{Builder, EntryType, Header};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::fixture::{Fixture, upstream};
use crate::Error;
use crate::fetch::{Options, fetch};
use crate::progress::QUIET;
use crate::sources::archive::{check_sum, unpack_within};
use crate::sources::unpack;
use crate::tree::bounds::Bounds;
use crate::tree::{File, Listing, Mode, Snapshot};

/// A tar; the names are written as given, including those that the builder would reject.
fn tar_of<'a>(entries: impl IntoIterator<Item = (&'a str, EntryType, u32, &'a [u8])>) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, mode, content) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if kind == EntryType::Symlink {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content);
            header.set_size(0);
            header.set_cksum();
            builder.append(&header, &b""[..]).unwrap();
        } else {
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, content).unwrap();
        }
    }
    builder.into_inner().unwrap()
}

fn tar_of_tree(tree: &Snapshot, top: &str) -> Vec<u8> {
    let named: Vec<_> = tree
        .0
        .iter()
        .map(|(path, file)| (format!("{top}{path}"), file))
        .collect();
    tar_of(named.iter().map(|(path, file)| match file.mode {
        Mode::Regular => (
            path.as_str(),
            EntryType::Regular,
            0o644,
            file.bytes.as_slice(),
        ),
        Mode::Executable => (
            path.as_str(),
            EntryType::Regular,
            0o755,
            file.bytes.as_slice(),
        ),
        Mode::Link => (
            path.as_str(),
            EntryType::Symlink,
            0o777,
            file.bytes.as_slice(),
        ),
    }))
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut out = XzEncoder::new(Vec::new(), 1);
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn zip_of(entries: &[(&str, Mode, &[u8])]) -> Vec<u8> {
    let mut out = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, mode, content) in entries {
        let options = SimpleFileOptions::default();
        match mode {
            Mode::Link => out
                .add_symlink(*name, std::str::from_utf8(content).unwrap(), options)
                .unwrap(),
            mode => {
                let bits = if *mode == Mode::Executable {
                    0o755
                } else {
                    0o644
                };
                out.start_file(*name, options.unix_permissions(bits))
                    .unwrap();
                out.write_all(content).unwrap();
            }
        }
    }
    out.finish().unwrap().into_inner()
}

fn zip_of_tree(tree: &Snapshot, top: &str) -> Vec<u8> {
    let named: Vec<_> = tree
        .0
        .iter()
        .map(|(path, file)| (format!("{top}{path}"), file))
        .collect();
    let entries: Vec<_> = named
        .iter()
        .map(|(path, file)| (path.as_str(), file.mode, file.bytes.as_slice()))
        .collect();
    zip_of(&entries)
}

#[test]
fn every_kind_brings_the_same_tree() {
    let fixture = Fixture::new();
    let tree = upstream();
    let kinds = [
        ("a.tar.gz", gz(&tar_of_tree(&tree, "mlx-1/"))),
        ("a.tar.xz", xz(&tar_of_tree(&tree, "mlx-1/"))),
        ("a.zip", zip_of_tree(&tree, "mlx-1/")),
        ("a.crate", gz(&tar_of_tree(&tree, "mlx-1/"))),
        ("flat.tar.gz", gz(&tar_of_tree(&tree, "./"))),
    ];
    for (name, bytes) in kinds {
        let path = fixture.root().join(name);
        fs::write(&path, bytes).unwrap();
        fs::remove_dir_all(fixture.workspace.cache()).unwrap();
        let options = Options {
            source: Some(path),
            offline: true,
            ..Options::default()
        };
        assert_eq!(
            fetch(&fixture.workspace, &options, QUIET).unwrap().mlx.tree,
            fixture.base,
            "{name}"
        );
    }
}

#[test]
fn a_cut_or_damaged_archive_is_noticed() {
    let tree = upstream();
    for (name, bytes) in [
        ("gz", gz(&tar_of_tree(&tree, "t/"))),
        ("xz", xz(&tar_of_tree(&tree, "t/"))),
        ("zip", zip_of_tree(&tree, "t/")),
    ] {
        assert_eq!(unpack(name, &bytes, Some("t")).unwrap(), tree);
        for length in 0..bytes.len() {
            assert!(
                unpack(name, &bytes[..length], Some("t")).is_err(),
                "{name} cut to {length} bytes was accepted"
            );
        }
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x40;
            // Bytes without meaning (times, comments) may change; the files must not.
            if let Ok(found) = unpack(name, &damaged, Some("t"))
                && found != tree
            {
                let found = found.listing().unwrap().tree_id().unwrap();
                assert_ne!(found, tree.listing().unwrap().tree_id().unwrap());
            }
        }
    }
    let error = unpack("x.rar", b"Rar!", None).unwrap_err().to_string();
    assert!(
        error.contains("x.rar: expected a .tar.gz, .tar.xz, .zip or .crate"),
        "{error}"
    );
    let error = unpack("x", &gz(&tar_of_tree(&tree, "t/")), Some("mlx"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("it has no folder mlx"), "{error}");
}

#[test]
fn a_cut_tar_inside_a_whole_gz_is_noticed() {
    let tar = tar_of([("t/a", EntryType::Regular, 0o644, &[b'x'; 2000][..])]);
    for length in [100, 512, 600, 512 + 1999] {
        assert!(
            unpack("cut", &gz(&tar[..length]), Some("t")).is_err(),
            "cut to {length}"
        );
    }
}

/// An .xz of a few bytes may request 4 GiB of memory, which the decoder allocates before it reads on.
#[test]
fn an_xz_that_asks_for_too_much_memory_is_refused() {
    // After the stream's own header: the block header's size, its flags, the filter, its properties' size, the
    // dictionary.
    const BLOCK: usize = 12;
    let mut bytes = xz(&tar_of_tree(&upstream(), "t/"));
    assert_eq!(bytes[BLOCK + 1..BLOCK + 4], [0, 0x21, 1], "another filter");
    bytes[BLOCK + 4] = 40;
    let sum = BLOCK + 4 * usize::from(bytes[BLOCK]);
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[BLOCK..sum]);
    bytes[sum..sum + 4].copy_from_slice(&crc.sum().to_le_bytes());
    let error = unpack("x.tar.xz", &bytes, Some("t"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("x.tar.xz") && error.contains("memory limit reached"),
        "{error}"
    );
}

#[test]
fn sums_are_checked() {
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    check_sum("abc", b"abc", sum).unwrap();
    assert!(
        matches!(check_sum("abd", b"abd", sum), Err(Error::Sum { expected, .. }) if expected == sum)
    );
}

#[test]
fn hostile_names_are_refused() {
    let long = "t/ok";
    let hostile: [&[(&str, Mode, &[u8])]; 10] = [
        &[("t/../../escape", Mode::Regular, b"")],
        &[("../escape", Mode::Regular, b"")],
        &[("/absolute", Mode::Regular, b"")],
        &[("t/.git/config", Mode::Regular, b"")],
        &[("t/link", Mode::Link, b"../../outside")],
        &[("t/link", Mode::Link, b"/etc/passwd")],
        // Stays inside the archive, but leads out of the requested folder.
        &[
            ("t/link", Mode::Link, b"../other"),
            ("other", Mode::Regular, b""),
        ],
        // Leaves it through another link.
        &[
            ("t/a/b/top", Mode::Link, b"../.."),
            ("t/out", Mode::Link, b"a/b/top/../x"),
        ],
        &[
            ("t/File", Mode::Regular, b"1"),
            ("t/file", Mode::Regular, b"2"),
        ],
        &[
            ("t/link", Mode::Link, b"ok"),
            ("t/link/inside", Mode::Regular, b""),
        ],
    ];
    for entries in hostile {
        let with_good = [(long, Mode::Regular, &b"fine"[..])]
            .into_iter()
            .chain(entries.iter().copied());
        let tar = tar_of(with_good.clone().map(|(name, mode, content)| match mode {
            Mode::Link => (name, EntryType::Symlink, 0o777, content),
            _ => (name, EntryType::Regular, 0o644, content),
        }));
        let error = unpack("hostile.tar.gz", &gz(&tar), Some("t")).unwrap_err();
        assert!(
            matches!(&error, Error::UnsafePath { origin, .. } if origin == "hostile.tar.gz"),
            "{entries:?}: {error}"
        );
        let zip = zip_of(&with_good.collect::<Vec<_>>());
        let error = unpack("hostile.zip", &zip, Some("t")).unwrap_err();
        assert!(
            matches!(&error, Error::UnsafePath { .. }),
            "{entries:?}: {error}"
        );
    }
}

#[test]
fn the_same_name_twice_and_hard_links_are_refused() {
    let twice = [
        ("t/a", EntryType::Regular, 0o644, &b"1"[..]),
        ("t/a", EntryType::Regular, 0o644, &b"2"[..]),
    ];
    let error = unpack("twice", &gz(&tar_of(twice)), Some("t"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("t/a is in it twice"), "{error}");
    let hard = [("t/a", EntryType::Link, 0o644, &b""[..])];
    let error = unpack("hard", &gz(&tar_of(hard)), Some("t"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("only files and links are supported"),
        "{error}"
    );
}

#[test]
fn a_link_keeps_its_target() {
    let file = File {
        mode: Mode::Link,
        bytes: b"a.txt".to_vec(),
    };
    let tree = Snapshot(
        [
            ("link".to_owned(), file),
            ("a.txt".to_owned(), upstream().0["a.txt"].clone()),
        ]
        .into(),
    );
    for bytes in [gz(&tar_of_tree(&tree, "t/")), zip_of_tree(&tree, "t/")] {
        assert_eq!(unpack("links", &bytes, Some("t")).unwrap(), tree);
    }
}

#[test]
fn a_path_of_thousands_of_folders_is_refused_by_a_bound_that_is_named() {
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(0);
    header.set_mode(0o644);
    // Within the limit, and beyond it.
    for folders in [100, 12_000] {
        let path = format!("t/{}f", "d/".repeat(folders));
        builder.append_data(&mut header, path, &b""[..]).unwrap();
        let tar = builder.get_ref().clone();
        let error = unpack("deep.tar.gz", &gz(&tar), Some("t")).unwrap_err();
        assert!(
            matches!(&error, Error::UnsafePath { why, .. } if why.contains("more than")),
            "{error}"
        );
        builder = Builder::new(Vec::new());
    }
}

#[test]
fn all_members_of_a_compressed_file_are_read() {
    let tree = upstream();
    let tar = tar_of_tree(&tree, "t/");
    let (one, two) = tar.split_at(700);
    for (name, bytes) in [
        ("gz", [gz(one), gz(two)].concat()),
        ("padded gz", [gz(one), gz(two), vec![0; 512]].concat()),
        ("xz", [xz(one), xz(two)].concat()),
    ] {
        assert_eq!(unpack(name, &bytes, Some("t")).unwrap(), tree, "{name}");
    }
    for bytes in [
        [gz(one), xz(two)].concat(),
        [gz(&tar), b"more".to_vec()].concat(),
        [xz(&tar), b"more".to_vec()].concat(),
    ] {
        unpack("mixed", &bytes, Some("t")).unwrap_err();
    }
    // Readers disagree on the meaning of a second archive in one file.
    let error = unpack("two", &gz(&[&tar[..], &tar].concat()), Some("t"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("it has data after the end"), "{error}");
}

#[test]
fn a_zip_holds_no_name_twice_and_no_devices() {
    let entries = [
        ("t/a", Mode::Regular, &b"1"[..]),
        ("t/b", Mode::Regular, &b"2"[..]),
    ];
    let bytes = zip_of(&entries);
    unpack("fine", &bytes, Some("t")).unwrap();
    let mut twice = bytes.clone();
    for at in 0..twice.len() - 3 {
        if &twice[at..at + 3] == b"t/b" {
            twice[at + 2] = b'a';
        }
    }
    let error = unpack("twice.zip", &twice, Some("t"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("twice.zip: it has a name twice"), "{error}");

    const ATTRIBUTES: usize = 38;
    let central = bytes.windows(4).position(|four| four == b"PK\x01\x02");
    for (mode, shown) in [(0o020_644_u32, "20000"), (0o010_644, "10000")] {
        let mut device = bytes.clone();
        let at = central.unwrap() + ATTRIBUTES;
        device[at..at + 4].copy_from_slice(&(mode << 16).to_le_bytes());
        let error = unpack("device.zip", &device, Some("t"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("of kind {shown}")), "{error}");
    }
}

#[test]
fn what_exceeds_a_bound_is_refused_and_the_bound_is_named() {
    let tree = upstream();
    let all: u64 = tree.0.values().map(|file| file.bytes.len() as u64).sum();
    let tar = tar_of_tree(&tree, "t/");
    let piecemeal: Vec<u8> = tar.chunks(700).flat_map(gz).collect();
    let fits = Bounds {
        entries: 16,
        bytes: tar.len() as u64,
    };
    for (name, bytes, members, size) in [
        ("gz", gz(&tar), 4, tar.len() as u64),
        (
            "members",
            piecemeal,
            tar.chunks(700).len() as u64,
            tar.len() as u64,
        ),
        ("xz", xz(&tar), 4, tar.len() as u64),
        ("zip", zip_of_tree(&tree, "t/"), 4, all),
    ] {
        let unpack = |bounds| unpack_within(bounds, name, &bytes, Some("t"));
        assert_eq!(unpack(fits).unwrap(), tree, "{name}");
        let few = Bounds {
            entries: members - 1,
            ..fits
        };
        let error = unpack(few).unwrap_err().to_string();
        let expected = format!("{name}: it has more than {} entries", members - 1);
        assert!(error.starts_with(&expected), "{error}");
        let small = Bounds {
            bytes: size - 1,
            ..fits
        };
        let error = unpack(small).unwrap_err().to_string();
        let expected = format!("{name}: it has more than {} bytes", size - 1);
        assert!(error.starts_with(&expected), "{error}");
    }
    // A folder is read into memory too.
    let fixture = Fixture::new();
    let folder = fixture.upstream();
    let links = 1;
    let files = all - tree.0["dir/sub/link"].bytes.len() as u64;
    // The folder itself, two below it, three files and a link.
    let entries = 3 + 3 + links;
    let read = |entries, bytes| Snapshot::of_dir_within(&folder, &Bounds { entries, bytes });
    assert_eq!(read(entries, files).unwrap(), tree);
    assert!(matches!(
        read(entries - 1, files),
        Err(Error::TooLarge {
            unit: "entries",
            ..
        })
    ));
    assert!(matches!(
        read(entries, files - 1),
        Err(Error::TooLarge { unit: "bytes", .. })
    ));
}

/// A sparse file of this size takes no disk space, but would fill the memory if it were read.
#[test]
fn a_file_larger_than_any_source_is_not_read() {
    let fixture = Fixture::new();
    let file = fixture.root().join("large.tar.gz");
    fs::File::create(&file).unwrap().set_len(40 << 30).unwrap();
    let inside = fixture.upstream().join("large");
    for source in [file.clone(), fixture.upstream()] {
        let options = Options {
            source: Some(source),
            offline: true,
            ..Options::default()
        };
        let error = fetch(&fixture.workspace, &options, QUIET)
            .unwrap_err()
            .to_string();
        assert!(error.contains("more than 268435456 bytes"), "{error}");
        if file.exists() {
            fs::rename(&file, &inside).unwrap();
        }
    }
}

/// In a tree that is compared, a large file is only an edit.
#[test]
fn a_large_file_is_hashed_piece_by_piece_to_the_same_id() {
    let fixture = Fixture::new();
    let size = (64 << 20) + 1;
    let file = fs::File::create(fixture.upstream().join("large")).unwrap();
    file.set_len(size).unwrap();
    let found = Listing::of_dir(&fixture.upstream()).unwrap().0["large"];
    let whole = vec![0; usize::try_from(size).unwrap()];
    let expected = git2::Oid::hash_object(git2::ObjectType::Blob, &whole).unwrap();
    assert_eq!((found.mode, found.blob), (Mode::Regular, expected));
}
