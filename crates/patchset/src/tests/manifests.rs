//! An invalid `mlx.toml`: the error has the line and what was expected.

use fs_err as fs;

use super::fixture::Fixture;
use crate::{Error, Manifest};

#[test]
fn faults_carry_the_line_and_what_was_expected() {
    let cases: &[(&str, &str, usize, &str)] = &[
        (
            "budget-lines = 60",
            "budget-lines = \"60\"",
            2,
            "expected usize",
        ),
        (
            "budget-lines = 60",
            "budget-lines = -1",
            2,
            "expected usize",
        ),
        ("version = \"1.0.0\"", "version = 1", 5, "expected a string"),
        (
            "licence = \"MIT\"",
            "license = \"MIT\"",
            9,
            "unknown field `license`, expected one of",
        ),
        (
            "tree-origin = \"upstream\"",
            "tree-origin = \"guessed\"",
            8,
            "expected `upstream` or `reconstructed`",
        ),
        (
            "licence = \"MIT\"",
            "licence = \"MIT\"\ncommit = \"zz\"",
            10,
            "expected a commit of 7 to 40",
        ),
        (
            "licence = \"MIT\"",
            "licence = \"MIT\"\nsource = [{ svn = 1 }]",
            10,
            "unknown variant `svn`, expected",
        ),
        (
            "licence = \"MIT\"",
            "licence = \"MIT\"\n[[mlx.source]]\n[mlx.source.carrier]\ncrate = \"x\"\nversion = \"1\"\npath = \"../x\"",
            14,
            "unsafe path",
        ),
        (
            "tag = \"v1.0.0\"",
            "tag = \"-v1\"",
            6,
            "a letter or digit first, found \"-v1\"",
        ),
        (
            "licence = \"MIT\"",
            "licence = \"MIT\"\n[[mlx.source]]\n[mlx.source.carrier]\ncrate = \"x/../../y\"\nversion = \"1\"\npath = \"x\"",
            12,
            "expected letters, digits",
        ),
        (
            "licence = \"MIT\"",
            "licence = \"MIT\"\n[[input]]\nname = \"../../x\"\nversion = \"1\"",
            11,
            "expected letters, digits",
        ),
        (
            "licence = \"MIT\"",
            "licence = \"MIT\"\n[[input]]\nname = \"x\"\nversion = \"1\"\nlicence = \"MIT\"\nurl = \"u\"\npath = \"x\"",
            10,
            "the input x needs `sha256` and `carrier`, or else `tree`, `into` and `wheel`",
        ),
        ("[mlx]", "[mlx", 4, ""),
    ];
    let fixture = Fixture::new();
    let file = fixture.workspace.manifest_path();
    let good = fs::read_to_string(&file).unwrap();
    for (from, to, expected_line, expected_text) in cases {
        assert!(good.contains(from));
        fs::write(&file, good.replace(from, to)).unwrap();
        let Err(Error::Format {
            file,
            line,
            message,
        }) = Manifest::load(&file)
        else {
            panic!("{to} was accepted")
        };
        assert_eq!(file, "mlx.toml");
        assert_eq!(line, *expected_line, "{to}: {message}");
        assert!(message.contains(expected_text), "{to}: {message}");
    }
}

#[test]
fn a_tree_id_must_be_whole() {
    let fixture = Fixture::new();
    for id in ["0b3dbfac", "0B3DBFACAC35A0B64A7C3D9A778EF20DB788F5", ""] {
        fixture.write_manifest(&format!("tree = \"{id}\"\ntree-origin = \"upstream\""), "");
        let error = Manifest::load(&fixture.workspace.manifest_path())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("mlx.toml:7: expected a git id of 40 hexadecimal digits"),
            "{error}"
        );
    }
}

#[test]
fn pins_are_found_by_version_tag_or_commit() {
    let manifest = repository_manifest();
    for wanted in ["0.32.4", "v0.32.4", "36969c0", "36969c0aaaa"] {
        assert_eq!(
            manifest.pin(wanted).unwrap().tree,
            manifest.mlx.tree,
            "{wanted}"
        );
    }
    assert_eq!(
        manifest.pin("0.32.0").unwrap().tag.as_deref(),
        Some("v0.32.0")
    );
    assert_eq!(manifest.pin("5abdd04").unwrap().tag, None);
    for wanted in ["v0.99.0", "3696", "deadbeef"] {
        let error = manifest.pin(wanted).unwrap_err().to_string();
        assert!(
            error.contains(wanted) && error.contains("v0.32.4"),
            "{error}"
        );
    }
}

pub(crate) fn repository_manifest() -> Manifest {
    Manifest::load(&super::real::repository().manifest_path()).unwrap()
}
