//! The commands on the simulated GPU, whatever device this process has. Without a simulated build, every test is listed
//! as ignored.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/folder.rs"]
mod folder;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;

use folder::More;
use libtest_mimic::{Arguments, Failed, Trial};
use mlx_lab::calibrate::{Calibration, Preference};
use mlx_lab::machine::Machine;
use mlx_lab::model::Model;
use mlx_lab::product::Product;
use mlx_lab::{bench, mixed, probe};
use mlx_overlay::{
    Backend, DispatchPlan, Dtype, Quantization, RoutePath, RowPolicy, build_info, has_policies,
};

type Outcome = Result<(), Failed>;
type Test = (&'static str, fn() -> Outcome);

fn main() {
    let mut arguments = Arguments::from_args();
    let missing = match build_info() {
        Ok(info) if info.backend == Backend::Sim && has_policies() => None,
        Ok(info) => Some(format!(
            "back-end {} is not the simulated one",
            info.backend
        )),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = &missing {
        eprintln!("tests of mlx-lab's commands are ignored: {why}");
    }
    let tests: &[Test] = &[
        (
            "probe_tells_the_policies_apart",
            probe_tells_the_policies_apart,
        ),
        ("probe_answers_for_one_policy", probe_answers_for_one_policy),
        (
            "probe_examines_the_kernel_of_all_outputs",
            probe_examines_the_kernel_of_all_outputs,
        ),
        ("probe_reads_a_model_folder", probe_reads_a_model_folder),
        (
            "probe_is_not_exact_where_it_did_not_look",
            probe_is_not_exact_where_it_did_not_look,
        ),
        (
            "probe_of_nothing_is_not_exact",
            probe_of_nothing_is_not_exact,
        ),
        (
            "bench_claims_nothing_about_a_gpu",
            bench_claims_nothing_about_a_gpu,
        ),
        (
            "bench_refuses_to_measure_noise",
            bench_refuses_to_measure_noise,
        ),
        (
            "bench_measures_the_other_arrangement_if_there_is_one",
            bench_measures_the_other_arrangement_if_there_is_one,
        ),
        (
            "a_depth_needs_the_times_of_the_whole_model",
            a_depth_needs_the_times_of_the_whole_model,
        ),
        (
            "calibrate_prefers_nothing_on_a_simulator",
            calibrate_prefers_nothing_on_a_simulator,
        ),
        (
            "a_faster_arrangement_is_written_down",
            a_faster_arrangement_is_written_down,
        ),
        (
            "reports_of_another_layout_are_refused",
            reports_of_another_layout_are_refused,
        ),
        (
            "kernels_of_every_format_can_be_preferred",
            kernels_of_every_format_can_be_preferred,
        ),
        (
            "calibrations_reach_the_dispatch",
            calibrations_reach_the_dispatch,
        ),
        (
            "mixed_costs_the_batch_nothing",
            mixed_costs_the_batch_nothing,
        ),
        ("wrong_usage_is_told", wrong_usage_is_told),
    ];
    let trials: Vec<Trial> = tests
        .iter()
        .map(|&(name, test)| Trial::test(name, test).with_ignored_flag(missing.is_some()))
        .collect();
    // Tests that cannot run here stay ignored even when ignored tests are requested.
    arguments.include_ignored &= missing.is_none();
    libtest_mimic::run(&arguments, trials).exit();
}

/// Runs the command on a simulated GPU with that architecture.
fn lab(architecture: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mlx-lab"))
        .args(arguments)
        .env("MTL_SIM_ARCH", architecture)
        .env_remove("MLX_QMV_POLICY")
        .env_remove("MLX_ROW_POLICY")
        .output()
        .unwrap()
}

/// The JSON output of a command that must exit with this code.
fn json<T: serde::de::DeserializeOwned>(
    architecture: &str,
    arguments: &[&str],
    code: i32,
) -> Result<T, Failed> {
    let output = lab(architecture, &[arguments, &["--json", "-"]].concat());
    expect(&output, code)?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn expect(output: &Output, code: i32) -> Outcome {
    if output.status.code() == Some(code) {
        return Ok(());
    }
    Err(format!(
        "expected exit code {code}, found {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
    .into())
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

const SMALL: [&str; 7] = [
    "probe",
    "--product",
    "mlp=1024x512:4:64",
    "--rows",
    "2,4",
    "--seeds",
    "1",
];

/// The arguments to probe a product or a model with two rows.
fn two_rows<'a>(what: [&'a str; 2], more: &[&'a str]) -> Vec<&'a str> {
    [
        &["probe"],
        &what[..],
        &["--rows", "2", "--seeds", "1"],
        more,
    ]
    .concat()
}

fn probe_tells_the_policies_apart() -> Outcome {
    let report: probe::Report = json("applegpu_g15d", &SMALL, 0)?;
    assert!(report.machine.simulated);
    assert_eq!(report.recommended(), Some("exact"));
    // `narrow`, which reads the weights once per row, comes last.
    assert_eq!(report.exact, ["exact", "wide", "narrow"]);
    for cell in &report.layers[0].cells {
        let differs = cell.differing > 0;
        assert_eq!(
            differs,
            cell.policy == "default" && cell.rows == 2,
            "{cell:?}"
        );
        let function = match cell.policy.as_str() {
            "default" => "qmv_wide",
            "narrow" => "qmv_fast",
            "wide" => "qmv_wide",
            _ => "qmv_streamed_fast",
        };
        assert_eq!(cell.function, function);
        // 32 outputs of 2 or 4 rows, in f32 and in bf16; nothing after a difference.
        let types = match (cell.policy.as_str(), cell.rows) {
            ("default", 2) => 1,
            ("default", _) => 0,
            _ => 2,
        };
        assert_eq!(cell.outputs, types * 32 * cell.rows, "{cell:?}");
    }
    let certificate = report.certificate(RowPolicy::EXACT)?;
    let kernels = |policy: &str| {
        let cells = report.layers[0]
            .cells
            .iter()
            .filter(move |cell| cell.policy == policy);
        cells.map(|cell| cell.kernel.as_str()).collect::<Vec<_>>()
    };
    certificate.check(4, kernels("exact"))?;
    certificate.check(1, [&report.layers[0].alone])?;
    assert!(certificate.check(4, kernels("wide")).is_err());
    assert!(certificate.check(5, kernels("exact")).is_err());
    let other = kernels("exact")
        .iter()
        .map(|name| name.replace("_b_4", "_b_8"))
        .collect::<Vec<_>>();
    assert!(certificate.check(4, other).is_err());
    assert!(report.certificate(RowPolicy::DEFAULT).is_err());
    let certificate = report.certificate(RowPolicy::WIDE)?;
    certificate.check(4, kernels("wide"))?;
    assert!(certificate.check(1, [&report.layers[0].alone]).is_err());

    // Under `wide`, one row uses a tile of two, which no block of four does.
    let only = ["--rows", "4", "--policy", "wide"];
    let arguments = [&SMALL[..3], &["--seeds", "1"], &only].concat();
    let report: probe::Report = json("applegpu_g15d", &arguments, 0)?;
    let alone = report.layers[0].wide.as_ref().unwrap();
    assert!(alone.kernel.starts_with("affine_qmv_wide_"), "{alone:?}");
    assert!(alone.kernel.contains("_nv_2_"), "{alone:?}");
    assert_eq!(alone.outputs, 2 * 32, "in f32 and in bf16");
    assert!(alone.differing > 0, "{alone:?}");
    let certificate = report.certificate(RowPolicy::WIDE)?;
    certificate.check(1, [&alone.kernel])?;
    let output = lab("applegpu_g15d", &arguments);
    let said = String::from_utf8(output.stdout)?;
    let line = format!(
        "mlp=1024x512:4:64: one row takes qmv_wide under `wide`, and {} of 64 outputs have other bits than under `default`",
        alone.differing
    );
    assert!(said.lines().any(|found| found == line), "{said}");

    // A generation that never uses the wide kernel: everything is exact, and one pass still reads the least.
    let report: probe::Report = json("applegpu_g13s", &SMALL, 0)?;
    assert_eq!(report.exact, ["exact", "wide", "default", "narrow"]);
    Ok(())
}

fn probe_answers_for_one_policy() -> Outcome {
    let asked = |policy| {
        lab(
            "applegpu_g15d",
            &[&SMALL[..], &["--policy", policy]].concat(),
        )
    };
    let output = asked("default");
    expect(&output, 3)?;
    let text = String::from_utf8(output.stdout)?;
    assert!(text.contains("no policy makes all of it exact"), "{text}");
    expect(&asked("exact"), 0)?;
    Ok(())
}

/// From 4096 outputs on, a g17s uses another nvfp4 kernel for one row, and above 2048 other streamed kernels, so 32
/// outputs would not be enough.
fn probe_examines_the_kernel_of_all_outputs() -> Outcome {
    for (product, kernel, outputs) in [
        ("4096x512:nvfp4", "_r_2", 4096),
        ("4088x512:nvfp4", "_r_4", 2056),
        ("2040x512:nvfp4", "_r_4", 32),
    ] {
        let report: probe::Report = json(
            "applegpu_g17s",
            &two_rows(["--product", product], &["--policy", "exact"]),
            0,
        )?;
        let layer = &report.layers[0];
        assert_eq!(layer.alone_function, "qmv_fast");
        assert!(layer.alone.ends_with(kernel), "{product}: {}", layer.alone);
        // For 2 rows, in f32 and in bf16.
        assert_eq!(layer.cells[0].outputs, 2 * 2 * outputs, "{product}");
    }
    Ok(())
}

fn probe_reads_a_model_folder() -> Outcome {
    let model = folder::write(More::Router);
    let arguments = two_rows(["--model", path(model.path())], &["--context", "40"]);
    let report: probe::Report = json("applegpu_g15d", &arguments, 0)?;
    let layers: Vec<(String, usize)> = report
        .layers
        .iter()
        .map(|layer| (layer.layer.product.to_string(), layer.layer.count))
        .collect();
    // In the order of computation, identical ones together; one module has its own entry in config.json.
    let expected = [
        ("model.layers.0.self_attn.q_proj=512x512:4:64", 9),
        ("model.layers.0.self_attn.k_proj=128x512:4:64", 4),
        ("model.layers.0.mlp.gate_proj=512x512:8:32", 1),
        ("lm_head=64x512:mxfp4", 1),
    ];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    for layer in expected {
        assert!(layers.contains(&layer), "{layer:?} of {layers:?}");
    }
    // A dense gate, attention and the operations in between: only the default policy changes their bits.
    assert_eq!(report.exact, ["exact", "wide", "narrow"]);
    let operations: Vec<(String, &[String])> = report
        .operations
        .iter()
        .map(|verdict| (verdict.operation.to_string(), &verdict.exact[..]))
        .collect();
    let every = ["default", "exact", "narrow", "wide"].map(str::to_owned);
    let expected = [
        ("rms_norm over 512", &every[..]),
        ("rope, 8 heads of 64", &every),
        ("attention, 8 heads over 2 of 64, 40 positions", &every),
        (
            "dense product model.layers.0.mlp.router 64x512",
            &every[1..],
        ),
    ];
    assert_eq!(
        operations,
        expected.map(|(name, exact)| (name.to_owned(), exact))
    );
    // 32 outputs of the router would use another kernel than all 64.
    let kernel = |n| {
        let problem = dispatch_plan::Dense {
            architecture: "applegpu_g15d".parse().unwrap(),
            dtype: dispatch_plan::Dtype::Bfloat16,
            addmm: false,
            transpose: true,
            m: 2,
            n,
            k: 512,
            batch: 1,
        };
        dispatch_plan::dense(&problem, RowPolicy::EXACT)
            .unwrap()
            .kernel
    };
    assert_ne!(kernel(32), kernel(64));
    let cells = &report.operations[3].cells;
    let cell = cells.iter().find(|cell| cell.policy == "exact").unwrap();
    assert!(cell.kernels[0].starts_with(&kernel(64)), "{cell:?}");
    let certificate = report.certificate(RowPolicy::EXACT)?;
    for family in [
        "affine_qmv_streamed_fast_",
        "affine_qmv_fast_",
        "mxfp4_qmv_streamed_fast",
        "sdpa_vector_",
        "gemv_rows_",
    ] {
        assert!(
            certificate
                .kernels
                .iter()
                .any(|name| name.starts_with(family)),
            "{family}: {certificate:?}"
        );
    }

    // Only the default policy: the answer names the product, and the number of others like it.
    let arguments = two_rows(
        ["--model", path(model.path())],
        &["--context", "40", "--policy", "default"],
    );
    let report: probe::Report = json("applegpu_g15d", &arguments, 3)?;
    assert_eq!(report.obstacles.len(), 1, "{:?}", report.obstacles);
    assert!(
        report.obstacles[0].contains("`default` differs from M = 2 on, in affine_qmv_wide"),
        "{:?}",
        report.obstacles
    );
    Ok(())
}

fn probe_is_not_exact_where_it_did_not_look() -> Outcome {
    let model = folder::write(More::Experts);
    let arguments = two_rows(
        ["--model", path(model.path())],
        &["--policy", "exact", "--context", "40"],
    );
    let report: probe::Report = json("applegpu_g15d", &arguments, 3)?;
    assert!(report.obstacles.is_empty(), "{:?}", report.obstacles);
    let skipped = [
        "model.layers.1.mlp.switch_mlp.up_proj: [2, 512, 64], one matrix per expert, selected by a gather",
        "model.layers.1.mlp.switch_mlp.down_proj: [2, 16, 512], more than a matrix, not quantized",
    ];
    assert_eq!(report.skipped, skipped);

    let allowed = [&arguments[..], &["--allow-skipped"]].concat();
    let output = lab("applegpu_g15d", &allowed);
    expect(&output, 0)?;
    let text = String::from_utf8(output.stdout)?;
    let verdict = "verdict: everything probed is exact under exact";
    assert!(text.contains(verdict), "{text}");
    for skipped in skipped {
        assert!(
            text.contains(&format!("\n  not probed: {skipped}\n")),
            "{text}"
        );
    }

    let config = model.path().join("config.json");
    let other = std::fs::read_to_string(&config)?.replace("num_attention_heads", "heads");
    std::fs::write(&config, other)?;
    let model = Model::read(model.path())?;
    assert!(model.attention.is_empty());
    let expected = "model.layers.0.self_attn and another: its queries have 512 outputs, keys 128";
    assert!(
        model.skipped.iter().any(|line| line.starts_with(expected)),
        "{:?}",
        model.skipped
    );
    Ok(())
}

/// If nothing was probed the result is not "exact", not even with --allow-skipped.
fn probe_of_nothing_is_not_exact() -> Outcome {
    let folder = tempfile::tempdir()?;
    std::fs::write(
        folder.path().join("config.json"),
        r#"{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64}"#,
    )?;
    let header = r#"{"model.layers.0.mlp.up_proj.qweight":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend([0; 4]);
    std::fs::write(folder.path().join("model.safetensors"), file)?;
    for allowed in [&[][..], &["--allow-skipped"]] {
        let output = lab(
            "applegpu_g15d",
            &[&["probe", "--model", path(folder.path())], allowed].concat(),
        );
        expect(&output, 3)?;
        let text = String::from_utf8(output.stdout)?;
        assert!(
            text.contains("verdict: none, because no product was probed"),
            "{text}"
        );
        assert!(
            text.contains("model.layers.0.mlp.up_proj: packed by another tool"),
            "{text}"
        );
    }
    Ok(())
}

fn a_depth_needs_the_times_of_the_whole_model() -> Outcome {
    let model = folder::write(More::Experts);
    let out = model.path().join("qmv.toml");
    let arguments = [
        "calibrate",
        "--model",
        path(model.path()),
        "--acceptance",
        "0.5",
        "--out",
        path(&out),
    ];
    let output = lab("applegpu_g15d", &arguments);
    expect(&output, 1)?;
    let text = String::from_utf8(output.stderr)?;
    assert!(text.contains("model.layers.1.mlp.switch_mlp"), "{text}");
    assert!(!out.exists());
    Ok(())
}

fn measure(architecture: &str, out: &Path, more: &[&str]) -> Output {
    let arguments = [
        "bench",
        "--out",
        path(out),
        "--product",
        "512x512:4:64",
        "--rounds",
        "1",
    ];
    lab(
        architecture,
        &[&arguments[..], &["--batches", "2"], more].concat(),
    )
}

fn bench_claims_nothing_about_a_gpu() -> Outcome {
    let out = tempfile::tempdir()?;
    let output = measure(
        "applegpu_g15d",
        out.path(),
        &["--rows", "1,4", "--no-dense", "--product", "b=128x512:4:64"],
    );
    expect(&output, 0)?;
    // The reductions, and the paths of the files.
    let said = String::from_utf8(output.stdout)?;
    for line in [
        "only 16 outputs of each product were computed".to_owned(),
        "b=128x512:4:64 is then the same as 16x512:4:64: measured once".to_owned(),
        format!("tables: {}", out.path().join("bench.md").display()),
        format!("everything: {}", out.path().join("bench.json").display()),
        format!("plots: {}", out.path().join("16x512-4-64.svg").display()),
    ] {
        assert!(said.lines().any(|found| found == line), "{line} in {said}");
    }
    assert!(said.lines().count() < 16, "{said}");
    let text = std::fs::read_to_string(out.path().join("bench.json"))?;
    let report: bench::Report = serde_json::from_str(&text)?;
    assert!(report.gaps.is_empty() && report.limits.is_empty());
    assert!(report.cells.iter().all(|cell| cell.gb_per_s.is_none()));
    let arms = |batch, rows| {
        let of = report
            .cells
            .iter()
            .filter(|c| (c.batch, c.rows) == (batch, rows));
        of.map(|cell| cell.arm.as_str()).collect::<Vec<_>>()
    };
    // One row is a control: every policy except `wide` uses the same kernel. For few rows `default` and `wide` use the
    // same kernel.
    let several = ["default", "narrow", "exact", "exact-alt"];
    assert_eq!(arms(1, 1), ["default", "wide"]);
    assert_eq!(arms(1, 4), several);
    assert_eq!(arms(2, 4), several);
    let also = |rows| &report.cells.iter().find(|c| c.rows == rows).unwrap().also;
    assert_eq!(*also(1), ["narrow", "exact", "exact-alt"]);
    assert_eq!(*also(4), ["wide"]);
    assert!(report.wide.is_empty());
    let page = std::fs::read_to_string(out.path().join("bench.md"))?;
    let plot = std::fs::read_to_string(out.path().join("16x512-4-64.svg"))?;
    for text in [page, plot] {
        assert!(
            text.contains("simulated: times are those of the simulator"),
            "{text}"
        );
        assert!(text.contains("applegpu_g15d"), "{text}");
        assert!(
            !text.contains("GB/s |\n|---") || text.contains("| - |"),
            "{text}"
        );
        assert!(!text.contains("fastest read"), "{text}");
    }
    Ok(())
}

fn bench_refuses_to_measure_noise() -> Outcome {
    let out = tempfile::tempdir()?;
    let more = [
        "--rows",
        "4",
        "--policy",
        "default",
        "--policy",
        "narrow",
        "--no-dense",
    ];
    let output = measure("applegpu_g13s", out.path(), &more);
    expect(&output, 1)?;
    let text = String::from_utf8(output.stderr)?;
    assert!(
        text.contains("`default` and `narrow` take the same kernel, affine_qmv_fast"),
        "{text}"
    );
    assert!(text.contains("would measure noise"), "{text}");
    assert_eq!(
        std::fs::read_dir(out.path())?.count(),
        0,
        "nothing is left behind"
    );
    Ok(())
}

/// At 8 bits there is only one arrangement, which is measured once.
fn bench_measures_the_other_arrangement_if_there_is_one() -> Outcome {
    let out = tempfile::tempdir()?;
    let arms = ["narrow", "exact", "exact-alt"].map(|name| ["--policy", name]);
    let more = [
        &["--rows", "1,4-6", "--no-dense", "--sustained", "1"][..],
        &["--product", "512x512:8:64"],
        arms.as_flattened(),
    ]
    .concat();
    let output = measure("applegpu_g15d", out.path(), &more);
    expect(&output, 0)?;
    let said = String::from_utf8(output.stdout)?;
    let line = "16x512:8:64, M = 4-6, 2 x 1, 2 x 4: `exact` and `exact-alt` take the same kernel: there is no other \
                arrangement";
    assert!(said.lines().any(|found| found == line), "{said}");
    let text = std::fs::read_to_string(out.path().join("bench.json"))?;
    let report: bench::Report = serde_json::from_str(&text)?;
    assert_eq!(report.refused, [line]);
    // The long run is that of a policy.
    let (long, _) = report.sustained.as_ref().unwrap();
    assert_eq!(long, "16x512:4:64, M = 4, exact");
    let kernels = |product: &str| {
        let of = report
            .cells
            .iter()
            .filter(|c| (c.batch, c.rows) == (1, 6) && c.product.to_string() == product);
        of.map(|cell| (cell.arm.as_str(), cell.kernel.as_str()))
            .collect::<Vec<_>>()
    };
    let streamed = |arrangement: &str| {
        format!("affine_qmv_streamed_fast_bfloat16_t_gs_64_b_4_nv_6_{arrangement}_batch_0")
    };
    let of_4_bits = kernels("16x512:4:64");
    assert_eq!(of_4_bits[1], ("exact", streamed("r_2_s_0").as_str()));
    assert_eq!(of_4_bits[2], ("exact-alt", streamed("r_4_s_4").as_str()));
    let of_8_bits = kernels("16x512:8:64");
    assert_eq!(of_8_bits.len(), 2, "{of_8_bits:?}");
    assert_eq!(of_8_bits[1].0, "exact");
    Ok(())
}

fn calibrate_prefers_nothing_on_a_simulator() -> Outcome {
    let out = tempfile::tempdir()?;
    let file = out.path().join("qmv.toml");
    let arguments = [
        "calibrate",
        "--out",
        path(&file),
        "--product",
        "512x512:4:64",
        "--product",
        "512x512:8:64",
        "--rows",
        "2",
    ];
    let output = lab("applegpu_g15d", &arguments);
    expect(&output, 0)?;
    let said = String::from_utf8(output.stdout)?;
    let line = "16x512:8:64, M = 2: `exact` and `exact-alt` take the same kernel: there is no other arrangement";
    assert!(
        said.contains(line) && !said.contains("16x512:4:64"),
        "{said}"
    );
    let calibration = mlx_lab::calibrate::Calibration::read(&file)?;
    assert!(calibration.preferences.is_empty());
    assert!(calibration.rejected[0].starts_with("simulated:"));
    Ok(())
}

/// Times as on a GPU on which the other arrangement is the fastest with the bits of one row. Its bits are really
/// compared.
fn a_faster_arrangement_is_written_down() -> Outcome {
    let out = tempfile::tempdir()?;
    let more = ["--rows", "1,4", "--no-dense"];
    expect(&measure("applegpu_g15d", out.path(), &more), 0)?;
    let file = out.path().join("bench.json");
    let mut report: bench::Report = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    report.machines[0].simulated = false;
    for cell in &mut report.cells {
        let micros = match cell.arm.as_str() {
            "exact-alt" => 30.0,
            "exact" => 40.0,
            "narrow" => 90.0,
            _ => 20.0,
        };
        let seconds = &mut cell.seconds;
        (seconds.low, seconds.median, seconds.high) = (micros, micros, micros);
    }
    report.wide = bench::wide(&report.cells);
    std::fs::write(&file, serde_json::to_string(&report)?)?;
    let preferences = out.path().join("qmv.toml");
    let arguments = [
        "calibrate",
        "--out",
        path(&preferences),
        "--from",
        path(&file),
    ];
    let output = lab("applegpu_g15d", &arguments);
    expect(&output, 0)?;
    let said = String::from_utf8(output.stdout)?;
    let line = "16x512:4:64: `wide`: one row as fast as under `default`; faster than `exact` at M = 4; several rows save \
                50% against it in the median";
    assert!(said.lines().any(|found| found == line), "{said}");
    let calibration = Calibration::read(&preferences)?;
    let found: Vec<(&str, [i32; 2])> = calibration
        .preferences
        .iter()
        .map(|entry| (entry.path.as_str(), entry.m))
        .collect();
    assert_eq!(found, [("qmv_wide", [4, 4]), ("qmv_streamed_alt", [4, 4])]);

    // And the dispatch accepts the file.
    let _alone = ROUTES.lock();
    let stream = mlx_lab::setting::stream(RowPolicy::EXACT)?;
    mlx_overlay::set_routes(&calibration.routes()?)?;
    let format = Quantization::affine(4, 64)?;
    let plan = DispatchPlan::of([4, 16, 512], format, Dtype::Bf16, &stream);
    mlx_overlay::set_routes(&[])?;
    assert_eq!(plan?.path.to_string(), "qmv_streamed_alt");
    Ok(())
}

/// For a report from the time when policies had no blocks, the error names the file and the change.
fn reports_of_another_layout_are_refused() -> Outcome {
    let out = tempfile::tempdir()?;
    expect(
        &measure(
            "applegpu_g15d",
            out.path(),
            &["--rows", "1,4", "--no-dense"],
        ),
        0,
    )?;
    let file = out.path().join("bench.json");
    let text = std::fs::read_to_string(&file)?;
    let old = text.replacen("\"format\": 2,", "", 1);
    assert_ne!(old, text);
    std::fs::write(&file, old.replace("\"exact\"", "\"streamed\""))?;
    let preferences = out.path().join("qmv.toml");
    let arguments = [
        "calibrate",
        "--out",
        path(&preferences),
        "--from",
        path(&file),
    ];
    let output = lab("applegpu_g15d", &arguments);
    expect(&output, 1)?;
    let said = String::from_utf8(output.stderr)?;
    assert!(said.contains(path(&file)), "{said}");
    assert!(said.contains("\"exact\" was called \"streamed\""), "{said}");
    Ok(())
}

/// The routing table belongs to the process.
static ROUTES: Mutex<()> = Mutex::new(());

/// Every kernel that can win is compared with single rows, in every format.
fn kernels_of_every_format_can_be_preferred() -> Outcome {
    let _alone = ROUTES.lock();
    for format in ["4:64", "4:128", "mxfp4", "mxfp8", "nvfp4"] {
        let product: Product = format!("64x1024:{format}").parse()?;
        for path in [RoutePath::Qmv, RoutePath::Wide, RoutePath::Streamed] {
            let sound = mlx_lab::calibrate::sound(&product, 3, path, 16)?;
            assert!(sound, "{product}: {path:?}");
        }
        // There is none at 8 bits: another kernel would run.
        let other = mlx_lab::calibrate::sound(&product, 3, RoutePath::StreamedAlt, 16)?;
        assert_eq!(other, format != "mxfp8", "{product}");
    }
    // Which arrangement is the other one depends on the outputs; 16 outputs would use the one for few.
    let product: Product = "4096x256:4:64".parse()?;
    for (path, arrangement) in [
        (RoutePath::Streamed, "_nv_3_r_4_s_4_"),
        (RoutePath::StreamedAlt, "_nv_3_r_2_s_0_"),
    ] {
        let (sound, kernels) =
            mlx_overlay::record_kernels(|| mlx_lab::calibrate::sound(&product, 3, path, 16))?;
        assert!(sound?, "{path:?}");
        let ran = |kernel: &String| kernel.contains(arrangement);
        assert!(kernels.iter().any(ran), "{path:?}: {kernels:?}");
    }
    Ok(())
}

/// The dispatch of this process accepts the file.
fn calibrations_reach_the_dispatch() -> Outcome {
    let _alone = ROUTES.lock();
    let calibration = Calibration {
        format: 2,
        margin: 0.05,
        exact: true,
        rejected: Vec::new(),
        machine: Machine::here()?,
        preferences: vec![Preference {
            mode: "affine".to_owned(),
            bits: 4,
            group_size: 64,
            n: [1024, 1024],
            k: [4096, 4096],
            m: [2, 3],
            path: "qmv".to_owned(),
            saves: 0.1,
        }],
    };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("qmv.toml");
    std::fs::write(&file, calibration.to_toml()?)?;
    let read = Calibration::read(&file)?;
    assert_eq!(read, calibration);
    let stream = mlx_lab::setting::stream(RowPolicy::EXACT)?;
    let path = |rows, quantization| -> Result<String, mlx_overlay::Error> {
        let shape = [rows, 1024, 4096];
        Ok(DispatchPlan::of(shape, quantization, Dtype::Bf16, &stream)?
            .path
            .to_string())
    };
    let measured = Quantization::affine(4, 64)?;
    assert_eq!(path(3, measured)?, "qmv_streamed");
    read.install()?;
    let preferred = [path(3, measured)?, path(4, measured)?];
    let others = [
        path(3, Quantization::affine(4, 128)?)?,
        path(3, Quantization::Mxfp4)?,
    ];
    mlx_overlay::set_routes(&[])?;
    assert_eq!(preferred, ["qmv", "qmv_streamed"]);
    assert_eq!(others, ["qmv_streamed", "qmv_streamed"]);

    let mut foreign = calibration;
    foreign.machine.tree = "0".repeat(40);
    let error = foreign.install().unwrap_err().to_string();
    assert!(
        error.starts_with("the calibration is for ") && error.ends_with(": calibrate again here"),
        "{error}"
    );
    for (text, expected) in [
        ("format = 1", "format 1, expected 2: calibrate again"),
        ("format = 2", "missing field"),
        ("nonsense", "qmv.toml"),
    ] {
        std::fs::write(&file, text)?;
        let error = Calibration::read(&file).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    Ok(())
}

fn mixed_costs_the_batch_nothing() -> Outcome {
    let report: mixed::Report = json("applegpu_g15d", &["mixed", "--steps", "2"], 0)?;
    assert!(report.is_free());
    assert_eq!(report.tax(), None);
    let functions = |counts: &[(String, u64)]| -> Vec<String> {
        counts.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(functions(&report.beside.kernels), ["qmv_wide"]);
    assert_eq!(functions(&report.neighbour), ["qmv_streamed_fast"]);
    // 7 products per layer and the head, 2 steps.
    assert_eq!(report.beside.kernels[0].1, 2 * (2 * 7 + 1));
    // Each step starts with the output of the last one, and all rows are different, so a difference would be visible.
    let outputs = &report.alone.outputs;
    assert_ne!(outputs[0], outputs[1]);
    assert_ne!(outputs[0][0], outputs[0][1]);

    let model = folder::write(More::Router);
    let arguments = [
        "mixed",
        "--model",
        path(model.path()),
        "--steps",
        "1",
        "--batch",
        "2",
        "--width",
        "3",
    ];
    let report: mixed::Report = json("applegpu_g15d", &arguments, 0)?;
    let products = |counts: &[(String, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
    assert_eq!(products(&report.beside.kernels), 2 * 7 + 1);
    assert_eq!(products(&report.neighbour), 2 * 7 + 1);
    Ok(())
}

fn wrong_usage_is_told() -> Outcome {
    for (arguments, code, text) in [
        (
            &["probe", "--product", "17408"][..],
            2,
            "expected an x between outputs and values",
        ),
        (
            &["probe", "--rows", "1"],
            1,
            "a block must have 2 to 4096 rows",
        ),
        (
            &["probe", "--policy", "fast"],
            2,
            "a policy is default, exact, narrow or wide",
        ),
        (
            &["probe", "--policy", "streamed"],
            2,
            "\"streamed\", which is now \"exact\"",
        ),
        (
            &["mixed", "--policy", "exact:0"],
            2,
            "where R is not a whole number from 1",
        ),
        (&["probe", "--allow-skipped"], 2, "--model <FOLDER>"),
        (
            &["probe", "--shader-validation"],
            1,
            "this is another one: run it on a Mac",
        ),
        (
            &["probe", "--model", "/no/such/folder"],
            1,
            "/no/such/folder: No such file or directory",
        ),
        (&["decode"], 2, "unrecognized subcommand 'decode'"),
        (
            &["mixed", "--model", "/no/such/folder"],
            1,
            "/no/such/folder: No such file or directory",
        ),
        (&["mixed", "--batch", "0"], 2, "0 is not in 1..=4096"),
        (
            &["mixed", "--batch", "4294967295"],
            2,
            "4294967295 is not in 1..=4096",
        ),
        (
            &["probe", "--context", "4611686018427387904"],
            2,
            "is more than 1048576",
        ),
        (
            &["bench", "--out", "/tmp", "--bandwidth", "inf"],
            2,
            "the bandwidth must be greater than 0; found inf",
        ),
        (&["bench"], 2, "--out"),
        (
            &["bench", "--out", "/tmp", "--against", "/no/such/program"],
            1,
            "/no/such/program",
        ),
        (
            &[
                "calibrate",
                "--out",
                "/dev/null",
                "--from",
                "/no/such/report",
            ],
            1,
            "/no/such/report",
        ),
        // Errors that would lose the times are reported before anything is measured or read.
        (
            &["probe", "--json", "/no/such/folder/x"],
            1,
            "cannot write /no/such/folder/x: the folder /no/such/folder does not exist",
        ),
        (
            &["mixed", "--json", "/tmp"],
            1,
            "cannot write /tmp: it is a folder",
        ),
        (
            &[
                "calibrate",
                "--out",
                "/no/such/folder/x",
                "--from",
                "/no/such/report",
            ],
            1,
            "cannot write /no/such/folder/x: the folder /no/such/folder does not exist",
        ),
        (
            &["calibrate", "--out", "/tmp", "--from", "/no/such/report"],
            1,
            "cannot write /tmp: it is a folder",
        ),
        (
            &["calibrate", "--out", "/dev/null", "--margin", "2"],
            2,
            "the margin must be from 0 to below 1; found 2",
        ),
        (
            &["calibrate", "--out", "/dev/null", "--margin", "nan"],
            2,
            "from 0 to below 1; found NaN",
        ),
        (
            &[
                "calibrate",
                "--out",
                "/dev/null",
                "--model",
                "/tmp",
                "--acceptance",
                "2",
            ],
            2,
            "a probability must be from 0 to 1; found 2",
        ),
        (
            &[
                "calibrate",
                "--out",
                "/dev/null",
                "--model",
                "/tmp",
                "--guess-ms=-1",
            ],
            2,
            "the time of a guess must not be negative; found -1",
        ),
    ] {
        let output = lab("applegpu_g15d", arguments);
        expect(&output, code)?;
        let stderr = String::from_utf8(output.stderr)?;
        assert!(stderr.contains(text), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
    Ok(())
}
