//! What the quickstart ends with on Linux: which kernel each number of rows takes, and whether its rows equal the
//! one-row product; then the same for attention and a dense product.

use anyhow::{Context, Result};
use camino::Utf8Path;
use cli::println;
use comfy_table::{Table, presets};
use metal_sim::trace::{self, Dispatch};
use serde::Deserialize;

use crate::cargo;
use crate::host::Host;
use crate::proc::Cmd;

/// What is shown: a simulated GPU, the policy of the process, and the quantization mode.
///
/// Generation 13 never takes the wide affine kernel, 15 does, 17 has other batch limits; the policies matter where the
/// wide kernel is taken. The fp modes take it on every generation.
const SHOWN: [(&str, &str, &str); 13] = [
    ("applegpu_g13s", "default", "affine"),
    ("applegpu_g13s", "exact", "affine"),
    ("applegpu_g17s", "default", "affine"),
    ("applegpu_g15d", "default", "affine"),
    ("applegpu_g15d", "exact", "affine"),
    ("applegpu_g15d", "narrow", "affine"),
    ("applegpu_g15d", "wide", "affine"),
    ("applegpu_g13s", "default", "mxfp4"),
    ("applegpu_g13s", "exact", "mxfp4"),
    ("applegpu_g13s", "default", "mxfp8"),
    ("applegpu_g13s", "exact", "mxfp8"),
    ("applegpu_g13s", "default", "nvfp4"),
    ("applegpu_g13s", "exact", "nvfp4"),
];

/// Numbers of rows shown: from plain decoding to the most rows of a block.
const ROWS: std::ops::RangeInclusive<u32> = 1..=16;

/// What the example reports of one product (`--json`), as far as it is shown here.
#[derive(Debug, Deserialize)]
struct Report {
    m: u32,
    n: u64,
    k: u64,
    mode: String,
    bits: u32,
    group: u32,
    dtype: String,
    rows_differing: u32,
}

/// What the README begins with: the policies at M = 8, where they differ most.
const SUMMARY: (&str, &str, u32) = ("applegpu_g15d", "affine", 8);

/// Prints one table for each simulated GPU, policy and mode, and one that sums them up.
pub(crate) fn run(host: &Host, root: &Utf8Path) -> Result<()> {
    let mut summary = table("policy");
    let [example, others] = cargo::build_examples(host, root)?;
    let trace = tempfile::Builder::new()
        .prefix("mlx-overlay-trace-")
        .tempfile()
        .context("cannot make a temporary file")?;
    let trace = Utf8Path::from_path(trace.path()).context("the temporary folder is not UTF-8")?;
    for (architecture, policy, mode) in SHOWN {
        let mut table = table("M");
        let mut problem = String::new();
        for rows in ROWS {
            let command = host
                .cmd(example.as_str())
                .args(["--device", "gpu", "--json", "--mode", mode])
                .args(["--m", &rows.to_string()])
                .env("MTL_SIM_ARCH", architecture)
                .env("MLX_ROW_POLICY", policy)
                .env("MTL_SIM_METER", "1")
                .env("MTL_SIM_TRACE", trace);
            let (report, dispatch) = product(command, trace)?;
            let loaded = dispatch
                .argument("w")
                .and_then(|weights| weights.loaded)
                .with_context(|| format!("{trace} does not count the loads of w"))?;
            let cells = [
                dispatch.kernel,
                format!("{:.2}", loaded as f64 / report.weight_bytes()),
                format!("{} of {}", report.m - report.rows_differing, report.m),
            ];
            if (architecture, mode, rows) == SUMMARY {
                summary.add_row([&[policy.to_owned()], &cells[..]].concat());
            }
            table.add_row([&[rows.to_string()], &cells[..]].concat());
            problem = report.problem();
        }
        println!("\nSimulated {architecture}, policy {policy}: {problem}\n{table}");
    }
    let (architecture, mode, rows) = SUMMARY;
    println!(
        "\nIn short, M = {rows} on {architecture}, {mode}. Goal: weights read once, every row identical to M = 1 under \
         the same policy, which is MLX's own M = 1 under all but wide:\n{summary}"
    );
    for (operation, shared) in OTHERS {
        let mut table = other_table(shared.what);
        let mut problem = String::new();
        for policy in ["default", "exact"] {
            let command = host
                .cmd(others.as_str())
                .args([operation, "--json", "--rows", "8"])
                .env("MTL_SIM_ARCH", architecture)
                .env("MLX_ROW_POLICY", policy)
                .env("MTL_SIM_METER", "1")
                .env("MTL_SIM_TRACE", trace);
            let (report, cells) = other(command, trace, &shared)?;
            table.add_row([&[policy.to_owned()], &cells[..]].concat());
            problem = report.operation;
        }
        println!("\nSimulated {architecture}, M = 8: {problem}\n{table}");
    }
    Ok(())
}

/// What the rows of an operation share.
struct Shared {
    /// As the table's head has it.
    what: &'static str,
    /// The names of the kernels' parameters for it.
    parameters: &'static [&'static str],
}

/// The operations besides quantized products.
const OTHERS: [(&str, Shared); 2] = [
    (
        "matmul",
        Shared {
            what: "matrix",
            parameters: &["mat", "B"],
        },
    ),
    (
        "attention",
        Shared {
            what: "keys",
            parameters: &["keys", "K"],
        },
    ),
];

/// What the other example reports (`--json`), as far as it is shown here.
#[derive(Debug, Deserialize)]
struct OtherReport {
    operation: String,
    rows: u32,
    rows_differing: u32,
    shared_bytes: u64,
    kernels: Vec<String>,
}

/// Runs the other example: what it reports, and the cells of its row of the table. The block is what it computes first.
fn other(command: Cmd, trace: &Utf8Path, shared: &Shared) -> Result<(OtherReport, [String; 3])> {
    fs_err::write(trace, "")?;
    let text = command.read()?;
    let report: OtherReport = serde_json::from_str(&text)
        .with_context(|| format!("the example's --json printed something else: {text}"))?;
    let dispatches = trace::read(&fs_err::read_to_string(trace)?)
        .with_context(|| format!("{trace} is no trace of the simulated device"))?;
    let block = dispatches
        .get(..report.kernels.len())
        .filter(|block| !block.is_empty())
        .context("the example recorded other kernels than the simulated device ran")?;
    let loaded: u64 = block
        .iter()
        .flat_map(|dispatch| &dispatch.arguments)
        .filter(|argument| shared.parameters.contains(&argument.name.as_str()))
        .filter_map(|argument| argument.loaded)
        .sum();
    // Copies of small parts are left out.
    let kernels: Vec<&str> = block
        .iter()
        .map(|d| d.kernel.as_str())
        .filter(|name| !name.contains("copy"))
        .collect();
    let cells = [
        kernels.join("\n"),
        format!("{:.2}", loaded as f64 / report.shared_bytes as f64),
        format!("{} of {}", report.rows - report.rows_differing, report.rows),
    ];
    Ok((report, cells))
}

fn other_table(shared: &str) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header([
        "policy".to_owned(),
        "kernels".to_owned(),
        format!("{shared} read, times"),
        "rows equal to M = 1".to_owned(),
    ]);
    table
}

/// A table without rows, whose first column is what changes.
fn table(first: &str) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header([
        first,
        "kernel",
        "weights read, times",
        "rows equal to M = 1",
    ]);
    table
}

/// Runs the example: what it reports, and the first dispatch of a quantized product, which is the one with all rows.
fn product(command: Cmd, trace: &Utf8Path) -> Result<(Report, Dispatch)> {
    fs_err::write(trace, "")?;
    let text = command.read()?;
    let report = serde_json::from_str(&text)
        .with_context(|| format!("the example's --json printed something else: {text}"))?;
    let dispatch = trace::read(&fs_err::read_to_string(trace)?)
        .with_context(|| format!("{trace} is no trace of the simulated device"))?
        .into_iter()
        .find(|dispatch| dispatch.kernel.contains("_qmv") || dispatch.kernel.contains("_qmm"))
        .context("the example ran no quantized product on the simulated device")?;
    Ok((report, dispatch))
}

impl Report {
    /// Bytes of the packed weights.
    fn weight_bytes(&self) -> f64 {
        (self.n * self.k) as f64 * f64::from(self.bits) / 8.0
    }

    fn problem(&self) -> String {
        let Self {
            n,
            k,
            mode,
            bits,
            group,
            dtype,
            ..
        } = self;
        format!("M x {k} times {n} x {k}, {dtype}, {mode} of {bits} bits, groups of {group}")
    }
}
