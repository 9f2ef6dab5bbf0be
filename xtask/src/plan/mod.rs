//! `cargo xtask plan`: the kernels that products and attention take as their rows grow, on any Apple GPU, without one.

mod attention;
mod dense;
mod staircase;

use std::collections::BTreeMap;

use anyhow::Result;
use camino::Utf8PathBuf;
use clap::value_parser;
use cli::println;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use dispatch_plan::{Architecture, Dense, Dtype, Mode, Op, Plan, Policy, Problem};
use serde::Serialize;

use crate::Usage;

/// A GPU of each kind that MLX distinguishes, from the M1 on.
const ARCHITECTURES: [&str; 10] = [
    "g13g", "g13s", "g13d", "g14g", "g14s", "g14d", "g15s", "g15d", "g17s", "g17d",
];

/// Show which kernels a quantized product, a dense product or attention takes
///
/// The result comes from the code that the dispatch itself runs. It includes how often the weights are read, but no
/// times.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask plan --arch g15d --n 17408 --k 5120
  cargo xtask plan --arch g15d --n 17408 --k 5120 --all-policies --rows 16 --svg ladder.svg
  cargo xtask plan --all-arch --n 17408 --k 5120 --bits 8 --policy exact
  cargo xtask plan --arch g15d --dense --n 4096 --k 4096 --all-policies --rows 9
  cargo xtask plan --arch g15d --attention --heads 32 --kv-heads 4 --head-dim 128 --keys 8195 --rows 8 --policy exact
  cargo xtask plan --arch g13s --n 17408 --k 5120 --mode mxfp4 --all-policies --rows 16")]
pub struct Args {
    /// The GPU, as Metal names it: applegpu_g15d, or g15d (an M3 Ultra)
    #[arg(long, value_name = "NAME", required_unless_present = "all_arch")]
    arch: Option<Architecture>,
    /// All kinds of GPUs that MLX distinguishes, side by side
    #[arg(long, conflicts_with = "arch")]
    all_arch: bool,
    /// A block of attention instead of a quantized product
    #[arg(long, conflicts_with = "dense")]
    attention: bool,
    /// A dense product instead of a quantized one
    #[arg(long)]
    dense: bool,
    /// Add something to the dense product (addmm)
    #[arg(long, requires = "dense")]
    addmm: bool,
    /// The dense product's weights have shape (K, N)
    #[arg(long, requires = "dense")]
    not_transposed: bool,
    #[command(flatten)]
    sizes: attention::Sizes,
    /// Outputs per row: the rows of the weight matrix
    #[arg(long, required_unless_present = "attention", value_parser = value_parser!(u32).range(1..1 << 31))]
    n: Option<u32>,
    /// Values per row: the columns of the weight matrix
    #[arg(long, required_unless_present = "attention", value_parser = value_parser!(u32).range(1..1 << 31))]
    k: Option<u32>,
    /// affine, mxfp4, mxfp8 or nvfp4
    #[arg(long, default_value_t = Mode::Affine)]
    mode: Mode,
    /// Bits per weight: 1, 2, 3, 4, 5, 6 or 8 [default: 4]; fixed in modes other than affine
    #[arg(long)]
    bits: Option<u32>,
    /// Weights that share a scale: 32, 64 or 128 [default: 64]; fixed in modes other than affine
    #[arg(long, value_name = "SIZE")]
    group: Option<u32>,
    /// A product of qqmm, with one scale for all weights and one for all of x (nvfp4 only)
    #[arg(long)]
    global_scale: bool,
    /// Type of x and of the result: float32, float16 or bfloat16
    #[arg(long, default_value_t = Dtype::Bfloat16)]
    dtype: Dtype,
    /// default, exact, narrow or wide, for blocks of up to 16 rows; with :R (exact:64) or :all for blocks of other
    /// sizes
    #[arg(long, default_value_t = Policy::DEFAULT)]
    policy: Policy,
    /// All policies side by side, on one GPU
    #[arg(long, conflicts_with_all = ["policy", "all_arch"])]
    all_policies: bool,
    /// Number of products in a batch, each with its own rows and weights
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..1 << 31))]
    batch: u32,
    /// The OS lets MLX use the matrix units of generation 17 (macOS 26.2 or later)
    #[arg(long)]
    matrix_units: bool,
    /// The last number of rows [default: 40]; with --attention: the rows of the block [default: 8]
    #[arg(long, value_name = "M", value_parser = value_parser!(u32).range(1..=4096))]
    rows: Option<u32>,
    /// Print a JSON array with a row for each architecture and M
    ///
    /// Fields: architecture, policy, m, path, kernel, tile, tiles, weight_passes, bytes, identical. With --dense:
    /// dispatches instead of tiles and bytes. With --attention: a row for each group with architecture, policy, first,
    /// rows, keys, path, blocks, dispatches, kernel (null if other operations compute it), identical
    #[arg(long)]
    json: bool,
    /// Also draw how often the weights are read, as steps over M
    #[arg(long, value_name = "FILE", conflicts_with_all = ["attention", "dense"])]
    svg: Option<Utf8PathBuf>,
}

impl Args {
    /// Bits per weight and weights per group: as given, or as the mode fixes them.
    fn bits_and_group(&self) -> (u32, u32) {
        let (bits, group) = self
            .mode
            .fixed()
            .map_or((4, 64), |format| (format.bits(), format.group_size()));
        (self.bits.unwrap_or(bits), self.group.unwrap_or(group))
    }

    /// N and K of a product, which requires both.
    fn sizes_of_product(&self) -> (u32, u32) {
        (self.n.unwrap_or(1), self.k.unwrap_or(1))
    }
}

/// The plans of one architecture and policy for M = 1, 2 and so on.
struct Ladder {
    architecture: Architecture,
    policy: Policy,
    /// What distinguishes it from the other ladders.
    name: String,
    plans: Vec<Plan>,
}

/// One line of `--json`.
#[derive(Serialize)]
struct Row<'a> {
    architecture: String,
    policy: String,
    m: usize,
    path: &'static str,
    kernel: &'a str,
    tile: u32,
    tiles: u32,
    weight_passes: u32,
    bytes: u64,
    identical: bool,
}

pub fn run(args: Args) -> Result<()> {
    let architectures = match args.arch {
        Some(architecture) => vec![architecture],
        None => ARCHITECTURES
            .iter()
            .map(|name| name.parse())
            .collect::<Result<_, _>>()?,
    };
    let policies = if args.all_policies {
        Policy::KINDS.to_vec()
    } else {
        vec![args.policy]
    };
    if args.attention {
        let rows = args.rows.unwrap_or(8);
        return attention::run(
            &args.sizes,
            &architectures,
            &policies,
            args.dtype,
            rows,
            args.json,
        );
    }
    let (n, k) = args.sizes_of_product();
    if args.dense {
        let product = Dense {
            architecture: architectures[0],
            dtype: args.dtype,
            addmm: args.addmm,
            transpose: !args.not_transposed,
            m: 1,
            n,
            k,
            batch: args.batch,
        };
        return dense::run(
            &product,
            &architectures,
            &policies,
            args.rows.unwrap_or(40),
            args.json,
        );
    }
    let mut ladders = Vec::new();
    for architecture in architectures {
        for &policy in &policies {
            ladders.push(ladder(&args, architecture, policy)?);
        }
    }
    if let Some(path) = &args.svg {
        cli::file::write(path.as_ref(), staircase::draw(&title(&args), &ladders))?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows(&ladders))?);
    } else if let [ladder] = ladders.as_slice() {
        println!("{} on {}", title(&args), ladder.architecture);
        println!("{}", table(ladder));
    } else {
        println!("{}", title(&args));
        println!("{}", side_by_side(&ladders));
        println!(
            "Kernel and how often it reads the weights; = if every row has the same bits as alone."
        );
    }
    Ok(())
}

fn title(args: &Args) -> String {
    let (bits, group) = args.bits_and_group();
    let scale = if args.global_scale {
        ", global scale"
    } else {
        ""
    };
    let (n, k) = args.sizes_of_product();
    let title = format!(
        "{} {bits}-bit, groups of {group}{scale}, {}, N = {n}, K = {k}",
        args.mode, args.dtype
    );
    match args.arch {
        Some(architecture) if args.all_policies => format!("{title}, {architecture}"),
        _ => format!("{title}, policy {}", args.policy),
    }
}

fn ladder(args: &Args, architecture: Architecture, policy: Policy) -> Result<Ladder> {
    let (bits, group_size) = args.bits_and_group();
    let (n, k) = args.sizes_of_product();
    let plans = (1..=args.rows.unwrap_or(40))
        .map(|m| {
            let problem = Problem {
                nax: args.matrix_units && architecture.has_matrix_units(),
                op: if args.global_scale {
                    Op::QqMatmul
                } else {
                    Op::QuantizedMatmul
                },
                mode: args.mode,
                dtype: args.dtype,
                bits,
                group_size,
                global_scale: args.global_scale,
                m,
                batch: args.batch,
                ..Problem::new(architecture, n, k)
            };
            usage(dispatch_plan::plan(&problem, policy, &[]))
        })
        .collect::<Result<_>>()?;
    Ok(Ladder {
        architecture,
        policy,
        name: if args.all_policies {
            policy.to_string()
        } else {
            architecture.to_string()
        },
        plans,
    })
}

/// An error of the plan is wrong usage.
fn usage<T>(plan: Result<T, dispatch_plan::Error>) -> Result<T> {
    match plan {
        Err(dispatch_plan::Error::Invalid(text)) => Err(Usage(text).into()),
        plan => Ok(plan?),
    }
}

fn rows(ladders: &[Ladder]) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for ladder in ladders {
        for (m, plan) in (1..).zip(&ladder.plans) {
            rows.push(Row {
                architecture: ladder.architecture.to_string(),
                policy: ladder.policy.to_string(),
                m,
                path: plan.path.name(),
                kernel: &plan.kernel,
                tile: plan.tile,
                tiles: plan.tiles,
                weight_passes: plan.weight_passes,
                bytes: plan.weight_bytes,
                identical: plan.identical,
            });
        }
    }
    rows
}

fn table(ladder: &Ladder) -> Table {
    let mut table = plain_table();
    table.set_header([
        "M",
        "path",
        "tile",
        "tiles",
        "passes",
        "MB read",
        "bits of row alone",
        "kernel",
    ]);
    for (m, plan) in (1..).zip(&ladder.plans) {
        table.add_row([
            i32::to_string(&m),
            plan.path.to_string(),
            plan.tile.to_string(),
            plan.tiles.to_string(),
            plan.weight_passes.to_string(),
            format!("{:.1}", plan.weight_bytes as f64 / 1e6),
            if plan.identical { "yes" } else { "no" }.to_owned(),
            plan.kernel.clone(),
        ]);
    }
    for column in [0, 2, 3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// One column per ladder. Adjacent rows with the same content are merged.
fn side_by_side(ladders: &[Ladder]) -> Table {
    let mut table = plain_table();
    let names = ladders.iter().map(|ladder| ladder.name.clone());
    table.set_header(std::iter::once("M".to_owned()).chain(names));
    let mut lines: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for ladder in ladders {
        for (i, plan) in ladder.plans.iter().enumerate() {
            let mark = if plan.identical { "=" } else { " " };
            let cell = format!("{}{} {}", mark, plan.path, plan.weight_passes);
            lines.entry(i + 1).or_default().push(cell);
        }
    }
    let mut last: Option<(usize, usize, Vec<String>)> = None;
    let flush = |table: &mut Table, span: Option<(usize, usize, Vec<String>)>| {
        if let Some((from, to, cells)) = span {
            let m = if from == to {
                from.to_string()
            } else {
                format!("{from}-{to}")
            };
            table.add_row(std::iter::once(m).chain(cells));
        }
    };
    for (m, cells) in lines {
        match &mut last {
            Some((_, to, same)) if *same == cells => *to = m,
            _ => flush(&mut table, last.replace((m, m, cells))),
        }
    }
    flush(&mut table, last);
    table
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table
}
