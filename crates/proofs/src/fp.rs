//! The cases for floating-point weights: mxfp4, mxfp8 and nvfp4.

use std::collections::BTreeMap;

use anyhow::Result;
use dispatch_plan::{Dtype, Mode, Policy};
use metal_sim::{Contraction, Reduction};

use crate::case::{Case, Kind};
use crate::driver::Driver;
use crate::identity::{Blocks, Group, MOST_ROWS, Tally, Tier, batch_limit};

/// A mode, and whether its weights have a global scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloatFormat {
    pub mode: Mode,
    /// Only nvfp4 has one, and only products that quantize x accept it.
    pub global_scale: bool,
}

impl FloatFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::plain(Mode::Mxfp4),
        Self::plain(Mode::Mxfp8),
        Self::plain(Mode::Nvfp4),
        Self {
            mode: Mode::Nvfp4,
            global_scale: true,
        },
    ];

    const fn plain(mode: Mode) -> Self {
        Self {
            mode,
            global_scale: false,
        }
    }

    /// An unbatched float32 case of 16 outputs, or `None` if the mode is affine.
    pub fn case(self, kind: Kind, rows: impl IntoIterator<Item = u32>) -> Option<Case> {
        let format = self.mode.fixed()?;
        Some(Case {
            mode: self.mode,
            global_scale: self.global_scale,
            ..Case::new(format.bits(), format.group_size(), kind, rows)?
        })
    }

    /// The numbers of matrices that a product can have: `qqmm` accepts one.
    fn batches(self) -> &'static [u32] {
        if self.global_scale { &[1] } else { &[1, 2] }
    }
}

/// The products of the sweep of [`Tier::Full`] as MLX computes them by itself. They show what the comparison can
/// detect.
///
/// None has a global scale, because without a policy such products go row by row.
pub fn control(seeds: u64) -> Group {
    let formats = FloatFormat::ALL
        .iter()
        .filter(|format| !format.global_scale);
    Group {
        contraction: Contraction::Fused,
        reduction: Reduction::Butterfly,
        policy: Policy::DEFAULT,
        cases: formats.flat_map(|&format| sweep(format, seeds)).collect(),
    }
}

/// Outputs that differ in a group, by mode and type.
///
/// # Errors
/// The driver's errors.
pub fn differing(driver: &Driver, group: &Group) -> Result<BTreeMap<[&'static str; 2], Tally>> {
    let mut tallies: BTreeMap<_, Tally> = BTreeMap::new();
    for (case, answer) in group
        .cases
        .iter()
        .zip(driver.run(&group.how(), &group.cases)?)
    {
        let tally = tallies
            .entry([case.mode.name(), case.dtype.name()])
            .or_default();
        for together in answer.together {
            *tally += Tally {
                products: 1,
                outputs: together.outputs,
                differing: together.differing,
                pristine_rows: 0,
            };
        }
    }
    Ok(tallies)
}

/// Eight and five rows of every type and kind of K, over seeds.
fn sweep(format: FloatFormat, seeds: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in Kind::ALL {
        for &dtype in Dtype::ALL {
            for seed in 1..=seeds {
                cases.extend(format.case(kind, [5, 8]).map(|case| Case {
                    dtype,
                    seed,
                    ..case
                }));
            }
        }
    }
    cases
}

/// Number of seeds of the sweep: 16-bit outputs differ rarely, so one seed shows little.
pub const SEEDS: u64 = 40;

/// The groups of a tier, for the fp modes.
pub(crate) fn groups(tier: Tier) -> Result<Vec<Group>> {
    match tier {
        Tier::Core => core(),
        Tier::Full => full(),
    }
}

fn core() -> Result<Vec<Group>> {
    let mut blocks = Blocks::default();
    for kind in Kind::ALL {
        for format in FloatFormat::ALL {
            blocks.exact.extend(format.case(kind, [2, 8]));
            let Some(base) = format.case(kind, [8]) else {
                continue;
            };
            for dtype in [Dtype::Float16, Dtype::Bfloat16] {
                blocks.exact.push(Case {
                    dtype,
                    ..base.clone()
                });
            }
            for n in [13, 5] {
                blocks.exact.push(Case { n, ..base.clone() });
            }
            for &batch in format.batches() {
                blocks.exact.push(Case {
                    batch,
                    seed: 2,
                    ..base.clone()
                });
            }
            for &dtype in Dtype::ALL {
                let case = format.case(kind, 2..=Policy::BLOCK_ROWS);
                blocks.wide.extend(case.map(|case| Case { dtype, ..case }));
            }
            blocks.bases.push(base);
        }
        let nvfp4 = FloatFormat::plain(Mode::Nvfp4);
        if let Some(base) = nvfp4.case(kind, []) {
            let limit = batch_limit(&base)?;
            blocks
                .exact
                .extend(nvfp4.case(kind, 3..=Policy::BLOCK_ROWS));
            let beyond = [17, limit, 41, MOST_ROWS];
            blocks.beyond.extend(nvfp4.case(kind, beyond));
        }
    }
    blocks.add_other_arrangements(&[Dtype::Float32]);
    Ok(blocks.core())
}

fn full() -> Result<Vec<Group>> {
    let mut blocks = Blocks::default();
    let mut seeds = Vec::new();
    for format in FloatFormat::ALL {
        seeds.extend(sweep(format, SEEDS));
        for kind in Kind::ALL {
            let Some(base) = format.case(kind, []) else {
                continue;
            };
            for &dtype in Dtype::ALL {
                let base = Case {
                    dtype,
                    ..base.clone()
                };
                let limit = batch_limit(&base)?;
                blocks.add(&base, limit, format.batches());
            }
        }
    }
    blocks.add_other_arrangements(Dtype::ALL);
    let mut groups = blocks.full();
    groups.push(Group {
        contraction: Contraction::Fused,
        reduction: Reduction::Butterfly,
        policy: Policy::EXACT,
        cases: seeds,
    });
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use dispatch_plan::PolicyKind;

    use super::*;

    #[test]
    fn kinds_of_k_take_the_kernels_they_are_named_for() {
        let architecture = "applegpu_g15d".parse().unwrap();
        for format in FloatFormat::ALL {
            for kind in Kind::ALL {
                let case = format.case(kind, [1]).unwrap();
                let plan = case.plan(architecture, Policy::EXACT, 1).unwrap();
                let stem = format!("{}_float_gs_", case.function(PolicyKind::Exact, 1));
                assert!(plan.kernel.starts_with(&stem), "{case}: {}", plan.kernel);
            }
        }
    }
}
