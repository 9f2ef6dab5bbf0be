//! `cargo xtask plan --dense`: the kernels of a dense product as its rows grow.

use anyhow::Result;
use cli::println;
use dispatch_plan::{Architecture, Dense, Policy};
use serde::Serialize;

use super::{plain_table, usage};

/// One line of `--json`.
#[derive(Serialize)]
struct Line {
    architecture: String,
    policy: String,
    m: u32,
    path: &'static str,
    kernel: String,
    tile: u32,
    dispatches: u32,
    weight_passes: u32,
    identical: bool,
}

/// Prints the kernels of products with 1, 2 and so on up to `rows` rows; `problem` has the other sizes.
pub(super) fn run(
    problem: &Dense,
    architectures: &[Architecture],
    policies: &[Policy],
    rows: u32,
    json: bool,
) -> Result<()> {
    let mut lines = Vec::new();
    for &architecture in architectures {
        for &policy in policies {
            for m in 1..=rows {
                let problem = Dense {
                    architecture,
                    m,
                    ..*problem
                };
                let plan = usage(dispatch_plan::dense(&problem, policy))?;
                lines.push(Line {
                    architecture: architecture.to_string(),
                    policy: policy.to_string(),
                    m,
                    path: plan.way.name(),
                    kernel: plan.kernel,
                    tile: plan.tile,
                    dispatches: plan.dispatches,
                    weight_passes: plan.weight_passes,
                    identical: plan.identical,
                });
            }
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&lines)?);
        return Ok(());
    }
    println!(
        "dense {}, N = {}, K = {}",
        problem.dtype, problem.n, problem.k
    );
    let mut table = plain_table();
    table.set_header([
        "GPU",
        "policy",
        "M",
        "path",
        "tile",
        "dispatches",
        "passes",
        "bits of M = 1",
        "kernel",
    ]);
    // Nothing is printed about passes if MLX chooses among its own kernels.
    let known = |number: u32| {
        if number == 0 {
            "-".to_owned()
        } else {
            number.to_string()
        }
    };
    for line in lines {
        table.add_row([
            line.architecture,
            line.policy,
            line.m.to_string(),
            line.path.to_owned(),
            known(line.tile),
            line.dispatches.to_string(),
            known(line.weight_passes),
            if line.identical { "yes" } else { "no" }.to_owned(),
            line.kernel,
        ]);
    }
    println!("{table}");
    Ok(())
}
