//! The quickstart's last step: a table that compares eight rows computed together with the same rows alone. `--ladder`
//! writes a report of the kernels for 1 to 16 rows on simulated GPUs.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use camino::Utf8Path;
use cli::Progress;
use comfy_table::{Table, presets};
use metal_sim::trace::{self, Dispatch};
use mlx_prefix::{Backend, Stamp};
use serde::Deserialize;

use crate::cargo;
use crate::host::Host;
use crate::proc::Cmd;

/// A generation that takes the wide affine kernel, so that the policies differ.
const ARCHITECTURE: &str = "applegpu_g15d";

/// The rows of the table: the operation, the example's arguments for it, and the policies that differ on it.
const COMPARED: [(&str, What, &[&str]); 3] = [
    (
        "product, 4-bit weights",
        What::Quantized,
        &["default", "narrow", "exact"],
    ),
    ("product, dense weights", What::Dense, &["default", "exact"]),
    (
        "attention, 1,028 keys",
        What::Attention,
        &["default", "exact"],
    ),
];

#[derive(Clone, Copy)]
enum What {
    Quantized,
    Dense,
    Attention,
}

/// Rows that are computed together.
const TOGETHER: u32 = 8;

/// A line of the table.
#[derive(Debug)]
struct Line {
    operation: &'static str,
    policy: &'static str,
    rows_equal: u32,
    /// How often the weights were loaded, if there are any and the device counts that.
    reads: Option<f64>,
}

/// Eight rows together, compared with each row alone, under the policies that differ.
pub(crate) fn summary(host: &Host, root: &Utf8Path, backend: Backend) -> Result<String> {
    let examples = Examples::build(host, root)?;
    let progress = Progress::spinning();
    let mut lines = Vec::new();
    for (operation, what, policies) in COMPARED {
        for &policy in policies {
            progress.set(&format!("{operation}, {policy}"));
            let rows = TOGETHER.to_string();
            let other = |name| {
                let command = host.cmd(examples.others.as_str());
                command.args([name, "--json", "--rows", &rows])
            };
            let command = match what {
                What::Quantized => examples.product(&rows, "affine"),
                What::Dense => other("matmul"),
                What::Attention => other("attention"),
            };
            let command = command.env("MLX_ROW_POLICY", policy);
            let (differing, reads) = match (what, backend) {
                (What::Quantized, Backend::Sim) => {
                    let (report, dispatch) = examples.product_metered(command, ARCHITECTURE)?;
                    (report.rows_differing, Some(report.reads(&dispatch)?))
                }
                (What::Dense, Backend::Sim) => {
                    let (report, reads) = examples.matrix_metered(command)?;
                    (report.rows_differing, Some(reads))
                }
                _ => {
                    let command = match backend {
                        Backend::Sim => command.env("MTL_SIM_ARCH", ARCHITECTURE),
                        _ => command,
                    };
                    (json::<Rows>(&command.read()?)?.rows_differing, None)
                }
            };
            lines.push(Line::new(operation, policy, differing, reads));
        }
    }
    drop(progress);
    let device = match backend {
        Backend::Sim => format!("MLX's own Metal kernels, on a simulated {ARCHITECTURE}"),
        _ => "MLX's own Metal kernels, on this machine's GPU".to_owned(),
    };
    let table = table(&lines);
    kept(&lines).with_context(|| {
        format!("{TOGETHER} rows together, each compared with itself alone:\n{table}")
    })?;
    Ok(format!(
        "{TOGETHER} rows computed together, each compared bit for bit with the same row alone ({device}):\n{table}"
    ))
}

impl Line {
    fn new(
        operation: &'static str,
        policy: &'static str,
        rows_differing: u32,
        reads: Option<f64>,
    ) -> Self {
        Self {
            operation,
            policy,
            rows_equal: TOGETHER - rows_differing,
            reads,
        }
    }
}

/// Whether every policy but `default` kept the bits of its rows.
fn kept(lines: &[Line]) -> Result<()> {
    for line in lines.iter().filter(|line| line.policy != "default") {
        ensure!(
            line.rows_equal == TOGETHER,
            "{}, policy {}: {} of {TOGETHER} rows have the bits that they have alone, expected all; `cargo run --release \
             -p mlx-lab -- probe` lists the operations that differ",
            line.operation,
            line.policy,
            line.rows_equal
        );
    }
    Ok(())
}

fn table(lines: &[Line]) -> Table {
    let metered = lines.iter().any(|line| line.reads.is_some());
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let mut heads = vec!["operation", "policy", "rows with the same bits"];
    if metered {
        heads.push("weights read");
    }
    table.set_header(heads);
    let mut last = "";
    for line in lines {
        let operation = if line.operation == last {
            ""
        } else {
            line.operation
        };
        last = line.operation;
        let mut cells = vec![
            operation.to_owned(),
            match line.policy {
                "default" => "default (stock MLX)".to_owned(),
                other => other.to_owned(),
            },
            format!("{} of {TOGETHER}", line.rows_equal),
        ];
        cells.extend(
            line.reads
                .map(|reads| match format!("{reads:.0}").as_str() {
                    "1" => "once".to_owned(),
                    more => format!("{more} times"),
                }),
        );
        table.add_row(cells);
    }
    table
}

/// The tables of the ladder: a simulated GPU, the policy of the process, and the quantization mode.
///
/// Policies differ if the wide kernel is chosen. For affine weights, generation 13 never chooses it, 15 does, and 17 has
/// other batch limits; for the fp modes, every generation does.
const LADDER: [(&str, &str, &str); 13] = [
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

/// Numbers of rows of the ladder: from plain decoding to the most rows of a block.
const ROWS: std::ops::RangeInclusive<u32> = 1..=16;

/// The page `docs/reports/ladder.md`: kernel, reads and equal rows for each number of rows.
pub(crate) fn ladder(host: &Host, root: &Utf8Path, stamp: &Stamp) -> Result<String> {
    let examples = Examples::build(host, root)?;
    let progress = Progress::counted("ladder");
    let mut page = format!(
        "# The ladder: which kernel M rows take\n\n\
         Written by `cargo xtask quickstart --ladder docs/reports/ladder.md` (MLX {}, tree `{}`). Kernel names are those \
         that MLX's own dispatch asked the simulated device for. \"Weights read\" is the device's meter: bytes of `w` \
         loaded, divided by its size. Rows are compared bit for bit with the product of one row. Nothing here is a \
         time, and nothing ran on an Apple GPU. `cargo xtask plan` computes the same ladder for any shape without \
         running it.\n",
        stamp.version, stamp.final_tree
    );
    for (step, (architecture, policy, mode)) in LADDER.into_iter().enumerate() {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["M", "kernel", "weights read, times", "rows equal to M = 1"]);
        let mut problem = String::new();
        for rows in ROWS {
            progress.count(
                step * ROWS.count() + rows as usize,
                LADDER.len() * ROWS.count(),
            );
            let command = examples
                .product(&rows.to_string(), mode)
                .env("MLX_ROW_POLICY", policy);
            let (report, dispatch) = examples.product_metered(command, architecture)?;
            let reads = report.reads(&dispatch)?;
            table.add_row([
                rows.to_string(),
                format!("`{}`", dispatch.kernel),
                format!("{reads:.2}"),
                format!("{} of {rows}", rows - report.rows_differing),
            ]);
            problem = report.problem();
        }
        write!(
            page,
            "\n## {architecture}, {mode}, policy {policy}\n\n{problem}\n\n{table}\n"
        )?;
    }
    Ok(page)
}

/// The two examples, built, and the file into which the simulated device writes its trace.
struct Examples<'a> {
    host: &'a Host,
    products: camino::Utf8PathBuf,
    others: camino::Utf8PathBuf,
    trace: tempfile::NamedTempFile,
}

impl<'a> Examples<'a> {
    fn build(host: &'a Host, root: &Utf8Path) -> Result<Self> {
        let [products, others] = cargo::build_examples(host, root)?;
        let trace = tempfile::Builder::new()
            .prefix("mlx-overlay-trace-")
            .tempfile()
            .context("cannot make a temporary file")?;
        Ok(Self {
            host,
            products,
            others,
            trace,
        })
    }

    /// Runs the example's product with that many rows.
    fn product(&self, rows: &str, mode: &str) -> Cmd {
        self.host
            .cmd(self.products.as_str())
            .args(["--device", "gpu", "--json", "--mode", mode, "--m", rows])
    }

    /// The report of a product, and the first dispatch of a quantized product: the one with all rows.
    fn product_metered(&self, command: Cmd, architecture: &str) -> Result<(Report, Dispatch)> {
        let (report, dispatches) = self.metered(command, architecture)?;
        let dispatch = dispatches
            .into_iter()
            .find(|dispatch| dispatch.kernel.contains("_qmv") || dispatch.kernel.contains("_qmm"))
            .context("the example ran no quantized product on the simulated device")?;
        Ok((report, dispatch))
    }

    /// The report of the dense product, and how often its matrix was loaded. The block is computed first.
    fn matrix_metered(&self, command: Cmd) -> Result<(OtherReport, f64)> {
        let (report, dispatches): (OtherReport, _) = self.metered(command, ARCHITECTURE)?;
        let block = dispatches
            .get(..report.kernels.len())
            .filter(|block| !block.is_empty())
            .context("the example recorded other kernels than the simulated device ran")?;
        // The names that MLX's kernels give the matrix.
        let loaded: u64 = ["mat", "B"]
            .iter()
            .flat_map(|name| {
                block
                    .iter()
                    .filter_map(|dispatch| dispatch.argument(name)?.loaded)
            })
            .sum();
        let reads = loaded as f64 / report.shared_bytes as f64;
        Ok((report, reads))
    }

    /// Runs an example on a simulated GPU; returns its report and the device's dispatches.
    fn metered<T: serde::de::DeserializeOwned>(
        &self,
        command: Cmd,
        architecture: &str,
    ) -> Result<(T, Vec<Dispatch>)> {
        let trace =
            Utf8Path::from_path(self.trace.path()).context("the temporary folder is not UTF-8")?;
        fs_err::write(trace, "")?;
        let text = command
            .env("MTL_SIM_ARCH", architecture)
            .env("MTL_SIM_METER", "1")
            .env("MTL_SIM_TRACE", trace)
            .read()?;
        let dispatches = trace::read(&fs_err::read_to_string(trace)?)
            .with_context(|| format!("{trace} is not a trace of the simulated device"))?;
        Ok((json(&text)?, dispatches))
    }
}

fn json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .with_context(|| format!("the example's --json printed something else: {text}"))
}

/// The fields that both examples report.
#[derive(Debug, Deserialize)]
struct Rows {
    rows_differing: u32,
}

/// The fields used here from the report of the example of quantized products.
#[derive(Debug, Deserialize)]
struct Report {
    n: u64,
    k: u64,
    mode: String,
    bits: u32,
    group: u32,
    dtype: String,
    rows_differing: u32,
}

/// The fields used here from the report of the other example.
#[derive(Debug, Deserialize)]
struct OtherReport {
    rows_differing: u32,
    shared_bytes: u64,
    kernels: Vec<String>,
}

impl Report {
    /// How often a dispatch loaded the packed weights.
    fn reads(&self, dispatch: &Dispatch) -> Result<f64> {
        let bytes = (self.n * self.k) as f64 * f64::from(self.bits) / 8.0;
        let loaded = dispatch
            .argument("w")
            .and_then(|weights| weights.loaded)
            .with_context(|| {
                format!(
                    "the trace of {} does not count the loads of w",
                    dispatch.kernel
                )
            })?;
        Ok(loaded as f64 / bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(exact: u32) -> Vec<Line> {
        let line =
            |operation, policy, differing, reads| Line::new(operation, policy, differing, reads);
        COMPARED
            .iter()
            .flat_map(|&(operation, _, policies)| {
                policies.iter().map(move |&policy| match policy {
                    "exact" => line(operation, policy, TOGETHER - exact, Some(1.0)),
                    "narrow" => line(operation, policy, 0, Some(8.0)),
                    _ => line(operation, policy, 8, Some(2.0)),
                })
            })
            .collect()
    }

    #[test]
    fn the_table_is_short_and_shows_the_point() {
        let text = table(&lines(8)).to_string();
        assert!(text.lines().count() <= 12, "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        let of = |policy: &str| {
            let found = text.lines().find(|line| line.contains(policy)).unwrap();
            found.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(
            of("default").ends_with("default (stock MLX) 0 of 8 2 times │"),
            "{text}"
        );
        assert!(of("narrow").ends_with("narrow 8 of 8 8 times │"), "{text}");
        assert!(of("exact").ends_with("exact 8 of 8 once │"), "{text}");
        // Without a meter, reads are not known.
        let unmetered = Line::new("attention", "exact", 0, None);
        assert!(!table(&[unmetered]).to_string().contains("read"));
    }

    #[test]
    fn a_row_that_lost_its_bits_is_an_error() {
        assert!(kept(&lines(8)).is_ok());
        let error = kept(&lines(7)).unwrap_err().to_string();
        assert!(
            error.contains("policy exact: 7 of 8 rows") && error.contains("probe"),
            "{error}"
        );
    }
}
