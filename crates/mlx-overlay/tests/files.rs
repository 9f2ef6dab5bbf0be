//! Files of arrays: values survive a round trip, and damaged files are rejected with an error that names them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mlx_overlay::{
    Array, Dtype, Element, Error, SafetensorsFile, bf16, f16, load_safetensors, save_safetensors,
    transpose,
};

const NONE: [(&str, &str); 0] = [];

fn array<T: Element>(values: &[T], shape: &[usize]) -> Array {
    Array::from_slice(values, shape).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_type_is_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.safetensors");
    let arrays = BTreeMap::from([
        ("a", array(&[1.5f32, -2.0], &[2])),
        ("b", array(&[f16::from_f32(1.5)], &[1, 1])),
        ("c", array(&[bf16::from_f32(2.5); 3], &[3])),
        ("d", array(&[1u8, 2, 3], &[3])),
        ("e", array(&[-1i8], &[1])),
        ("f", array(&[-300i16, 1], &[2])),
        ("g", array(&[i32::MIN], &[])),
        ("h", array(&[i64::MAX], &[1])),
        ("i", array(&[u16::MAX], &[1])),
        ("j", array(&[u32::MAX], &[1])),
        ("k", array(&[u64::MAX], &[1])),
        ("l", array(&[true, false], &[2])),
        ("empty", array::<f32>(&[], &[0, 7])),
        ("quote \" \\ \n \u{1F600}", array(&[0u8], &[1])),
        // Transposed in memory, and not evaluated before the write.
        (
            "turned",
            transpose(&array(&[1u32, 2, 3, 4, 5, 6], &[2, 3])).unwrap(),
        ),
    ]);
    let about = [("format", "mlx"), ("a \"key\"", "line\nline")];
    save_safetensors(&path, arrays.iter().map(|(&name, a)| (name, a)), about).unwrap();
    assert_eq!(names(folder.path()), ["all.safetensors"]);

    let file = SafetensorsFile::open(&path).unwrap();
    assert_eq!(file.metadata(), BTreeMap::from(about));
    assert!(file.names().eq(arrays.keys().copied()));
    for (name, array) in &arrays {
        assert_eq!(file.about(name).unwrap(), (array.shape(), array.dtype()));
        let read = file.array(name).unwrap();
        assert_eq!(read.shape(), array.shape());
        assert_eq!(
            read.evaluate().unwrap().as_bytes(),
            array.evaluate().unwrap().as_bytes(),
            "{name}"
        );
    }
    assert_eq!(load_safetensors(&path).unwrap().len(), arrays.len());

    // Another implementation of the format.
    let bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    assert_eq!(length % 8, 0);
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    assert_eq!(header["__metadata__"]["a \"key\""], "line\nline");
    assert_eq!(header["turned"]["shape"], serde_json::json!([3, 2]));
    assert_eq!(header.as_object().unwrap().len(), arrays.len() + 1);
}

/// Header and data of a file.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), data].concat()
}

#[test]
fn what_other_programs_write_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    // Spaces, any order, escapes, padding; unaligned offsets.
    let header = r#" { "__metadata__" : { "k" : "\u00e9\ud83d\ude00\t" } ,
        "w\u002f" : {"data_offsets":[ 1 , 9 ],"shape":[2],"dtype":"F32"},
        "s":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[0,1]}}   "#;
    let data: Vec<u8> = [7]
        .into_iter()
        .chain([1.5f32, 2.5].iter().flat_map(|v| v.to_le_bytes()))
        .collect();
    fs::write(&path, file(header, &data)).unwrap();
    let read = SafetensorsFile::open(&path).unwrap();
    assert_eq!(read.metadata()["k"], "é😀\t");
    assert_eq!(
        read.array("w/").unwrap().to_vec::<f32>().unwrap(),
        [1.5, 2.5]
    );
    assert_eq!(read.array("s").unwrap().to_vec::<u8>().unwrap(), [7]);
    let error = read.array("v").unwrap_err().to_string();
    assert_eq!(
        error,
        format!("{}: no array is named \"v\"", path.display())
    );
}

#[test]
fn damaged_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.safetensors");
    let refused = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        let error = SafetensorsFile::open(&path).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
        let text = error.to_string();
        let name = format!("{}: ", path.display());
        text.strip_prefix(&name).expect("names the file").to_owned()
    };
    assert_eq!(refused(b""), "not a safetensors file: it has only 0 bytes");
    let pointer = b"version https://git-lfs.github.com/spec/v1";
    let length = u64::from_le_bytes(*pointer.first_chunk().unwrap());
    assert_eq!(
        refused(pointer),
        format!("not a safetensors file: its first 8 bytes announce a header of {length} bytes")
    );
    let one = r#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
    assert_eq!(
        refused(&file(one, &[1])),
        format!(
            "it has {} bytes, expected {} from its header: an incomplete download?",
            one.len() + 9,
            one.len() + 10
        )
    );
    for (header, why) in [
        ("", "expected `{` at byte 0"),
        ("[]", "expected `{` at byte 0"),
        ("{", "expected `\"` at byte 1"),
        ("{} x", "expected the end at byte 3"),
        (r#"{"w":3}"#, "expected `{` at byte 5"),
        (
            r#"{"w":{}}"#,
            "an array has the fields [], expected dtype, shape and data_offsets",
        ),
        (r#"{"__metadata__":{"a":1}}"#, "expected `\"`"),
        (r#"{"__metadata__":{"a":"","a":""}}"#, "duplicate key \"a\""),
        (
            r#"{"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}"#,
            "a number below 2^64",
        ),
        (
            r#"{"w":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,0]}}"#,
            "a number below 2^64",
        ),
        (
            r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0]}}"#,
            "data_offsets must have two numbers",
        ),
        (
            r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#,
            "has the offsets 1 and 2, expected a start of 0",
        ),
        (
            r#"{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"v":{"dtype":"U8","shape":[0],"data_offsets":[5,0]}}"#,
            "has the offsets 5 and 0",
        ),
        (
            r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,2]}}"#,
            "\"w\" has 2 bytes, which is wrong for f32 [1]",
        ),
        (
            r#"{"w":{"dtype":"U8","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,2]}}"#,
            "\"w\" has 2 bytes",
        ),
        (
            r#"{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#,
            "duplicate name \"w\"",
        ),
        (r#"{"\ud800":{}}"#, "expected a character"),
        (r#"{"\u12g4":{}}"#, "expected four hexadecimal digits"),
        (r#"{"\x":{}}"#, "expected an escape"),
        (r#"{"w"#, "expected more"),
    ] {
        let found = refused(&file(header, &[]));
        assert!(found.contains(why), "{header}: {found}");
    }
    assert!(refused(&file("{\"\u{1}\":{}}", &[])).contains("the end of a string"));
    let mut bytes = file("{\"x\":{}}", &[]);
    bytes[10] = 0xff;
    assert!(refused(&bytes).contains("utf-8"));

    // MLX does not have this type.
    let header = r#"{"w":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}"#;
    fs::write(&path, file(header, &[0; 8])).unwrap();
    let error = load_safetensors(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("w has the type F64, which MLX does not support"),
        "{error}"
    );

    // Truncated after it was opened.
    fs::write(&path, file(one, &[1, 2])).unwrap();
    let open = SafetensorsFile::open(&path).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(60)
        .unwrap();
    let error = open.array("w").unwrap_err().to_string();
    assert!(
        error.ends_with("w: the file ends 2 bytes too early"),
        "{error}"
    );

    // An invalid bool, which Rust code must never see.
    let header = r#"{"w":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}"#;
    fs::write(&path, file(header, &[2])).unwrap();
    let read = SafetensorsFile::open(&path).unwrap().array("w").unwrap();
    assert!(matches!(read.to_vec::<bool>(), Err(Error::Bytes { .. })));

    for missing in [folder.path().join("none"), folder.path().to_owned()] {
        let error = SafetensorsFile::open(&missing).unwrap_err();
        assert!(
            matches!(&error, Error::File { path, .. } if *path == missing),
            "{error}"
        );
    }
}

#[test]
fn a_file_is_replaced_as_a_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let old = array(&[1u8], &[1]);
    save_safetensors(&path, [("w", &old)], NONE).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let new = array(&[2u8, 3], &[2]);
    save_safetensors(&path, [("w", &new)], NONE).unwrap();
    assert_eq!(load_safetensors(&path).unwrap()["w"].shape(), [2]);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o640
    );

    fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
    let error = save_safetensors(&path, [("w", &old)], NONE).unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
    assert_eq!(load_safetensors(&path).unwrap()["w"].shape(), [2]);

    // A link stays a link.
    let link = folder.path().join("link");
    let behind = folder.path().join("behind");
    std::os::unix::fs::symlink(&behind, &link).unwrap();
    save_safetensors(&link, [("w", &old)], NONE).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(load_safetensors(&behind).unwrap()["w"].dtype(), Dtype::U8);
    let second = folder.path().join("second");
    fs::hard_link(&behind, &second).unwrap();
    save_safetensors(&second, [("w", &new)], NONE).unwrap();
    assert_eq!(load_safetensors(&behind).unwrap()["w"].shape(), [2]);
    save_safetensors("/dev/null", [("w", &old)], NONE).unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());

    let nowhere = folder.path().join("none").join("w");
    assert!(matches!(
        save_safetensors(&nowhere, [("w", &old)], NONE),
        Err(Error::File { .. })
    ));
    assert_eq!(
        names(folder.path()),
        ["behind", "link", "second", "w.safetensors"]
    );
}

/// Arrays that could not be read back or would be lost are rejected before anything is written.
#[test]
fn what_the_format_cannot_hold_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let a = array(&[1u8], &[1]);
    let long = "x".repeat(100_000_001);
    let refusals = [
        save_safetensors(&path, [("__metadata__", &a)], NONE),
        save_safetensors(&path, [("w", &a), ("w", &a)], NONE),
        save_safetensors(&path, [("w", &a)], [("k", "1"), ("k", "2")]),
        save_safetensors(&path, [("w", &a)], [("k", long.as_str())]),
    ];
    for (refusal, why) in refusals.into_iter().zip([
        "can be named \"__metadata__\"",
        "duplicate name \"w\"",
        "duplicate name \"k\"",
        "at most 100000000 can be read",
    ]) {
        let error = refusal.unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(names(folder.path()), [""; 0]);
}

/// Extents whose product overflows, except that the last one is 0.
#[test]
fn an_empty_array_of_large_extents_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let most = (1 << 31) - 1;
    let empty = array::<u8>(&[], &[most, most, most, 0]);
    save_safetensors(&path, [("w", &empty)], NONE).unwrap();
    let read = load_safetensors(&path).unwrap();
    assert_eq!(read["w"].shape(), empty.shape());
}

/// A file with bytes whose reported size is 0.
#[cfg(target_os = "linux")]
#[test]
fn a_file_of_no_size_is_refused() {
    let error = SafetensorsFile::open("/proc/self/maps").unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
}
