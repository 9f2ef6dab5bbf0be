//! The errors of each policy's results, compared with float64.

use std::collections::HashMap;
use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use dispatch_plan::{Dtype, Policy};
use metal_sim::Device;
use mlx_prefix::Stamp;

use crate::case::{Case, Kind};
use crate::driver::{Driver, How};
use crate::identity::{ARCHITECTURE, tolerance};

/// One row; one pass of the streamed and the wide kernels; two and four; above every batch limit.
const ROWS: [u32; 4] = [1, 8, 16, 40];

/// The largest errors by policy, type and number of rows, relative to the sum of the terms' magnitudes.
#[derive(Debug, Default)]
pub struct Accuracy {
    errors: HashMap<(Dtype, Policy, u32), f64>,
    outputs: u64,
}

impl Accuracy {
    /// Evaluates products of 1, 8, 16 and 40 rows under every policy without a limit of rows: these bits and types,
    /// groups of 64, a K that takes `qmv_fast` and one with a tail.
    ///
    /// # Errors
    /// The driver's errors.
    pub fn measure(driver: &Driver, products: &[(u32, Dtype)]) -> Result<Self> {
        let cases: Vec<Case> = products
            .iter()
            .flat_map(|&(bits, dtype)| {
                [Kind::Fast, Kind::Tail]
                    .into_iter()
                    .filter_map(move |kind| {
                        Some(Case {
                            dtype,
                            ..Case::new(bits, 64, kind, ROWS)?
                        })
                    })
            })
            .collect();
        let mut found = Self::default();
        for policy in Policy::KINDS.iter().map(|policy| policy.all()) {
            let how = How {
                device: Device::new().architecture(ARCHITECTURE.parse()?),
                policy,
                metallib: None,
            };
            for (case, answer) in cases.iter().zip(driver.run(&how, &cases)?) {
                ensure!(
                    answer.together.len() == ROWS.len(),
                    "{case}: answers are missing"
                );
                for together in answer.together {
                    let worst = found
                        .errors
                        .entry((case.dtype, policy, together.m))
                        .or_default();
                    *worst = worst.max(together.error);
                    found.outputs += together.outputs;
                }
            }
        }
        Ok(found)
    }

    /// # Errors
    /// The first error that is larger than the type explains, or a zero error that must not be zero.
    pub fn check(&self) -> Result<()> {
        for ((dtype, policy, m), &error) in &self.errors {
            let most = tolerance(*dtype);
            ensure!(
                error > 0.0 && error <= most,
                "{policy}, {}, M = {m}: error {error:e}, at most {most:e} expected",
                dtype.name()
            );
        }
        Ok(())
    }

    /// The page, in Markdown.
    ///
    /// # Errors
    /// If a policy is missing.
    pub fn render(&self, stamp: &Stamp, command: &str) -> Result<String> {
        // Writing to a String does not fail.
        let mut page = format!(
            "# Every policy is as accurate as its type allows\n\n\
             MLX {}, tree `{}`, on the simulated `{ARCHITECTURE}`. Written by `{command}`: all bits, \
             groups of 64, N = 16, a K that takes `qmv_fast` and one that takes `qmv` with a tail, {} \
             outputs. Each figure is the largest difference from the float64 product, as a part of the \
             sum of its terms' magnitudes.\n\n\
             | type | rows |",
            stamp.version, stamp.final_tree, self.outputs
        );
        for policy in Policy::KINDS {
            let _ = write!(page, " `{}` |", policy.all());
        }
        page += "\n|---|--:|";
        page += &"--:|".repeat(Policy::KINDS.len());
        for &dtype in Dtype::ALL {
            for m in ROWS {
                let _ = write!(page, "\n| {} | {m} |", dtype.name());
                for &policy in Policy::KINDS {
                    let error = self.errors.get(&(dtype, policy.all(), m));
                    let error = error.context("not every policy and type was measured")?;
                    let _ = write!(page, " {error:.2e} |");
                }
            }
        }
        page.push('\n');
        Ok(page)
    }
}
