//! `cargo xtask kernels` on crafted containers and, ignored, on MLX's official ones. Needs vendor/mlx.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod official;
#[expect(
    clippy::disallowed_methods,
    reason = "shared with the reader's tests, which do not have the wrapper"
)]
#[path = "../../../crates/metallib/tests/wheels/mod.rs"]
mod wheels;
#[path = "../../../crates/metallib/tests/writer/mod.rs"]
mod writer;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use writer::{FunctionSpec, Parts, Shape, group, tag, u64s, write};

/// Runs `xtask kernels` in this checkout.
fn kernels(arguments: &[&str]) -> Output {
    #[expect(
        clippy::disallowed_methods,
        reason = "the wrapper runs programs, this is a test of one"
    )]
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("kernels")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .unwrap()
}

/// The exit code and the report of `--json`.
fn report(file: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let file = file.to_str().unwrap();
    let output = kernels(&[&["--json", "--metallib", file], arguments].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    (
        output.status.code(),
        report.unwrap_or_else(|_| panic!("{error}")),
    )
}

/// The names of a set of this checkout.
fn list(set: &str) -> BTreeSet<String> {
    let output = kernels(&["--list", set]);
    let names = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{names}");
    names.lines().map(str::to_owned).collect()
}

fn strings(value: &Value) -> BTreeSet<String> {
    let strings = value.as_array().unwrap().iter();
    strings
        .map(|value| value.as_str().unwrap().to_owned())
        .collect()
}

fn library(names: &BTreeSet<String>, shape: Shape) -> Vec<u8> {
    let kernels = names.iter().map(|name| FunctionSpec::kernel(name, b"code"));
    write(&kernels.collect::<Vec<_>>(), shape)
}

#[test]
fn a_library_is_complete_or_its_gaps_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mlx.metallib");
    let for_macos_15 = Shape {
        os: (0x81, 15, 0),
        ..Shape::default()
    };
    let mut names = list("dispatch");
    std::fs::write(&file, library(&names, for_macos_15)).unwrap();
    let (code, complete) = report(&file, &["--deployment-target", "15.0"]);
    assert_eq!(code, Some(0), "{complete}");
    assert_eq!(complete["metallib"]["minimum_os"], "macOS 15.0");
    assert_eq!(complete["metallib"]["language"], "3.1");
    assert_eq!(complete["metallib"]["tree"], complete["tree"]);
    assert_eq!(strings(&complete["missing"]), BTreeSet::new());

    // One kernel fewer, and the fingerprint of another tree.
    let gap = "affine_qmv_wide_float_gs_64_b_4_nv_8_kl_8_batch_0".to_owned();
    let tree = complete["tree"].as_str().unwrap();
    let fingerprint = format!("mlx_overlay_tree_{tree}");
    assert!(names.remove(&gap) && names.remove(&fingerprint));
    names.insert("mlx_overlay_tree_0123".to_owned());
    std::fs::write(&file, library(&names, for_macos_15)).unwrap();
    let (code, incomplete) = report(&file, &["--deployment-target", "14.0"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        strings(&incomplete["missing"]),
        BTreeSet::from([gap, fingerprint])
    );
    assert_eq!(incomplete["metallib"]["tree"], "0123");
    let faults = strings(&incomplete["faults"]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    let fault = faults.first().unwrap();
    assert!(
        fault.contains("macOS 15.0") && fault.contains("macOS 14.0"),
        "{fault}"
    );
}

#[test]
fn an_empty_library_lacks_everything() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.metallib");
    // What Apple's compiler makes from an empty source, 118 bytes: a header, a count of 0, an empty extension.
    let empty = Parts {
        extension: [&tag(b"UUID", &[7; 16])[..], b"ENDT"].concat(),
        ..Parts::default()
    }
    .assemble(Shape::default());
    assert_eq!(empty.len(), 118);
    std::fs::write(&file, empty).unwrap();
    let (code, report) = report(&file, &[]);
    assert_eq!(code, Some(1));
    assert_eq!(report["metallib"]["kernels"], 0);
    assert_eq!(
        strings(&report["missing"]).len() as u64,
        report["dispatch"].as_u64().unwrap()
    );
}

#[test]
fn damaged_files_are_named_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let whole = library(
        &BTreeSet::from(["affine_qmv".to_owned(), "gemv".to_owned()]),
        Shape::default(),
    );
    let flipped = |at: usize| {
        let mut file = whole.clone();
        file[at] ^= 0x40;
        file
    };
    // Functions that all claim one large group of metadata.
    let bomb = {
        let public = group(&tag(b"DEBI", &[0; 60_000]));
        let entry = group(&[tag(b"NAME", b"k\0"), tag(b"OFFT", &u64s(&[0, 0, 0]))].concat());
        Parts {
            count: 1000,
            groups: entry.repeat(1000),
            public,
            private: group(&[]),
            ..Parts::default()
        }
        .assemble(Shape::default())
    };
    for (name, bytes, told) in [
        ("truncated", &whole[..whole.len() - 3], "it was truncated"),
        ("header", &whole[..40], "88 bytes"),
        ("nothing", &[], "the file is empty"),
        ("magic", &flipped(0), "magic"),
        ("size", &flipped(16), "header (offset 16)"),
        ("list", &flipped(25), "outside the file"),
        ("wheel", b"PK\x03\x04 and so on", "a zip archive or a wheel"),
        ("bomb", &bomb, "overlap"),
        (
            "simulated",
            b"mtlsim-metallib 1\nnames 2 sources 0\na\t0\tb\n",
            "names source 0 of 0",
        ),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let output = kernels(&["--metallib", file.to_str().unwrap()]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        assert!(
            error.starts_with("error: ") && error.contains(told),
            "{name}: {error}"
        );
        assert!(error.contains(file.to_str().unwrap()), "{name}: {error}");
        assert_eq!(output.stdout, b"", "{name}");
    }
    // A flip in a kernel's code leaves the names readable; its checksum shows it.
    let code = whole.windows(4).position(|bytes| bytes == b"code").unwrap();
    let file = folder.path().join("code");
    std::fs::write(&file, flipped(code)).unwrap();
    let (status, report) = report(&file, &[]);
    assert_eq!(status, Some(1));
    let faults = strings(&report["faults"]);
    assert!(
        faults
            .iter()
            .any(|fault| fault.contains("affine_qmv") && fault.contains("damaged")),
        "{faults:?}"
    );
}
