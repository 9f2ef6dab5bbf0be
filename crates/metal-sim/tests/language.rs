//! Code that the Metal specification excludes is rejected with its section, and code that it allows is accepted.
//!
//! The first line of each file in `language/refused` contains the section and a part of the message; without a section,
//! the file is not valid C++ either. A second line may give the version of the language.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use metal_sim::{Compiler, Error, Library, Options, Version, library_of_version};
use rayon::prelude::*;
use support::{crate_folder, toolchain};

/// The kernels of a folder of `tests/language`.
fn kernels(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = crate_folder().join("tests/language").join(folder);
    let mut files: Vec<_> = fs_err::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|file| (file.clone(), fs_err::read_to_string(&file).unwrap()))
        .collect()
}

/// The version given by a line of a file.
fn version(text: &str) -> Version {
    text.lines()
        .take(2)
        .find_map(|line| line.strip_prefix("// Metal "))
        .map_or_else(Version::simulated, |version| version.parse().unwrap())
}

/// The error of the first step that rejects a text: making a library of it, or compiling a kernel.
fn refusal(text: &str) -> Option<Error> {
    let library = match library_of_version(&toolchain(), text, version(text)) {
        Ok(library) => library,
        Err(error) => return Some(error),
    };
    let compiler = Compiler::new(toolchain(), Options::default());
    compiler.kernel(&library, "k").err()
}

#[test]
fn what_the_specification_excludes_is_refused() {
    let files = kernels("refused");
    let wrong: Vec<String> = files
        .par_iter()
        .filter_map(|(file, text)| {
            let name = file.file_stem().unwrap().to_string_lossy();
            let expected = text.lines().next().unwrap().strip_prefix("// ").unwrap();
            let (section, message) = expected.split_once(": ").unwrap();
            let Some(error) = refusal(text) else {
                return Some(format!("{name}: accepted"));
            };
            let said = match &error {
                Error::Refused(found) => found.iter().any(|finding| {
                    finding.section == section
                        && finding.message.contains(message)
                        && finding.line > 1
                        && finding.column > 0
                        && finding.to_string().contains(&format!(
                            ": error: {} (MSL 4.0, section {section})",
                            finding.message
                        ))
                }),
                Error::Compile { diagnostics, .. } => {
                    section.is_empty() && diagnostics.contains(message)
                }
                _ => false,
            };
            (!said).then(|| format!("{name}: expected {expected:?}, found {error}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_it_allows_is_not() {
    let files = kernels("accepted");
    let wrong: Vec<String> = files
        .par_iter()
        .filter_map(|(file, text)| {
            let name = file.file_stem().unwrap().to_string_lossy();
            let library = match library_of_version(&toolchain(), text, version(text)) {
                Ok(library) => library,
                Err(error) => return Some(format!("{name}: {error}")),
            };
            // Also in its address spaces.
            let found = Compiler::new(toolchain(), Options::default())
                .check(&library, &["k".to_owned()])
                .unwrap();
            (!found.is_empty()).then(|| format!("{name}: {found:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs `metal-simc` as a user does.
fn metal_simc(arguments: &[&str], unchecked: bool) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metal-simc"));
    command
        .args(arguments)
        .env("MTL_SIM_CACHE", support::cache())
        .env_remove("MTL_SIM_METAL_VERSION");
    if unchecked {
        command.env("MTL_SIM_LANGUAGE", "unchecked");
    }
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_cache_of_any_name_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = crate_folder().join("tests/language/refused/recursion.metal");
    for name in ["a, b", "it's", "a>b: error: c"] {
        let output = Command::new(env!("CARGO_BIN_EXE_metal-simc"))
            .args(["library", "--source", file.to_str().unwrap()])
            .env("MTL_SIM_CACHE", folder.path().join(name))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains("recursive call"),
            "{name}: {said}"
        );
    }
}

#[test]
fn a_compiler_that_died_does_not_accept() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let compiler = folder.path().join("clang");
    let real = toolchain().compiler().to_owned();
    // Its tree ends before the first error of the text.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*-ast-dump*)\n  echo 'TranslationUnitDecl 0x1 <<invalid sloc>>'\n  \
         for a; do :; done\n  echo \"|-EmptyDecl 0x2 <$a:1:1> col:1\"\n  END;;\nesac\nexec {} \"$@\"\n",
        real.display()
    );
    let text = folder.path().join("k.metal");
    fs_err::write(&text, "[[kernel]] void k(device float* y) { y[0] = 1; }\n").unwrap();
    for (end, accepted) in [
        ("exit 0", true),
        ("kill -9 $$", false),
        ("exit 1", false),
        ("exit 139", false),
    ] {
        fs_err::write(&compiler, script.replace("END", end)).unwrap();
        fs_err::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_metal-simc"))
            .args(["library", "--source", text.to_str().unwrap()])
            .env("MTL_SIM_CACHE", folder.path().join(end.replace(' ', "")))
            .env("MTL_SIM_CXX", &compiler)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), accepted, "{end}: {said}");
        assert!(
            accepted || said.contains("cannot check a source"),
            "{end}: {said}"
        );
    }
}

#[test]
fn an_error_that_ends_the_compiler_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.metal");
    let text = "template <int n> int f() { return f<n + 1>(); }\n\
                [[kernel]] void k(device int* y) { y[0] = f<0>(); }\n";
    fs_err::write(&file, text).unwrap();
    let (ok, said) = metal_simc(&["check", "--source", file.to_str().unwrap()], false);
    assert!(
        !ok && said.contains("recursive template instantiation"),
        "{said}"
    );
}

#[test]
fn the_variable_names_a_version() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.metal");
    let text =
        "[[kernel]] void k(device float* y) { auto f = [](float v) { return v; }; y[0] = f(1); }\n";
    fs_err::write(&file, text).unwrap();
    for (version, expected) in [
        ("", ""),
        ("4.0", ""),
        ("320", ""),
        ("3.1", "before Metal 3.2"),
        ("310", "before Metal 3.2"),
        ("three", "MTL_SIM_METAL_VERSION is \"three\""),
        ("31", "MTL_SIM_METAL_VERSION is \"31\""),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_metal-simc"))
            .args(["library", "--source", file.to_str().unwrap()])
            .env("MTL_SIM_CACHE", support::cache())
            .env("MTL_SIM_METAL_VERSION", version)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            output.status.success(),
            expected.is_empty(),
            "{version}: {said}"
        );
        assert!(said.contains(expected), "{version}: {said}");
    }
}

#[test]
fn what_is_not_simulated_is_said_not_to_be_examined() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.metal");
    let text = "#include <metal_tensor>\n[[kernel]] void k(device float* y) { y[0] = 1; }\n";
    fs_err::write(&file, text).unwrap();
    let air = folder.path().join("k.air");
    let call = [
        "xcrun",
        "metal",
        "-c",
        file.to_str().unwrap(),
        "-o",
        air.to_str().unwrap(),
    ];
    // Each time, not only the first.
    for _ in 0..2 {
        let (ok, said) = metal_simc(&call, false);
        assert!(
            ok && said.contains("only its tokens were checked"),
            "{said}"
        );
    }
}

#[test]
fn an_unchecked_library_is_not_a_checked_one() {
    let text = "[[kernel]] void k(device float* y) { goto end; end: y[0] = 1; }\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.metal");
    fs_err::write(&file, text).unwrap();
    let call = ["library", "--source", file.to_str().unwrap()];
    assert!(metal_simc(&call, true).0);
    assert!(!metal_simc(&call, false).0);
}

#[test]
fn a_refusal_reads_as_a_compiler_s_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a b.metal");
    let text = "#include <metal_stdlib>\n#define TWICE(x) x x\n[[kernel]] void k(device float* y) {\n  \
                y[0] = float4(1).x; double d = 1;\n  y[0] = d;\n}\n";
    fs_err::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let place =
        format!("{path}:4:23: error: 'double' is not supported in Metal (MSL 4.0, section 2.1)");
    let air = folder.path().join("a.air");
    let air = air.to_str().unwrap();
    for call in [
        &["library", "--source", path][..],
        &["check", "--source", path],
        &["xcrun", "-sdk", "macosx", "metal", "-c", path, "-o", air],
    ] {
        let (ok, said) = metal_simc(call, false);
        assert!(!ok && said.contains(&place), "{call:?}: {said}");
    }
    assert!(!Path::new(air).exists());
    // The host's C++ is available on request.
    let (ok, said) = metal_simc(&["library", "--source", path], true);
    assert!(ok, "{said}");
}

#[test]
fn a_library_that_was_not_examined_is_when_it_is_used() {
    // Another version of the compiler may have written a library without this check.
    let text = "[[kernel]] void k(device float* y) { goto end; end: y[0] = 1; }\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k.metallib");
    let library = Library::from_source("k.metal", text).unwrap();
    fs_err::write(&path, library.to_bytes()).unwrap();
    let compiler = Compiler::new(toolchain(), Options::default());
    let error = compiler.kernel(&path, "k").unwrap_err();
    assert!(error.to_string().contains("'goto'"), "{error}");
    let found = compiler.check(&path, &["k".to_owned()]).unwrap();
    assert_eq!((&*found[0].kernel, &*found[0].section), ("k", "1.5.4"));
}

#[test]
fn a_version_is_that_of_std() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.metal");
    let text = "[[kernel]] void k(device float* y) { auto f = [](float v) { return v; }; y[0] = f(__METAL_VERSION__); }\n";
    fs_err::write(&file, text).unwrap();
    let (path, air) = (file.to_str().unwrap(), folder.path().join("k.air"));
    let air = air.to_str().unwrap();
    for (version, accepted) in [
        ("metal3.0", false),
        ("metal3.1", false),
        ("metal3.2", true),
        ("metal4.0", true),
    ] {
        let std = format!("-std={version}");
        let (ok, said) = metal_simc(&["xcrun", "metal", "-c", &std, path, "-o", air], false);
        assert_eq!(ok, accepted, "{version}: {said}");
        assert!(ok || said.contains("before Metal 3.2"), "{said}");
    }
}
