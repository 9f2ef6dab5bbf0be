//! `cargo xtask plan --attention`: how a block of attention is split into groups.

use anyhow::Result;
use clap::value_parser;
use cli::println;
use dispatch_plan::{Architecture, Attention, Dtype, Policy};
use serde::Serialize;

use super::{plain_table, usage};

/// The sizes of a block of attention.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "With --attention")]
pub(super) struct Sizes {
    /// Heads of the queries
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u32).range(1..1 << 16))]
    heads: u32,
    /// Heads of keys and values
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..1 << 16))]
    kv_heads: u32,
    /// Dimensions of a query and key
    #[arg(long, default_value_t = 128, value_parser = value_parser!(u32).range(1..1 << 16))]
    head_dim: u32,
    /// Dimensions of a value [default: those of a key]
    #[arg(long, value_parser = value_parser!(u32).range(1..1 << 16))]
    value_dim: Option<u32>,
    /// Keys that the last row sees
    #[arg(long, default_value_t = 4096, value_parser = value_parser!(u32).range(1..1 << 31))]
    keys: u32,
    /// Every row sees all keys, not only those up to its own position
    #[arg(long)]
    not_causal: bool,
    /// Use an array mask
    #[arg(long)]
    mask: bool,
    /// Use sinks
    #[arg(long)]
    sinks: bool,
}

/// One line of `--json`.
#[derive(Serialize)]
struct Line {
    architecture: String,
    policy: String,
    first: u32,
    rows: u32,
    keys: u32,
    path: &'static str,
    blocks: u32,
    dispatches: u32,
    kernel: Option<String>,
    identical: bool,
}

/// Prints the kernels for a block of that many rows, for each device and policy.
pub(super) fn run(
    sizes: &Sizes,
    architectures: &[Architecture],
    policies: &[Policy],
    dtype: Dtype,
    rows: u32,
    json: bool,
) -> Result<()> {
    let mut lines = Vec::new();
    for &architecture in architectures {
        for &policy in policies {
            let problem = Attention {
                architecture,
                dtype,
                heads: sizes.heads,
                kv_heads: sizes.kv_heads,
                head_dim: sizes.head_dim,
                value_dim: sizes.value_dim.unwrap_or(sizes.head_dim),
                keys: sizes.keys,
                rows,
                causal: !sizes.not_causal && !sizes.mask,
                mask: sizes.mask,
                sinks: sizes.sinks,
            };
            let plan = usage(dispatch_plan::attention(&problem, policy))?;
            lines.extend(plan.groups.into_iter().map(|group| Line {
                architecture: architecture.to_string(),
                policy: policy.to_string(),
                first: group.first,
                rows: group.rows,
                keys: group.keys,
                path: group.way.name(),
                blocks: group.blocks,
                dispatches: group.dispatches,
                kernel: group.kernel,
                identical: plan.identical,
            }));
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&lines)?);
        return Ok(());
    }
    println!(
        "attention of {rows} rows, {} heads over {} of keys, {} numbers, {} keys, {dtype}",
        sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.keys
    );
    let mut table = plain_table();
    table.set_header([
        "GPU",
        "policy",
        "rows",
        "keys",
        "path",
        "blocks",
        "dispatches",
        "bits of a row alone",
        "kernel",
    ]);
    for line in lines {
        let last = line.first + line.rows - 1;
        table.add_row([
            line.architecture,
            line.policy,
            if line.rows == 1 {
                line.first.to_string()
            } else {
                format!("{}-{last}", line.first)
            },
            line.keys.to_string(),
            line.path.to_owned(),
            line.blocks.to_string(),
            line.dispatches.to_string(),
            if line.identical { "yes" } else { "no" }.to_owned(),
            line.kernel.unwrap_or_default(),
        ]);
    }
    println!("{table}");
    Ok(())
}
