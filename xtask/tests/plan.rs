//! `cargo xtask plan`: the output that scripts and people read.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Output;

use serde_json::Value;
use svg::node::element::path::{Command as Stroke, Data, Position};
use svg::node::element::tag::Type;
use svg::parser::Event;
use xtask::proc::Cmd;

fn plan(arguments: &[&str]) -> Output {
    let sizes = [["--n", "17408"], ["--k", "5120"]]
        .into_iter()
        .filter(|pair| !arguments.contains(&pair[0]))
        .flatten();
    let arguments: Vec<&str> = sizes.chain(arguments.iter().copied()).collect();
    bare(&arguments)
}

/// Without the sizes of a product.
fn bare(arguments: &[&str]) -> Output {
    Cmd::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("plan")
        .args(arguments)
        .output()
        .unwrap()
}

/// The words of a line, used to split arguments and cells.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
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
    // 4 bits per weight; a scale and a bias of two bytes each per 64 weights.
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
    let name = "affine_qmv_streamed_fast_bfloat16_t_gs_64_b_4_nv_8_r_4_s_8_batch_0";
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
        "narrow reads the weights once per row"
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
    // From generation 15 on, more than one row takes the wide kernel.
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

/// The height of the step for one number of rows; `None` for the legend's sample, which is flat.
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

#[test]
fn attention_has_a_row_for_each_group() {
    let arguments = "--arch g15d --attention --heads 16 --kv-heads 2 --head-dim 64 --keys 8194 --rows 4 \
                     --dtype float32 --policy exact";
    let output = bare(&words(&format!("{arguments} --json")));
    assert!(output.status.success(), "{output:?}");
    let groups: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The rows see 8,191 to 8,194 keys; from 8,192 on, a kernel for large groups of heads computes them.
    let group = |first: u32, rows: u32, keys: u32, path: &str, kernel: &str| {
        serde_json::json!({
            "architecture": "applegpu_g15d",
            "policy": "exact",
            "first": first,
            "rows": rows,
            "keys": keys,
            "path": path,
            "blocks": 128,
            "dispatches": 2,
            "kernel": format!("sdpa_vector_2pass_1_{kernel}float_64_64"),
            "identical": true,
        })
    };
    let expected = serde_json::json!([
        group(0, 1, 8191, "two-pass", ""),
        group(1, 3, 8194, "two-pass-shared", "gqa_rows_8_"),
    ]);
    assert_eq!(groups, expected);

    let output = bare(&words(arguments));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(words).collect();
    assert!(text.starts_with("attention of 4 rows, 16 heads over 2 of keys"));
    let [_, header, first, second] = lines.as_slice() else {
        panic!("{text}");
    };
    assert_eq!(header[..4], ["GPU", "policy", "rows", "keys"]);
    assert_eq!(
        first[1..8],
        ["exact", "0", "8191", "two-pass", "128", "2", "yes"]
    );
    assert_eq!(second[1..5], ["exact", "1-3", "8194", "two-pass-shared"]);

    // Not fused: no attention kernel; under a policy, row by row.
    let unfused = "--arch g15d --attention --head-dim 80 --keys 33 --rows 3 --all-policies --json";
    let output = bare(&words(unfused));
    let groups: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let of = |policy: &str| {
        groups
            .iter()
            .filter(|group| group["policy"] == policy)
            .count()
    };
    assert_eq!(["default", "exact", "narrow", "wide"].map(of), [1, 3, 3, 3]);
    assert!(
        groups
            .iter()
            .all(|group| group["kernel"].is_null() && group["path"] == "unfused")
    );
}

#[test]
fn dense_products_have_a_row_for_each_m() {
    let arguments = "--arch g15d --dense --n 4096 --k 4096 --rows 9 --dtype float32";
    let rows = |more: &str| -> Vec<Value> {
        let output = bare(&words(&format!("{arguments} {more} --json")));
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let exact = rows("--policy exact");
    assert_eq!(exact.len(), 9);
    let tile = "bm8_bn1_sm1_sn32_tm4_tn4";
    assert_eq!(
        exact[8],
        serde_json::json!({
            "architecture": "applegpu_g15d",
            "policy": "exact",
            "m": 9,
            "path": "gemv_rows",
            "kernel": format!("gemv_rows_float32_{tile}_nv6"),
            "tile": 6,
            "dispatches": 1,
            "weight_passes": 2,
            "identical": true,
        })
    );
    assert_eq!(exact[0]["kernel"], format!("gemv_float32_{tile}"));
    let narrow = rows("--policy narrow");
    assert_eq!(narrow[8]["path"], "by-row");
    assert_eq!(narrow[8]["weight_passes"], 9);
    let default = rows("--policy default");
    let kept: Vec<_> = default.iter().map(|row| row["identical"] == true).collect();
    assert_eq!(kept, [&[true][..], &[false; 8]].concat());
    let transposed = rows("--policy exact --not-transposed --addmm");
    assert_eq!(
        transposed[1]["kernel"],
        "gemv_t_rows_float32_bm1_bn16_sm8_sn4_tm4_tn4_nv2"
    );

    let output = bare(&words(&format!("{arguments} --policy default")));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(words).collect();
    assert_eq!(lines.len(), 2 + 9, "{text}");
    assert_eq!(
        text.lines().next(),
        Some("dense float32, N = 4096, K = 4096")
    );
    // If MLX chooses among its own kernels, tile and passes are not printed.
    assert_eq!(
        lines[10],
        [
            "applegpu_g15d",
            "default",
            "9",
            "upstream",
            "-",
            "1",
            "-",
            "no",
            "steel_gemm"
        ]
    );
}

#[test]
fn operations_that_there_are_not_are_refused() {
    for (arguments, said) in [
        (
            "--attention --heads 8 --kv-heads 3",
            "must be a multiple of those of the keys, found 8 and 3",
        ),
        (
            "--attention --keys 3 --rows 4",
            "must not have more rows than keys, found 4 and 3",
        ),
        ("--attention --heads 0", "0 is not in 1.."),
        ("--attention --keys many", "invalid value 'many'"),
        (
            "--attention --policy quick",
            "a policy is default, exact, narrow or wide",
        ),
        ("--attention --svg steps.svg", "cannot be used with"),
        ("--attention --dense --n 4 --k 4", "cannot be used with"),
        ("--dense --n 4", "--k <K>"),
        ("--dense --n 4 --k 0", "0 is not in 1.."),
        ("--addmm --n 4 --k 4", "--dense"),
    ] {
        let output = bare(&words(&format!("--arch g15d {arguments}")));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(said), "{arguments}: {text}");
        assert_eq!(output.status.code(), Some(2), "{arguments}: {text}");
        assert!(output.stdout.is_empty());
    }
}
