//! Measures long chains of products, arm by arm.
//!
//! Each arm is a chain of dependent products over weights that do not stay in a cache. Independent products in one
//! evaluation would overlap on the GPU and hide their cost. A single product per evaluation would measure how long the
//! GPU takes to wake up. See `docs/guide/measure.md`.

mod gap;
mod markdown;
mod plot;
mod schedule;
mod wide;
mod worker;

use std::collections::BTreeMap;
use std::str::FromStr;

use mlx_overlay::RowPolicy;
use serde::{Deserialize, Serialize};

use crate::machine::{Condition, Machine};
use crate::probe::spans;
use crate::product::Product;
use crate::saved::Layout;
use crate::{Error, Result};

pub use gap::{Gap, Limits, WORTH, gaps, limits};
pub use markdown::{markdown, summary};
pub use plot::plots;
pub use schedule::{Spread, Sustained, interleave, sustain};
pub use wide::{Wide, wide, wide_lines};
pub use worker::{ALTERNATIVE, DENSE, Local, Remote, Setup, Worker, serve};

/// The setup of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub products: Vec<Product>,
    /// Blocks and the rows of each: (1, m) for m rows.
    pub blocks: Vec<(usize, usize)>,
    /// The arms to compare.
    pub arms: Vec<Arm>,
    /// Whether to also measure the same product with dense weights.
    pub dense: bool,
    /// Rounds of B A A B.
    pub rounds: usize,
    /// How long a chain should take, in seconds.
    pub chain: f64,
    /// The minimum total size of the matrices that take turns, in bytes.
    pub rotated: u64,
    /// Seconds for which one chain is repeated at the end; 0 for none.
    pub sustained: f64,
    /// Compute only this many outputs of each product; all if `None`.
    pub outputs: Option<usize>,
}

impl Options {
    /// The products as they are computed, with notes on those that became identical to an earlier one.
    fn computed(&self) -> (Vec<Product>, Vec<String>) {
        let mut products: Vec<Product> = Vec::new();
        let mut merged = Vec::new();
        for whole in &self.products {
            let n = self.outputs.map_or(whole.n, |outputs| whole.n.min(outputs));
            let product = Product { n, ..whole.clone() };
            match products
                .iter()
                .find(|other| other.shape() == product.shape())
            {
                Some(other) => merged.push(format!("{whole} is then the same as {other}")),
                None => products.push(product),
            }
        }
        (products, merged)
    }
}

/// One arm of the comparison: a policy in one of the workers, or the other arrangement of its streamed kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// The name in reports.
    pub label: String,
    pub worker: usize,
    /// A policy's name, or [`ALTERNATIVE`].
    pub setting: String,
}

impl Arm {
    /// A policy in the first worker, with the policy's name.
    pub fn policy(policy: RowPolicy) -> Self {
        Self::named(policy.to_string())
    }

    /// The streamed kernels in the other of their two arrangements, in the first worker.
    pub fn alternative() -> Self {
        Self::named(ALTERNATIVE.to_owned())
    }

    /// All arms that can be compared here: the policies (`exact` last), then the other arrangement. Only
    /// `default` if the library has no policies.
    pub fn all() -> Vec<Self> {
        if !mlx_overlay::has_policies() {
            return vec![Self::policy(RowPolicy::DEFAULT)];
        }
        [
            RowPolicy::DEFAULT,
            RowPolicy::NARROW,
            RowPolicy::WIDE,
            RowPolicy::EXACT,
        ]
        .map(Self::policy)
        .into_iter()
        .chain([Self::alternative()])
        .collect()
    }

    fn named(setting: String) -> Self {
        Self {
            label: setting.clone(),
            worker: 0,
            setting,
        }
    }
}

impl FromStr for Arm {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if name == ALTERNATIVE {
            return Ok(Self::alternative());
        }
        let policy: RowPolicy = name.parse().map_err(|error| {
            Error::Invalid(format!(
                "{error}; an arm can also be {ALTERNATIVE}, the other arrangement of the streamed kernels"
            ))
        })?;
        Ok(Self::policy(policy))
    }
}

/// One measured arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The product as it was computed.
    pub product: Product,
    /// Blocks that use the same weights.
    pub batch: usize,
    /// Rows of each block.
    pub rows: usize,
    pub arm: String,
    /// Arms that take the same kernel and were not measured again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The kernel of its products; empty if it is not known.
    pub kernel: String,
    /// Products in the chain.
    pub length: usize,
    /// Matrices that took turns.
    pub copies: usize,
    /// Seconds per product.
    pub seconds: Spread,
    /// Bytes of weights, scales and biases, counted once.
    pub bytes: u64,
    /// These bytes divided by the median time, in GB/s. `None` on a simulated device.
    pub gb_per_s: Option<f64>,
}

impl Cell {
    /// The arms to which these times belong.
    pub fn arms(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.arm)
            .chain(&self.also)
            .map(String::as_str)
    }

    /// Whether the times belong to the arm with that name.
    pub fn is_of(&self, arm: &str) -> bool {
        self.arms().any(|name| name == arm)
    }
}

/// All measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The file format.
    pub format: Layout,
    /// The command that measured.
    pub command: String,
    /// The machine of each worker.
    pub machines: Vec<Machine>,
    /// A caveat about the times.
    pub caveat: Option<String>,
    /// Power and temperature before.
    pub before: Condition,
    /// Power and temperature after.
    pub after: Condition,
    /// Rounds of B A A B.
    pub rounds: usize,
    /// Number of outputs of each product that were computed, if not all.
    #[serde(default)]
    pub outputs: Option<usize>,
    /// Products that are the same as another one with so few outputs.
    #[serde(default)]
    pub merged: Vec<String>,
    /// The times.
    pub cells: Vec<Cell>,
    /// Comparisons that were omitted because both arms use the same kernel.
    pub refused: Vec<String>,
    /// The gaps that the order-preserving kernels recover. Empty on a simulated device.
    pub gaps: Vec<Gap>,
    /// The numbers of rows between which they pay, by product.
    pub limits: Vec<Limits>,
    /// The costs and savings of `wide`. Empty on a simulated device.
    #[serde(default)]
    pub wide: Vec<Wide>,
    /// The long run and its arm.
    pub sustained: Option<(String, Sustained)>,
}

/// Measures.
///
/// If [`ALTERNATIVE`] is an arm of this process, products of the same shape in other threads also use that arrangement
/// during the measurement. Afterwards the process's routing table is empty.
///
/// # Errors
/// The workers' errors; [`Error::SameKernel`] if all arms of all products with several rows use the same kernels, so
/// there is nothing to compare.
pub fn run(
    options: &Options,
    workers: &mut [Box<dyn Worker>],
    command: String,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    check(options, workers)?;
    let machines = workers
        .iter_mut()
        .map(|worker| worker.machine())
        .collect::<Result<Vec<_>>>()?;
    let simulated = machines.iter().any(|machine| machine.simulated);
    let before = Condition::now();
    let mut cells = Vec::new();
    let mut same: Vec<Same> = Vec::new();
    let mut compared = false;
    let (products, merged) = options.computed();
    let total = products.len() * options.blocks.len();
    for (i, product) in products.iter().enumerate() {
        for (j, &(batch, rows)) in options.blocks.iter().enumerate() {
            progress(i * options.blocks.len() + j, total);
            let measured = measure(options, workers, product, batch, rows, simulated)?;
            compared |= measured.compared;
            cells.extend(measured.cells);
            same.extend(measured.same);
        }
        for worker in workers.iter_mut() {
            worker.clear()?;
        }
    }
    let several = options.blocks.iter().any(|&(batch, rows)| batch * rows > 1);
    if several && options.arms.len() > 1 && !compared {
        // All arms are like this; report the first.
        return Err(same.into_iter().next().map_or_else(
            || Error::Invalid("there are no two arms to compare".to_owned()),
            Same::error,
        ));
    }
    let sustained = if options.sustained > 0.0 {
        long_run(options, workers)?
    } else {
        None
    };
    progress(total, total);
    let (gaps, wide) = if simulated {
        Default::default()
    } else {
        (gaps(&cells), wide(&cells))
    };
    Ok(Report {
        format: Layout,
        command,
        caveat: machines.iter().find_map(Machine::caveat).map(str::to_owned),
        machines,
        before,
        after: Condition::now(),
        rounds: options.rounds,
        outputs: options.outputs,
        merged,
        refused: refused(&same),
        limits: limits(&gaps),
        gaps,
        wide,
        cells,
        sustained,
    })
}

fn check(options: &Options, workers: &[Box<dyn Worker>]) -> Result<()> {
    let complaint = if options.products.is_empty() {
        "no product to measure"
    } else if options.blocks.iter().any(|&(b, m)| b == 0 || m == 0) || options.blocks.is_empty() {
        "no rows to measure"
    } else if options
        .blocks
        .iter()
        .any(|&(b, m)| b.saturating_mul(m) > 1 << 16)
    {
        "too many rows: at most 65536 in total"
    } else if options.arms.is_empty() || options.rounds == 0 {
        "no arm to measure, or no round"
    } else if options.arms.iter().any(|arm| arm.worker >= workers.len()) {
        "an arm has no worker"
    } else {
        return Ok(());
    };
    Err(Error::Invalid(complaint.to_owned()))
}

struct Measured {
    cells: Vec<Cell>,
    same: Vec<Same>,
    compared: bool,
}

/// Two arms that use the same kernel for a block; only one of them was measured.
struct Same {
    product: String,
    batch: usize,
    rows: usize,
    first: String,
    second: String,
    kernel: String,
}

impl Same {
    fn error(self) -> Error {
        Error::SameKernel {
            product: self.product,
            rows: self.batch * self.rows,
            first: self.first,
            second: self.second,
            kernel: self.kernel,
        }
    }
}

/// The arms that were not measured twice, one line for each product and pair of arms.
fn refused(same: &[Same]) -> Vec<String> {
    let mut pairs: Vec<Vec<&Same>> = Vec::new();
    for one in same {
        let pair = |of: &Same| {
            (&of.product, &of.first, &of.second) == (&one.product, &one.first, &one.second)
        };
        match pairs.iter_mut().find(|pairs| pair(pairs[0])) {
            Some(pairs) => pairs.push(one),
            None => pairs.push(vec![one]),
        }
    }
    let line = |pair: &Vec<&Same>| {
        let Same {
            product,
            first,
            second,
            ..
        } = pair[0];
        let (single, batches): (Vec<&Same>, Vec<&Same>) =
            pair.iter().partition(|same| same.batch == 1);
        let single: Vec<usize> = single.iter().map(|same| same.rows).collect();
        let mut blocks = vec![spans(&single)];
        blocks.retain(|spans| !spans.is_empty());
        blocks.extend(batches.iter().map(|s| format!("{} x {}", s.batch, s.rows)));
        let why = if second == ALTERNATIVE {
            ": there is no other arrangement"
        } else {
            ", so one of them was measured"
        };
        format!(
            "{product}, M = {}: `{first}` and `{second}` take the same kernel{why}",
            blocks.join(", ")
        )
    };
    pairs.iter().map(line).collect()
}

/// An arm whose chain has been made.
struct Prepared {
    label: String,
    also: Vec<String>,
    worker: usize,
    chain: usize,
    kernel: String,
}

fn measure(
    options: &Options,
    workers: &mut [Box<dyn Worker>],
    product: &Product,
    batch: usize,
    rows: usize,
    simulated: bool,
) -> Result<Measured> {
    // bf16, as in the worker.
    let bytes = product.bytes(2);
    let copies = (options.rotated.div_ceil(bytes).clamp(1, 256)) as usize;
    let mut setup = Setup {
        product: product.clone(),
        batch,
        rows,
        arm: String::new(),
        length: 2,
        copies,
    };
    setup.length = length(options, workers, &setup)?;
    let mut arms: Vec<Prepared> = Vec::new();
    let mut same = Vec::new();
    for arm in &options.arms {
        setup.arm.clone_from(&arm.setting);
        let (chain, kernel) = workers[arm.worker].prepare(&setup)?;
        let prepared = Prepared {
            label: arm.label.clone(),
            also: Vec::new(),
            worker: arm.worker,
            chain,
            kernel,
        };
        arms.push(prepared);
    }
    name_pristine(&mut arms, batch * rows);
    let mut kept: Vec<Prepared> = Vec::new();
    for arm in arms {
        let other = kept
            .iter_mut()
            .find(|other| other.kernel == arm.kernel && !arm.kernel.is_empty());
        let Some(other) = other else {
            kept.push(arm);
            continue;
        };
        other.also.push(arm.label.clone());
        // One row is a control, not a comparison.
        if batch * rows > 1 {
            same.push(Same {
                product: product.to_string(),
                batch,
                rows,
                first: other.label.clone(),
                second: arm.label,
                kernel: arm.kernel,
            });
        }
    }
    let compared = batch * rows > 1 && kept.len() > 1;
    if options.dense && batch == 1 {
        setup.arm = DENSE.to_owned();
        let (chain, kernel) = workers[0].prepare(&setup)?;
        kept.push(Prepared {
            label: DENSE.to_owned(),
            also: Vec::new(),
            worker: 0,
            chain,
            kernel,
        });
    }
    let times = interleave(kept.len(), options.rounds, |arm| {
        let arm = &kept[arm];
        workers[arm.worker].run(arm.chain)
    })?;
    let mut cells = Vec::new();
    for (arm, times) in kept.into_iter().zip(times) {
        let Some(seconds) = Spread::of(&times, setup.length) else {
            continue;
        };
        let bytes = if arm.label == DENSE {
            2 * (product.n * product.k) as u64
        } else {
            bytes
        };
        cells.push(Cell {
            product: product.clone(),
            batch,
            rows,
            arm: arm.label,
            also: arm.also,
            kernel: arm.kernel,
            length: setup.length,
            copies,
            seconds,
            bytes,
            gb_per_s: (!simulated).then(|| bytes as f64 / seconds.median / 1e9),
        });
    }
    Ok(Measured {
        cells,
        same,
        compared,
    })
}

/// The number of products with which a chain lasts as long as it should.
fn length(options: &Options, workers: &mut [Box<dyn Worker>], setup: &Setup) -> Result<usize> {
    let Some(arm) = options.arms.first() else {
        return Ok(setup.length);
    };
    let trial = Setup {
        arm: arm.setting.clone(),
        ..setup.clone()
    };
    let worker = &mut workers[arm.worker];
    let (chain, _) = worker.prepare(&trial)?;
    worker.run(chain)?;
    let seconds = worker.run(chain)? / trial.length as f64;
    Ok(((options.chain / seconds.max(1e-9)) as usize).clamp(2, 512))
}

/// Pristine MLX does not report its kernels. It uses those of the patched library's `default`, except that its tiles for
/// wide affine products have at most 5 rows, the overlay's 8 (patch affine-tile-cap).
fn name_pristine(arms: &mut [Prepared], rows: usize) {
    let default = arms
        .iter()
        .find(|arm| !arm.kernel.is_empty())
        .map(|arm| arm.kernel.clone());
    let Some(default) = default else { return };
    let kernel = match default.split_once("_nv_") {
        Some((head, tail)) if head.starts_with("affine_qmv_wide") => {
            let rest = tail.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{head}_nv_{}{rest}", rows.div_ceil(rows.div_ceil(5)))
        }
        _ => default,
    };
    for arm in arms.iter_mut().filter(|arm| arm.kernel.is_empty()) {
        arm.kernel.clone_from(&kernel);
    }
}

/// Runs the first product with several rows for the requested time, under the last arm that is not the other arrangement.
fn long_run(
    options: &Options,
    workers: &mut [Box<dyn Worker>],
) -> Result<Option<(String, Sustained)>> {
    let (products, _) = options.computed();
    let is_policy = |arm: &&Arm| arm.setting != ALTERNATIVE;
    let arm = options.arms.iter().rfind(is_policy).or(options.arms.last());
    let (Some(product), Some(arm)) = (products.into_iter().next(), arm) else {
        return Ok(None);
    };
    let rows = options.blocks.iter().map(|&(_, rows)| rows);
    let rows = rows.filter(|rows| *rows > 1).min().unwrap_or(1);
    let mut setup = Setup {
        copies: (options.rotated.div_ceil(product.bytes(2)).clamp(1, 256)) as usize,
        product,
        batch: 1,
        rows,
        arm: arm.setting.clone(),
        length: 2,
    };
    setup.length = length(options, workers, &setup)?;
    let worker = &mut workers[arm.worker];
    let (chain, _) = worker.prepare(&setup)?;
    let sustained = sustain(options.sustained, || worker.run(chain))?;
    worker.clear()?;
    let what = format!("{}, M = {rows}, {}", setup.product, arm.label);
    Ok(sustained.map(|sustained| (what, sustained)))
}

/// Cells by product and number of rows, in the order of measurement.
pub(crate) fn grouped(cells: &[Cell]) -> BTreeMap<(usize, usize, usize), Vec<&Cell>> {
    let mut order: Vec<String> = Vec::new();
    let mut groups: BTreeMap<(usize, usize, usize), Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        let name = cell.product.to_string();
        let at = order.iter().position(|known| *known == name);
        let at = at.unwrap_or_else(|| {
            order.push(name);
            order.len() - 1
        });
        groups
            .entry((at, cell.batch, cell.rows))
            .or_default()
            .push(cell);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(label: &str, kernel: &str) -> Prepared {
        Prepared {
            label: label.to_owned(),
            also: Vec::new(),
            worker: 0,
            chain: 0,
            kernel: kernel.to_owned(),
        }
    }

    #[test]
    fn pristine_kernels_follow_from_the_patched_ones() {
        let named = |kernel: &str, rows| {
            let mut arms = [arm("patched", kernel), arm("pristine", "")];
            name_pristine(&mut arms, rows);
            arms[1].kernel.clone()
        };
        let wide = |tile| format!("affine_qmv_wide_bfloat16_t_gs_64_b_4_nv_{tile}_kl_8_batch_0");
        for (rows, patched, pristine) in [(5, 5, 5), (6, 6, 3), (8, 8, 4), (16, 8, 4), (11, 6, 4)] {
            assert_eq!(named(&wide(patched), rows), wide(pristine), "{rows}");
        }
        // Other modes have upstream's tiles.
        let fp = "mxfp4_qmv_wide_bfloat16_t_gs_32_b_4_nv_5_kl_16_batch_0";
        assert_eq!(named(fp, 9), fp);
        assert_eq!(named("affine_qmv_fast_x", 8), "affine_qmv_fast_x");
    }
}
