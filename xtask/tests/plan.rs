//! `cargo xtask plan`: what scripts and people read of it.

#![allow(clippy::unwrap_used, reason = "a test stops where something is amiss")]

use std::process::Output;

use serde_json::Value;
use svg::node::element::path::{Command as Stroke, Data, Position};
use svg::node::element::tag::Type;
use svg::parser::Event;
use xtask::proc::Cmd;

fn plan(arguments: &[&str]) -> Output {
    Cmd::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["plan"])
        .args(
            [["--n", "17408"], ["--k", "5120"]]
                .into_iter()
                .filter(|pair| !arguments.contains(&pair[0]))
                .flatten(),
        )
        .args(arguments)
        .output()
        .unwrap()
}

fn json(arguments: &[&str]) -> Vec<Value> {
    let output = plan(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The fields of one row in the order: m, path, kernel, tiles, weight_passes, bytes, identical.
fn fields(row: &Value) -> (u64, &str, &str, u64, u64, u64, bool) {
    (
        row["m"].as_u64().unwrap(),
        row["path"].as_str().unwrap(),
        row["kernel"].as_str().unwrap(),
        row["tiles"].as_u64().unwrap(),
        row["weight_passes"].as_u64().unwrap(),
        row["bytes"].as_u64().unwrap(),
        row["identical"].as_bool().unwrap(),
    )
}

#[test]
fn json_has_a_row_for_each_m() {
    // 4 bits a weight; a scale and a bias of two bytes each for 64 weights.
    let pass = 17_408 * 5_120 / 2 + 17_408 * 5_120 / 64 * 4;
    let rows = json(&["--arch", "g15d"]);
    let m: Vec<u64> = rows.iter().map(|row| fields(row).0).collect();
    assert_eq!(m, (1..=40).collect::<Vec<_>>());
    let name = "affine_qmv_fast_bfloat16_t_gs_64_b_4_batch_0_pr_0_hgs_0_r_4";
    assert_eq!(fields(&rows[0]), (1, "qmv", name, 1, 1, pass, true));
    let name = "affine_qmv_wide_bfloat16_t_gs_64_b_4_nv_6_kl_8_batch_0";
    assert_eq!(
        fields(&rows[10]),
        (11, "qmv_wide", name, 2, 2, 2 * pass, false)
    );
    assert_eq!(
        fields(&rows[11]).1,
        "matrix",
        "the batch limit of an Ultra is 12"
    );

    let exact = json(&["--arch", "applegpu_g15d", "--policy", "exact:all"]);
    let name = "affine_qmv_streamed_fast_bfloat16_t_gs_64_b_4_nv_8_batch_0";
    assert_eq!(
        fields(&exact[39]),
        (40, "qmv_streamed", name, 5, 5, 5 * pass, true)
    );
    assert!(exact.iter().all(|row| fields(row).6));
    assert_eq!(exact[39]["policy"], "exact:all");
    let block = json(&["--arch", "g13g", "--policy", "exact"]);
    let paths: Vec<_> = [14, 15, 16].map(|i| fields(&block[i]).1).into();
    assert_eq!(paths, ["qmv_streamed", "qmv_streamed", "matrix"]);
    let wide = json(&["--arch", "g13g", "--policy", "wide", "--rows", "16"]);
    assert!(
        wide.iter()
            .all(|row| fields(row).1 == "qmv_wide" && fields(row).6)
    );
    let narrow = json(&["--arch", "g15d", "--policy", "narrow", "--rows", "8"]);
    assert_eq!(narrow.len(), 8);
    assert_eq!(
        fields(&narrow[7]).4,
        8,
        "narrow reads the weights once a row"
    );
}

#[test]
fn json_of_all_architectures_names_each() {
    let rows = json(&["--all-arch", "--rows", "3"]);
    let found: Vec<(&str, u64, &str)> = rows
        .iter()
        .map(|row| {
            let (m, path, ..) = fields(row);
            (row["architecture"].as_str().unwrap(), m, path)
        })
        .collect();
    // From generation 15 on more than one row takes the wide kernel.
    let expected: Vec<(&str, u64, &str)> = [
        ("applegpu_g13g", "qmv"),
        ("applegpu_g13s", "qmv"),
        ("applegpu_g13d", "qmv"),
        ("applegpu_g14g", "qmv"),
        ("applegpu_g14s", "qmv"),
        ("applegpu_g14d", "qmv"),
        ("applegpu_g15s", "qmv_wide"),
        ("applegpu_g15d", "qmv_wide"),
        ("applegpu_g17s", "qmv_wide"),
        ("applegpu_g17d", "qmv_wide"),
    ]
    .into_iter()
    .flat_map(|(name, several)| [(name, 1, "qmv"), (name, 2, several), (name, 3, several)])
    .collect();
    assert_eq!(found, expected);
}

/// Tags that open and close in order, one root, and what is drawn.
#[test]
fn the_staircase_is_well_formed_and_has_the_steps() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("steps.svg");
    let output = plan(&["--arch", "g15d", "--svg", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let text = fs_err::read_to_string(&file).unwrap();

    let (mut open, mut roots, mut words) = (Vec::new(), 0, Vec::new());
    let mut steps: Vec<(f32, bool)> = Vec::new();
    for event in svg::read(&text).unwrap() {
        match event {
            Event::Error(error) => panic!("{error}\n{text}"),
            Event::Tag(name, Type::End, _) => assert_eq!(open.pop(), Some(name), "{text}"),
            Event::Tag(name, kind, attributes) => {
                roots += usize::from(open.is_empty());
                if name == "path" {
                    let solid = !attributes.contains_key("stroke-dasharray");
                    steps.extend(height(&attributes["d"]).map(|y| (y, solid)));
                }
                if kind == Type::Start {
                    open.push(name);
                }
            }
            Event::Text(some) => words.push(some.trim()),
            _ => {}
        }
    }
    assert_eq!((open.len(), roots), (0, 1));
    // Up to M = 8 the weights are read once (M = 1 has a kernel of its own), up to 11 twice; matrix
    // kernels read them once for 32 rows and then twice. Only M = 1 has the bits of M = 1.
    let runs: Vec<usize> = steps.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
    assert_eq!(runs, [1, 7, 3, 21, 8], "{steps:?}");
    let (once, twice) = (steps[0].0, steps[8].0);
    assert!(once > twice, "y grows downwards: {steps:?}");
    assert_eq!((steps[11].0, steps[32].0), (once, twice));
    let solid: Vec<bool> = steps.iter().map(|step| step.1).collect();
    assert_eq!(solid, [[true].as_slice(), &[false; 39]].concat());
    for word in ["applegpu_g15d", "rows (M)", "reads of the weights"] {
        assert!(words.contains(&word), "{word:?} is not in {words:?}");
    }
}

/// Where the step of one number of rows lies; nothing for the legend's sample, which climbs nowhere.
fn height(data: &str) -> Option<f32> {
    Data::parse(data)
        .unwrap()
        .iter()
        .find_map(|stroke| match stroke {
            Stroke::VerticalLine(Position::Absolute, y) => Some(y[0]),
            _ => None,
        })
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (arguments, said) in [
        (["--arch", "m3", "--bits", "4"], "invalid value 'm3'"),
        (
            ["--arch", "g15d", "--bits", "7"],
            "bits must be 1, 2, 3, 4, 5, 6 or 8 in mode affine, found 7",
        ),
        (
            ["--arch", "g15d", "--group", "48"],
            "group_size must be 32, 64 or 128 in mode affine, found 48",
        ),
        (
            ["--arch", "g15d", "--policy", "fast"],
            "a policy is default, exact, narrow or wide",
        ),
        (
            ["--arch", "g15d", "--policy", "streamed"],
            "\"streamed\", which is now \"exact\"",
        ),
        (
            ["--arch", "g15d", "--policy", "exact:0"],
            "where R is not a whole number from 1",
        ),
        (["--arch", "g15d", "--rows", "0"], "0 is not in 1..=4096"),
        (
            ["--arch", "g15d", "--k", "1000"],
            "k must be a positive multiple of the group size, 64, found 1000",
        ),
        (["--arch", "g15d", "--n", "0"], "0 is not in 1.."),
        (["--arch", "g15d", "--batch", "0"], "0 is not in 1.."),
    ] {
        let output = plan(&arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(said), "{text}");
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(output.stdout.is_empty());
    }
}
