//! MLX's official libraries, from the `mlx-metal` wheels on PyPI. Full tier: `cargo test -p metallib -- --ignored`.
//!
//! The wheels (45 to 78 MB) are fetched with `pip download` into `target/mlx-metal-wheels`, once. The comparison with
//! the source needs pristine MLX trees: `MLX_TREES` names a folder with `mlx-0.31.2`, `mlx-0.32.0` and `mlx-0.32.4`.

mod wheels;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use metallib::{FunctionKind, Library, Version};

/// A wheel, and the known facts about its library.
struct Official {
    version: &'static str,
    platform: &'static str,
    functions: u32,
    affine: usize,
    container: (u16, u16),
    os: (u16, u16),
    language: (u16, u16),
}

const OFFICIAL: [Official; 5] = [
    official(
        "0.31.2",
        "macosx_14_0_arm64",
        15_147,
        1_620,
        (2, 7),
        (14, 0),
        (3, 1),
    ),
    official(
        "0.32.0",
        "macosx_14_0_arm64",
        15_657,
        2_052,
        (2, 7),
        (14, 0),
        (3, 1),
    ),
    official(
        "0.32.4",
        "macosx_14_0_arm64",
        17_248,
        2_520,
        (2, 7),
        (14, 0),
        (3, 1),
    ),
    official(
        "0.32.4",
        "macosx_15_0_arm64",
        17_251,
        2_520,
        (2, 8),
        (15, 0),
        (3, 2),
    ),
    official(
        "0.32.4",
        "macosx_26_0_arm64",
        18_817,
        3_528,
        (2, 9),
        (26, 2),
        (4, 0),
    ),
];

const fn official(
    version: &'static str,
    platform: &'static str,
    functions: u32,
    affine: usize,
    container: (u16, u16),
    os: (u16, u16),
    language: (u16, u16),
) -> Official {
    Official {
        version,
        platform,
        functions,
        affine,
        container,
        os,
        language,
    }
}

impl Official {
    /// The library's bytes.
    fn read(&self) -> Vec<u8> {
        fs::read(wheels::official(self.version, self.platform)).expect("the unpacked library")
    }
}

#[test]
#[ignore = "downloads 240 MB from PyPI"]
fn every_official_library_is_read_and_every_sum_is_right() {
    for official in &OFFICIAL {
        let file = official.read();
        let library = Library::parse(&file).unwrap();
        let what = format!("{} {}", official.version, official.platform);
        let version = |(major, minor)| Version { major, minor };
        assert_eq!(library.len(), official.functions, "{what}");
        assert_eq!(
            library.header().container_version,
            version(official.container),
            "{what}"
        );
        assert_eq!(library.header().os_version, version(official.os), "{what}");
        assert_eq!(
            library.language_version().unwrap(),
            Some(version(official.language)),
            "{what}"
        );
        let mut affine = 0;
        let mut constants = 0;
        for function in library.functions() {
            let function = function.unwrap();
            assert_eq!(
                function.kind,
                Some(FunctionKind::Kernel),
                "{what}: {}",
                function.name
            );
            assert_eq!(
                function.unknown_tags().count(),
                0,
                "{what}: {}",
                function.name
            );
            let reflection = function
                .reflection()
                .unwrap()
                .expect("an entry of the reflection list");
            assert!(
                reflection.windows(4).any(|window| window == b"AIRR"),
                "{what}: {}",
                function.name
            );
            for constant in function.constants().unwrap() {
                constant.unwrap();
                constants += 1;
            }
            affine += usize::from(function.name.starts_with("affine_"));
        }
        assert_eq!(affine, official.affine, "{what}");
        assert!(constants > 700, "{what}: {constants} function constants");
        let report = library.verify().unwrap();
        assert_eq!(
            (report.verified, report.mismatches.len()),
            (official.functions, 0),
            "{what}"
        );
        assert_eq!(
            report.bytes,
            library.header().bitcode.size,
            "{what}: every byte belongs to one function"
        );
    }
}

#[test]
#[ignore = "needs MLX_TREES and the wheels"]
fn affine_names_are_the_preprocessors_expansion_of_the_source() {
    let trees = PathBuf::from(
        env::var_os("MLX_TREES").expect("MLX_TREES: a folder with mlx-0.31.2, mlx-0.32.0, …"),
    );
    for official in &OFFICIAL {
        let tree = trees.join(format!("mlx-{}", official.version));
        let mut source = host_names(&tree, "quantized");
        // Kernels for the neural accelerators are built only for macOS 26 and newer.
        if official.os >= (26, 0) {
            source.extend(host_names(&tree, "quantized_nax"));
        }
        let file = official.read();
        let library = Library::parse(&file).unwrap();
        let names: BTreeSet<String> = library
            .functions()
            .map(|function| function.unwrap().name.to_owned())
            .filter(|name| name.starts_with("affine_"))
            .collect();
        let missing: Vec<_> = source.difference(&names).collect();
        let surplus: Vec<_> = names.difference(&source).collect();
        assert!(
            missing.is_empty() && surplus.is_empty(),
            "{} {}: {} names of the source are not in the library, {} of the library not in the source: {:?}",
            official.version,
            official.platform,
            missing.len(),
            surplus.len(),
            missing.iter().chain(&surplus).take(6).collect::<Vec<_>>()
        );
        assert_eq!(names.len(), official.affine);
    }
}

/// The crate `metal` contains what older tools made from its examples, including graphics functions.
#[test]
#[ignore = "downloads a crate"]
fn libraries_of_older_tools_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("Cargo.toml");
    let text = "[package]\nname = \"probe\"\nedition = \"2024\"\n[workspace]\n[lib]\npath = \"lib.rs\"\n\
                [target.'cfg(any())'.dependencies]\nmetal = \"=0.27.0\"\n";
    fs::write(&manifest, text).unwrap();
    fs::write(folder.path().join("lib.rs"), "").unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(&manifest)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata = String::from_utf8(output.stdout).unwrap();
    let (before, _) = metadata
        .split_once("/metal-0.27.0/Cargo.toml")
        .expect("the crate in cargo's cache");
    let cache = Path::new(before.rsplit('"').next().unwrap());

    let mut kinds = BTreeSet::new();
    for (example, functions, container) in [
        ("circle", 2, 4),
        ("compute", 1, 3),
        ("mesh-shader", 2, 7),
        ("mps", 1, 4),
        ("raytracing", 4, 7),
        ("window", 4, 3),
    ] {
        let file =
            fs::read(cache.join(format!("metal-0.27.0/examples/{example}/shaders.metallib")))
                .unwrap();
        let library = Library::parse(&file).unwrap();
        assert_eq!(
            library.header().container_version,
            Version {
                major: 2,
                minor: container
            },
            "{example}"
        );
        assert_eq!(library.len(), functions, "{example}");
        for function in library.functions() {
            let function = function.unwrap();
            kinds.insert(function.kind.expect("a type").to_string());
            for tag in function.public_tags().chain(function.private_tags()) {
                tag.unwrap();
            }
            for constant in function.constants().unwrap() {
                constant.unwrap();
            }
        }
        let report = library.verify().unwrap();
        assert_eq!(
            (report.verified, report.mismatches.len()),
            (functions, 0),
            "{example}"
        );
    }
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        ["fragment", "intersection", "kernel", "mesh", "vertex"]
    );
}

/// The `host_name`s that `<file>.metal` instantiates.
fn host_names(tree: &Path, file: &str) -> BTreeSet<String> {
    // Only macros matter here, so the system headers may be empty.
    let system = tempfile::tempdir().expect("a temporary folder");
    let tensors = "MetalPerformancePrimitives/MetalPerformancePrimitives.h";
    fs::create_dir(system.path().join("MetalPerformancePrimitives")).expect("a folder for headers");
    for header in [
        "metal_atomic",
        "metal_common",
        "metal_compute",
        "metal_integer",
        "metal_logging",
        "metal_math",
        "metal_simdgroup",
        "metal_simdgroup_matrix",
        "metal_stdlib",
        tensors,
    ] {
        fs::write(system.path().join(header), "").expect("an empty header");
    }
    let output = Command::new("clang")
        .args([
            "-E",
            "-P",
            "-x",
            "c++",
            "-nostdinc",
            "-D__METAL__",
            "-D__METAL_VERSION__=310",
            "-I",
        ])
        .arg(system.path())
        .arg("-I")
        .arg(tree)
        .arg(tree.join(format!("mlx/backend/metal/kernels/{file}.metal")))
        .output()
        .expect("clang");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("UTF-8 from the preprocessor");
    // `host_name( "affine_qmv" "_" "float")`: the adjacent literals between the parentheses.
    text.split("[[host_name(")
        .skip(1)
        .map(|rest| {
            let (arguments, _) = rest.split_once(")]]").expect("the end of host_name");
            arguments.split('"').skip(1).step_by(2).collect()
        })
        .collect()
}
