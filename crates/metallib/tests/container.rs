//! Tests the reader on well-formed containers, and its errors on others.

mod writer;

use metallib::{Error, FunctionKind, Library, LibraryKind, Platform, TargetOs, Version};
use writer::{FunctionSpec, Parts, Shape, group, tag, u64s, write};

fn names(library: &Library<'_>) -> Vec<String> {
    library
        .functions()
        .map(|function| function.expect("a readable function").name.to_owned())
        .collect()
}

/// The error of the first step that fails.
fn error_of(file: &[u8]) -> Error {
    let library = match Library::parse(file) {
        Ok(library) => library,
        Err(error) => return error,
    };
    library
        .functions()
        .find_map(Result::err)
        .or_else(|| library.verify().err())
        .expect("the file should be refused")
}

#[test]
fn every_field_is_found_again() {
    let mut first = FunctionSpec::kernel("affine_qmv_fast_float_gs_64_b_4", b"first module");
    first.constants = vec![("align_N".into(), 0x35, 201), ("align_K".into(), 0x35, 202)];
    first.unknown = vec![(*b"ZZZZ", b"from the future".to_vec())];
    let mut second = FunctionSpec::kernel("vertex_main", b"second");
    (second.kind, second.language) = (0, (4, 0));
    let file = write(&[first, second], Shape::default());
    let library = Library::parse(&file).unwrap();

    let header = library.header();
    assert_eq!(header.platform, Platform::MacOs);
    assert_eq!(header.kind, LibraryKind::Executable);
    assert_eq!(header.container_version, Version { major: 2, minor: 7 });
    assert_eq!(
        (header.os, header.os_version),
        (
            TargetOs::MacOs,
            Version {
                major: 14,
                minor: 0
            }
        )
    );
    assert_eq!(library.uuid().unwrap(), Some([7; 16]));
    assert_eq!(library.install_name().unwrap(), Some("test.metallib"));
    assert_eq!(
        library.language_version().unwrap(),
        Some(Version { major: 4, minor: 0 })
    );
    assert_eq!(
        names(&library),
        ["affine_qmv_fast_float_gs_64_b_4", "vertex_main"]
    );

    let function = library.functions().next().unwrap().unwrap();
    assert_eq!(function.kind, Some(FunctionKind::Kernel));
    assert_eq!(function.air_version, Some(Version { major: 2, minor: 6 }));
    assert_eq!(
        function.language_version,
        Some(Version { major: 3, minor: 1 })
    );
    let bitcode = function.bitcode.unwrap();
    assert_eq!(bitcode.bytes, b"first module");
    assert_eq!(&file[bitcode.offset as usize..][..12], b"first module");
    assert_eq!(function.reflection().unwrap(), Some(&b"AIRR"[..]));
    let constants: Vec<_> = function
        .constants()
        .unwrap()
        .map(|constant| constant.unwrap().to_string())
        .collect();
    assert_eq!(
        constants,
        [
            "align_N: bool [[function_constant(201)]]",
            "align_K: bool [[function_constant(202)]]"
        ]
    );
    let unknown: Vec<_> = function.unknown_tags().map(Result::unwrap).collect();
    assert_eq!(unknown.len(), 1);
    assert_eq!(
        (unknown[0].name.to_string().as_str(), unknown[0].payload),
        ("ZZZZ", &b"from the future"[..])
    );

    let report = library.verify().unwrap();
    assert_eq!(
        (
            report.verified,
            report.unhashed,
            report.bytes,
            report.mismatches.len()
        ),
        (2, 0, 18, 0)
    );
}

#[test]
fn versions_without_extension_and_versions_unheard_of_are_read() {
    let functions = [FunctionSpec::kernel("a", b"x")];
    for shape in [
        Shape {
            container: (1, 0),
            os: (0, 0, 0),
            extension: false,
            ..Shape::default()
        },
        Shape {
            container: (9, 99),
            os: (0xee, 99, 9),
            extension: true,
            ..Shape::default()
        },
    ] {
        let file = write(&functions, shape);
        let library = Library::parse(&file).unwrap();
        assert_eq!(names(&library), ["a"]);
        assert_eq!(library.has_reflection(), shape.extension);
        assert_eq!(library.uuid().unwrap().is_some(), shape.extension);
        let (major, minor) = shape.container;
        assert_eq!(library.header().container_version, Version { major, minor });
    }
    let file = write(
        &functions,
        Shape {
            os: (0xee, 1, 0),
            ..Shape::default()
        },
    );
    assert_eq!(
        Library::parse(&file).unwrap().header().os.to_string(),
        "unknown (0xee)"
    );
}

#[test]
fn both_ways_to_count_a_metadata_group_are_read() {
    let mut function = FunctionSpec::kernel("k", b"x");
    function.constants = vec![("flag".into(), 0x35, 3)];
    for old_groups in [false, true] {
        let shape = Shape {
            old_groups,
            ..Shape::default()
        };
        let file = write(&[function.clone(), FunctionSpec::kernel("l", b"y")], shape);
        let library = Library::parse(&file).unwrap();
        let constants: Vec<_> = library
            .functions()
            .map(|function| function.unwrap().constants().unwrap().count())
            .collect();
        assert_eq!(constants, [1, 0]);
    }
}

/// The compiler's output for a source without functions: header, count, UUID, end mark.
#[test]
fn the_empty_library_of_118_bytes_is_read_as_empty() {
    let extension = [&tag(b"UUID", &[1; 16])[..], b"ENDT"].concat();
    let file = Parts {
        extension,
        ..Parts::default()
    }
    .assemble(Shape::default());
    assert_eq!(file.len(), 118);
    let library = Library::parse(&file).unwrap();
    assert!(library.is_empty());
    assert_eq!(library.functions().count(), 0);
    assert_eq!(library.language_version().unwrap(), None);
    assert_eq!(library.verify().unwrap().verified, 0);
}

#[test]
fn a_changed_module_is_named_by_its_index() {
    let functions = [
        FunctionSpec::kernel("a", b"aaaa"),
        FunctionSpec::kernel("b", b"bbbb"),
    ];
    let mut file = write(&functions, Shape::default());
    let at = file
        .windows(4)
        .position(|window| window == b"bbbb")
        .unwrap();
    file[at] ^= 1;
    let report = Library::parse(&file).unwrap().verify().unwrap();
    assert_eq!(report.verified, 1);
    assert_eq!(report.mismatches, [1]);
}

#[test]
fn other_files_are_told_apart() {
    for (bytes, hint) in [
        (&b""[..], "the file is empty"),
        (b"PK\x03\x04rest of a wheel", "zip archive"),
        (b"\xcb\xfe\xba\xbe\x00\x00\x00\x02", "metal-lipo"),
        (b"\xde\xc0\x17\x0b\x00", "bare LLVM bitcode"),
        (b"version https://git-lfs", "Git LFS"),
        (b"\x1f\x8b\x08", "gzip"),
    ] {
        let message = Library::parse(bytes).unwrap_err().to_string();
        assert!(message.contains(hint), "{message}");
    }
}

#[test]
fn every_truncation_is_refused_with_both_sizes() {
    let file = write(
        &[
            FunctionSpec::kernel("a", b"x"),
            FunctionSpec::kernel("b", b"y"),
        ],
        Shape::default(),
    );
    for length in 88..file.len() {
        let error = Library::parse(&file[..length]).unwrap_err();
        assert_eq!(
            error,
            Error::FileSize {
                stored: file.len() as u64,
                actual: length as u64
            }
        );
    }
    for length in 4..88 {
        let error = Library::parse(&file[..length]).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Truncated {
                    what: "the header",
                    ..
                }
            ),
            "{error}"
        );
    }
    // Also with a header that matches: only typed errors, each with a position.
    for length in 88..file.len() {
        let mut cut = file[..length].to_vec();
        cut[16..24].copy_from_slice(&(length as u64).to_le_bytes());
        let message = error_of(&cut).to_string();
        assert!(message.contains("offset"), "{message}");
    }
}

#[test]
fn broken_entries_name_the_tag_and_the_offset() {
    let parts = |tags: &[u8]| {
        Parts {
            count: 1,
            groups: group(tags),
            ..Parts::default()
        }
        .assemble(Shape::default())
    };
    let name = tag(b"NAME", b"k\0");
    let with = |extra: &[u8]| parts(&[&name[..], extra].concat());

    assert_eq!(
        error_of(&with(&tag(b"HASH", &[0; 31]))).to_string(),
        "tag HASH at offset 104 holds 31 bytes, expected 32"
    );
    assert_eq!(
        error_of(&parts(&[])).to_string(),
        "function 0 at offset 92 has no tag NAME"
    );
    assert_eq!(
        error_of(&parts(&tag(b"NAME", b"open"))).to_string(),
        "a function's name at offset 102: expected a terminating NUL byte"
    );
    assert_eq!(
        error_of(&parts(&tag(b"NAME", b"\xff\0"))).to_string(),
        "a function's name at offset 102: expected UTF-8"
    );
    let no_end = Parts {
        count: 1,
        groups: [&10u32.to_le_bytes()[..], b"ZZZZ\0\0"].concat(),
        ..Parts::default()
    };
    assert_eq!(
        error_of(&no_end.assemble(Shape::default())).to_string(),
        "a function's tags at offset 96: expected ENDT before its end at offset 102"
    );
    let tiny = Parts {
        count: 1,
        groups: [&7u32.to_le_bytes()[..], b"ENDT"].concat(),
        ..Parts::default()
    };
    assert_eq!(
        error_of(&tiny.assemble(Shape::default())).to_string(),
        "a function at offset 92: its size is 7, but an empty group has 8"
    );
    let crowd = Parts {
        count: u32::MAX,
        ..Parts::default()
    };
    assert_eq!(
        error_of(&crowd.assemble(Shape::default())).to_string(),
        "the function list at offset 88 claims 4294967295 functions, but its 0 bytes can contain at most 0"
    );
    let no_end = Parts {
        count: 1,
        groups: group(&[&name[..], &tag(b"OFFT", &u64s(&[0; 3]))].concat()),
        public: vec![8, 0, 0, 0, 1, 1, 1, 1],
        ..Parts::default()
    };
    assert_eq!(
        error_of(&no_end.assemble(Shape::default())).to_string(),
        "public metadata at offset 138: expected ENDT before its end at offset 146"
    );
    let outside = with(
        &[
            tag(b"OFFT", &u64s(&[0, 0, 1])),
            tag(b"MDSZ", &u64s(&[u64::MAX])),
        ]
        .concat(),
    );
    assert_eq!(
        error_of(&outside).to_string(),
        "a function's bitcode (named at offset 126) spans 18446744073709551615 bytes from 1, outside the bitcode \
         section, which has 0 bytes"
    );
}

/// A thousand functions that share one part: as many bytes to walk as a thousand copies would have.
#[test]
fn shared_parts_cannot_multiply_the_work() {
    let entry = |offsets: [u64; 3], size: u64| {
        let tags = [
            tag(b"NAME", b"k\0"),
            tag(b"OFFT", &u64s(&offsets)),
            tag(b"MDSZ", &u64s(&[size])),
            tag(b"HASH", &[0; 32]),
        ];
        group(&tags.concat())
    };
    let many = |entry: &dyn Fn(u64) -> Vec<u8>| (0..1000).flat_map(entry).collect::<Vec<u8>>();

    let public = group(&many(&|_| tag(b"CNST", &[0; 1000])));
    let bomb = Parts {
        count: 1000,
        groups: many(&|_| entry([0; 3], 0)),
        public,
        private: group(&[]),
        ..Parts::default()
    };
    let error = error_of(&bomb.assemble(Shape::default()));
    assert!(
        matches!(
            error,
            Error::Overlap {
                what: "metadata",
                ..
            }
        ),
        "{error}"
    );

    // Modules that overlap without being equal.
    let bomb = Parts {
        count: 1000,
        groups: many(&|i| entry([0, 0, i], 1 << 20)),
        bitcode: vec![0; (1 << 20) + 1000],
        ..Parts::default()
    };
    let error = error_of(&bomb.assemble(Shape::default()));
    assert!(
        matches!(
            error,
            Error::Overlap {
                what: "bitcode",
                ..
            }
        ),
        "{error}"
    );

    // Identical ones are accepted: hashed once, compared a thousand times.
    let shared = Parts {
        count: 1000,
        groups: many(&|_| entry([0; 3], 1 << 20)),
        bitcode: vec![0; 1 << 20],
        ..Parts::default()
    };
    let report = Library::parse(&shared.assemble(Shape::default()))
        .unwrap()
        .verify()
        .unwrap();
    assert_eq!((report.bytes, report.mismatches.len()), (1 << 20, 1000));
}
