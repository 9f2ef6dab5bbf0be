//! Computes a block of rows, by attention or a dense product. Reports which of its rows are bit-identical to the same
//! row computed alone under the policy `default`.
//!
//! ```text
//! MLX_ROW_POLICY=exact cargo run -p mlx-overlay --example rows_alone -- attention --rows 8 --keys 1028
//! ```
//!
//! Exit codes: 0 done (equal rows or not), 1 computation failed, 2 usage.

#![allow(
    clippy::print_stdout,
    reason = "an example takes no help from unpublished crates"
)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mlx_overlay::{
    Array, Device, Error, Mask, RowPolicy, Stream, attention, has_policies, matmul, process_policy,
    record_kernels, slice, transpose,
};
use serde::Serialize;

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 64;

#[derive(Parser)]
#[command(
    name = "rows_alone",
    about = "Compare the rows of a block with the same rows alone"
)]
struct Args {
    #[command(subcommand)]
    operation: Operation,
    /// Rows of the block
    #[arg(long, default_value_t = 8, global = true, value_parser = clap::value_parser!(u32).range(1..=16))]
    rows: u32,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Copy, Subcommand)]
enum Operation {
    /// Causal attention; the last row sees all keys
    Attention {
        /// Keys that the last row sees
        #[arg(long, default_value_t = 1028, value_parser = clap::value_parser!(u32).range(16..=65536))]
        keys: u32,
    },
    /// Rows of 1024 values times a matrix of 512 outputs
    Matmul,
}

/// The report. The names are those of the JSON output.
#[derive(Serialize)]
struct Report {
    operation: String,
    rows: usize,
    /// Rows of the block that are not bit-identical to the row alone.
    rows_differing: usize,
    /// Size of what the rows share: the matrix, or the keys.
    shared_bytes: usize,
    /// Kernels of the block; empty if they are not recorded.
    kernels: Vec<String>,
    policy: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let report = Stream::default_of(Device::preferred()?)?.scope(|| examine(args))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    let Report {
        operation,
        rows,
        rows_differing,
        ..
    } = &report;
    println!("operation  {operation}");
    if let Some(policy) = &report.policy {
        println!("policy     {policy}");
    }
    println!(
        "rows       {} of {rows} have the bits that they have alone",
        rows - rows_differing
    );
    Ok(())
}

fn examine(args: &Args) -> anyhow::Result<Report> {
    let rows = args.rows as usize;
    let block = Block::new(args.operation, rows)?;
    let policies = has_policies();
    let (together, kernels) = if policies {
        let (result, kernels) = record_kernels(|| bits(&block.rows(0, rows)?))?;
        (result?, kernels)
    } else {
        (bits(&block.rows(0, rows)?)?, Vec::new())
    };
    // "Alone" means under `default`, whatever the process's policy.
    let plain = if policies {
        Stream::with_policy(RowPolicy::DEFAULT)?
    } else {
        Stream::current()?
    };
    let mut rows_differing = 0;
    for (row, of_block) in together.iter().enumerate() {
        let alone = plain.scope(|| bits(&block.rows(row, row + 1)?))?;
        rows_differing += usize::from(&alone[0] != of_block);
    }
    Ok(Report {
        operation: block.describe(),
        rows,
        rows_differing,
        shared_bytes: block.shared.len() * 4,
        kernels,
        policy: policies
            .then(process_policy)
            .transpose()?
            .map(|policy| policy.to_string()),
    })
}

/// The rows, what they share (a matrix, or keys), and the values of attention.
struct Block {
    rows: usize,
    x: Array,
    shared: Array,
    values: Option<Array>,
}

impl Block {
    fn new(operation: Operation, rows: usize) -> Result<Self, Error> {
        let mut numbers = Numbers(1);
        let (x, shared, values) = match operation {
            Operation::Attention { keys } => {
                let keys = [1, KV_HEADS, keys as usize, HEAD_DIM];
                (
                    numbers.array(&[1, HEADS, rows, HEAD_DIM])?,
                    numbers.array(&keys)?,
                    Some(numbers.array(&keys)?),
                )
            }
            Operation::Matmul => (
                numbers.array(&[rows, 1024])?,
                numbers.array(&[512, 1024])?,
                None,
            ),
        };
        Ok(Self {
            rows,
            x,
            shared,
            values,
        })
    }

    /// The operation on a part of the rows, not evaluated. A row of attention sees the keys up to its own.
    fn rows(&self, from: usize, to: usize) -> Result<Array, Error> {
        let part = |array: &Array, axis: usize, range: std::ops::Range<usize>| {
            let whole = array.shape().iter().map(|&extent| 0..extent);
            let mut ranges: Vec<_> = whole.collect();
            ranges[axis] = range;
            slice(array, &ranges)
        };
        let Some(values) = &self.values else {
            let x = if to - from < self.rows {
                part(&self.x, 0, from..to)?
            } else {
                self.x.clone()
            };
            return matmul(&x, &transpose(&self.shared)?);
        };
        if to - from == self.rows {
            return attention(&self.x, &self.shared, values, 0.125, Mask::Causal, None);
        }
        let seen = self.shared.shape()[2] - self.rows + to;
        attention(
            &part(&self.x, 2, from..to)?,
            &part(&self.shared, 2, 0..seen)?,
            &part(values, 2, 0..seen)?,
            0.125,
            Mask::Causal,
            None,
        )
    }

    fn describe(&self) -> String {
        if self.values.is_some() {
            let keys = self.shared.shape()[2];
            format!("attention of {HEADS} heads over {KV_HEADS} of {HEAD_DIM} x {keys} keys, f32")
        } else {
            "M x 1024 times 512 x 1024, f32".to_owned()
        }
    }
}

/// The bits of each row: `[rows, n]` or `[1, heads, rows, n]`.
fn bits(array: &Array) -> Result<Vec<Vec<u32>>, Error> {
    let shape = array.shape().to_vec();
    let (rows, width) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let values = array.to_vec::<f32>()?;
    let mut out = vec![Vec::new(); rows];
    for (index, values) in values.chunks_exact(width).enumerate() {
        out[index % rows].extend(values.iter().map(|value| value.to_bits()));
    }
    Ok(out)
}

/// Knuth's linear congruential generator: the same numbers everywhere.
struct Numbers(u64);

impl Numbers {
    /// Uniform in [-1, 1).
    fn array(&mut self, shape: &[usize]) -> Result<Array, Error> {
        let values: Vec<f32> = (0..shape.iter().product())
            .map(|_: usize| {
                self.0 = self
                    .0
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (self.0 >> 40) as f32 / (1u32 << 23) as f32 - 1.0
            })
            .collect();
        Array::from_slice(&values, shape)
    }
}
