//! The main comparison: every row of several must have the same bits as alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use dispatch_plan::{Architecture, Dtype, Mode, Path, Policy, PolicyKind};
use metal_sim::{Contraction, Device, Reduction};

use crate::case::{BITS, Case, GROUPS, Kind};
use crate::driver::{Answer, Driver, How, products};

/// The device of the comparison: the one whose default differs most, an Ultra of generation 15.
pub(crate) const ARCHITECTURE: &str = "applegpu_g15d";
/// `exact:all` is tried up to this number of rows.
pub(crate) const MOST_ROWS: u32 = 64;
/// Cases per process.
const SHARD: usize = 24;

/// How many cases to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// For CI: every value of every dimension at least once, most at 4 bits.
    ///
    /// All bits and kinds of K as float32 with groups of 64, at M = 2 and 8; the other groups, types, batches, numbers
    /// of outputs, orders of `simd_sum` and the split contraction at 4 bits and M = 8; all of M = 2 to 16, and
    /// `exact:all` from 17 to 64, at 4 bits, float32, groups of 64; `wide` at M = 2 to 16, 4 bits, each type; and the
    /// one product that a kernel compiler is known to have miscompiled: 6 bits, groups of 32, M = 6, a tail. Single
    /// products of `exact` in float32 in both arrangements of the streamed kernels.
    Core,
    /// All cases.
    ///
    /// Bits x groups x types x kinds of K x N (16, 13, 5) x batches (1, 2) x seeds (1 to 3 for
    /// float32, else 1) x contractions x orders of `simd_sum`; `exact` at every M from 2 to 16;
    /// `exact:all` at every M from 2 to 64 for the 16 outputs of seed 1, unbatched, else at the batch limit, 41
    /// and 64; `wide` at M = 2, 5, 6, 8, 11 and 16. Single products of `exact` in both arrangements.
    Full,
}

/// Cases that share their device and policy.
#[derive(Debug, Clone)]
pub struct Group {
    /// How a product followed by a sum is contracted.
    pub contraction: Contraction,
    /// The order of `simd_sum`.
    pub reduction: Reduction,
    pub policy: Policy,
    pub cases: Vec<Case>,
}

impl Group {
    /// The device and policy.
    ///
    /// # Panics
    /// Never: `ARCHITECTURE` is a valid name.
    pub fn how(&self) -> How {
        let device = Device::new()
            .contraction(self.contraction)
            .reduction(self.reduction)
            .host_threads(1);
        How {
            device: match ARCHITECTURE.parse() {
                Ok(architecture) => device.architecture(architecture),
                Err(_) => device,
            },
            policy: self.policy,
            metallib: None,
        }
    }
}

pub(crate) fn architecture() -> Result<Architecture> {
    Ok(ARCHITECTURE.parse()?)
}

/// The first number of rows that takes a matrix kernel by default.
pub(crate) fn batch_limit(case: &Case) -> Result<u32> {
    let architecture = architecture()?;
    for m in 2..MOST_ROWS {
        let path = case.plan(architecture, Policy::DEFAULT, m)?.path;
        if path == Path::Matrix {
            return Ok(m);
        }
    }
    Ok(MOST_ROWS)
}

/// The groups of a tier, for affine weights.
pub(crate) fn groups(tier: Tier) -> Result<Vec<Group>> {
    match tier {
        Tier::Core => core(),
        Tier::Full => full(),
    }
}

fn core() -> Result<Vec<Group>> {
    let mut blocks = Blocks::default();
    for kind in Kind::ALL {
        for &bits in BITS {
            blocks.exact.extend(Case::new(bits, 64, kind, [2, 8]));
        }
        let Some(base) = Case::new(4, 64, kind, [8]) else {
            continue;
        };
        for group in [32, 128] {
            blocks.exact.extend(Case::new(4, group, kind, [8]));
        }
        for dtype in [Dtype::Float16, Dtype::Bfloat16] {
            blocks.exact.push(Case {
                dtype,
                ..base.clone()
            });
        }
        for n in [13, 5] {
            blocks.exact.push(Case { n, ..base.clone() });
        }
        blocks.exact.push(Case {
            batch: 2,
            ..base.clone()
        });
        blocks.exact.push(Case {
            seed: 2,
            ..base.clone()
        });
        let all = 2..=Policy::BLOCK_ROWS;
        blocks.exact.extend(Case::new(4, 64, kind, all.clone()));
        let limit = batch_limit(&base)?;
        let beyond = [8, 17, limit, 41, MOST_ROWS];
        blocks.beyond.extend(Case::new(4, 64, kind, beyond));
        for &dtype in Dtype::ALL {
            let case = Case::new(4, 64, kind, all.clone());
            blocks.wide.extend(case.map(|case| Case { dtype, ..case }));
        }
        // Several threadgroups of the other arrangement, the last one only partly filled with outputs; and its 16-bit
        // types.
        let many = Case {
            n: 45,
            ..base.clone()
        };
        blocks.exact.extend(many.in_the_other_arrangement());
        for dtype in [Dtype::Float16, Dtype::Bfloat16] {
            let other = base.in_the_other_arrangement();
            blocks
                .exact
                .extend(other.map(|case| Case { dtype, ..case }));
        }
        blocks.bases.push(base);
    }
    blocks.exact.extend(Case::new(6, 32, Kind::Tail, [6]));
    blocks.add_other_arrangements(&[Dtype::Float32]);
    Ok(blocks.core())
}

/// The cases of a tier, by policy.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Under `exact`: up to 16 rows.
    pub(crate) exact: Vec<Case>,
    /// Under `exact:all`: more rows too.
    pub(crate) beyond: Vec<Case>,
    /// Under `wide`.
    pub(crate) wide: Vec<Case>,
    /// One of each kind of K.
    pub(crate) bases: Vec<Case>,
}

impl Blocks {
    /// Adds cases of single products under `exact` in the other arrangement of their kernels, for these types.
    pub(crate) fn add_other_arrangements(&mut self, dtypes: &[Dtype]) {
        for cases in [&mut self.exact, &mut self.beyond, &mut self.bases] {
            let others: Vec<_> = cases
                .iter()
                .filter(|case| dtypes.contains(&case.dtype) && !case.alternative)
                .filter_map(Case::in_the_other_arrangement)
                .collect();
            cases.extend(others);
        }
    }

    /// The core tier's cases on the default device, and one of each kind of K under each other setting of it.
    pub(crate) fn core(self) -> Vec<Group> {
        use Contraction::{Fused, Split};
        use Reduction::{Butterfly, Neighbours, Sequential};
        let group = |contraction, reduction, policy, cases| Group {
            contraction,
            reduction,
            policy,
            cases,
        };
        vec![
            group(Fused, Butterfly, Policy::EXACT, self.exact),
            group(Fused, Butterfly, Policy::EXACT.all(), self.beyond),
            group(Fused, Butterfly, Policy::WIDE, self.wide),
            group(Fused, Neighbours, Policy::EXACT, self.bases.clone()),
            group(Fused, Sequential, Policy::EXACT, self.bases.clone()),
            group(Split, Butterfly, Policy::EXACT, self.bases),
        ]
    }

    /// All cases under both contractions and all orders of `simd_sum`.
    pub(crate) fn full(&self) -> Vec<Group> {
        let mut groups = Vec::new();
        for contraction in [Contraction::Fused, Contraction::Split] {
            for reduction in [
                Reduction::Butterfly,
                Reduction::Neighbours,
                Reduction::Sequential,
            ] {
                for (policy, cases) in [
                    (Policy::EXACT, &self.exact),
                    (Policy::EXACT.all(), &self.beyond),
                    (Policy::WIDE, &self.wide),
                ] {
                    groups.push(Group {
                        contraction,
                        reduction,
                        policy,
                        cases: cases.clone(),
                    });
                }
            }
        }
        groups
    }

    /// Adds the full tier's cases for one kind of weights, K and type, as described at [`Tier::Full`].
    pub(crate) fn add(&mut self, base: &Case, limit: u32, batches: &[u32]) {
        let seeds = if base.dtype == Dtype::Float32 { 3 } else { 1 };
        for seed in 1..=seeds {
            for &batch in batches {
                for n in [16, 13, 5] {
                    let case = Case {
                        seed,
                        batch,
                        n,
                        alone: MOST_ROWS,
                        ..base.clone()
                    };
                    let rows = if (n, batch, seed) == (16, 1, 1) {
                        (2..=MOST_ROWS).collect()
                    } else {
                        vec![limit, 41, MOST_ROWS]
                    };
                    self.beyond.push(Case {
                        rows,
                        ..case.clone()
                    });
                    let case = Case {
                        alone: Policy::BLOCK_ROWS,
                        ..case
                    };
                    self.wide.push(Case {
                        // The tiles of one, two, three and four passes.
                        rows: vec![2, 5, 6, 8, 11, 16],
                        ..case.clone()
                    });
                    let rows = (2..=Policy::BLOCK_ROWS).collect();
                    self.exact.push(Case { rows, ..case });
                }
            }
        }
    }
}

fn full() -> Result<Vec<Group>> {
    let mut blocks = Blocks::default();
    for &bits in BITS {
        for &group in GROUPS {
            for kind in Kind::ALL {
                let Some(base) = Case::new(bits, group, kind, []) else {
                    continue;
                };
                let limit = batch_limit(&base)?;
                for &dtype in Dtype::ALL {
                    let base = Case {
                        dtype,
                        ..base.clone()
                    };
                    blocks.add(&base, limit, &[1, 2]);
                }
            }
        }
    }
    blocks.add_other_arrangements(Dtype::ALL);
    Ok(blocks.full())
}

/// The kernels that a group's products take, to be compiled in advance.
///
/// # Errors
/// The plan's errors.
pub fn kernels(group: &Group) -> Result<BTreeSet<String>> {
    let architecture = architecture()?;
    let mut names = BTreeSet::new();
    for case in &group.cases {
        for &m in [1].iter().chain(&case.rows) {
            names.insert(case.plan(architecture, group.policy, m)?.kernel);
        }
    }
    Ok(names)
}

/// Counts of comparisons.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Products of several rows.
    pub products: u64,
    pub outputs: u64,
    /// Outputs with other bits than alone.
    pub differing: u64,
    /// Rows whose bits were also compared with pristine MLX.
    pub pristine_rows: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.products += other.products;
        self.outputs += other.outputs;
        self.differing += other.differing;
        self.pristine_rows += other.pristine_rows;
    }
}

/// The error that a type's last place causes, with some margin, relative to the sum of the terms' magnitudes.
///
/// For float32 it is seven units of 2^-24. There are up to 43 roundings between a term and its sum (K = 384, lanes
/// added one after another), and they seldom have the same sign: MLX's one-row kernels reach 2.5e-7 over all cases.
pub fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float32 => 4e-7,
        Dtype::Float16 => 1e-3,
        Dtype::Bfloat16 => 8e-3,
    }
}

/// Compares an answer with the plan, the rule of [`Case::function`], the accuracy of the type, and the rows alone. Adds
/// what is wrong to `findings`.
///
/// # Errors
/// The plan's errors.
pub fn check(
    case: &Case,
    policy: Policy,
    answer: &Answer,
    findings: &mut Vec<String>,
) -> Result<Tally> {
    let architecture = architecture()?;
    let mut complain =
        |m: u32, what: String| findings.push(format!("{policy}: {case} at M = {m}: {what}"));
    let tolerance = tolerance(case.dtype);
    let mut tally = Tally::default();
    let alone = (1, &answer.alone.kernels, answer.alone.error);
    let together = answer.together.iter().map(|t| (t.m, &t.kernels, t.error));
    for (m, kernels, error) in std::iter::once(alone).chain(together) {
        let expected = case.plan(architecture, policy, m)?.kernel;
        let stem = format!(
            "{}_{}_gs_",
            case.function(policy.kind(), m),
            case.type_name()
        );
        let kernels = products(kernels);
        if kernels.len() != 1
            || !kernels.contains_key(expected.as_str())
            || !expected.starts_with(&stem)
        {
            complain(
                m,
                format!("expected {expected} (of {stem}), found {kernels:?}"),
            );
        }
        if error > tolerance {
            complain(
                m,
                format!("error {error:e}, at most {tolerance:e} expected"),
            );
        }
    }
    let rows: Vec<u32> = answer.together.iter().map(|t| t.m).collect();
    if rows != case.rows {
        complain(0, format!("answers for {rows:?}"));
    }
    for together in &answer.together {
        let outputs = u64::from(together.m * case.n * case.batch);
        if together.outputs != outputs {
            complain(
                together.m,
                format!("{} outputs of {outputs}", together.outputs),
            );
        }
        if together.differing > 0 {
            complain(
                together.m,
                format!("{} of {outputs} outputs differ", together.differing),
            );
        }
        tally += Tally {
            products: 1,
            outputs: together.outputs,
            differing: together.differing,
            pristine_rows: 0,
        };
    }
    Ok(tally)
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// By policy, contraction and order of `simd_sum`.
    pub by_setting: BTreeMap<(String, &'static str, &'static str), Tally>,
    /// By bits or mode, kind of K and policy.
    pub by_kind: BTreeMap<(String, Kind, String), Tally>,
    /// By type and group size.
    pub by_type: BTreeMap<(&'static str, u32), Tally>,
    /// The results of MLX's own choice, by mode and type, if requested: they show that the comparison can fail.
    pub control: BTreeMap<[&'static str; 2], Tally>,
    /// All deviations.
    pub findings: Vec<String>,
    /// Number of finished cases, and of all cases.
    pub cases: [usize; 2],
}

impl Outcome {
    /// The sum of all settings.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.by_setting.values().for_each(|&tally| total += tally);
        total
    }
}

/// Evaluates groups in `jobs` processes at a time until `deadline`; rows alone also on `pristine`, if given. Prints
/// progress on standard error.
///
/// # Errors
/// The first process that fails.
pub fn run(
    driver: &Driver,
    pristine: Option<&Driver>,
    groups: &[Group],
    jobs: usize,
    deadline: Option<std::time::Instant>,
) -> Result<Outcome> {
    let shards: Vec<(&Group, &[Case])> = interleave(groups);
    let next = AtomicUsize::new(0);
    let outcome = Mutex::new(Outcome {
        cases: [0, groups.iter().map(|group| group.cases.len()).sum()],
        ..Outcome::default()
    });
    let work = || -> Result<()> {
        while let Some(&(group, cases)) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
            if deadline.is_some_and(|deadline| std::time::Instant::now() >= deadline) {
                return Ok(());
            }
            let answers = driver.run(&group.how(), cases)?;
            // Under `wide`, a row alone has other bits than in pristine MLX.
            let references = match pristine {
                Some(pristine) if group.policy.kind() != PolicyKind::Wide => {
                    Some(reference(pristine, group, cases)?)
                }
                _ => None,
            };
            let mut outcome = outcome
                .lock()
                .map_err(|_| anyhow::anyhow!("a worker panicked"))?;
            let tenths = |[done, all]: [usize; 2]| done * 10 / all.max(1);
            let before = tenths(outcome.cases);
            for (i, (case, answer)) in cases.iter().zip(&answers).enumerate() {
                let mut tally = check(case, group.policy, answer, &mut outcome.findings)?;
                if let Some(references) = &references {
                    tally.pristine_rows = u64::from(case.alone * case.batch);
                    if references[i].alone.bits != answer.alone.bits {
                        let text = format!("{case}: M = 1 differs from pristine MLX's");
                        outcome.findings.push(text);
                    }
                }
                record(&mut outcome, group, case, tally);
            }
            if tenths(outcome.cases) > before {
                let ([done, all], findings) = (outcome.cases, outcome.findings.len());
                eprintln!("{done} of {all} cases, {findings} findings");
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a worker panicked"))?
        })
    })?;
    outcome.into_inner().ok().context("a worker panicked")
}

/// Takes shards from the groups in turn, so that an interrupted run has covered every setting.
fn interleave(groups: &[Group]) -> Vec<(&Group, &[Case])> {
    let mut shards: Vec<(usize, &Group, &[Case])> = groups
        .iter()
        .flat_map(|group| {
            group
                .cases
                .chunks(SHARD)
                .enumerate()
                .map(move |(i, cases)| (i, group, cases))
        })
        .collect();
    shards.sort_by_key(|(i, _, _)| *i);
    shards
        .into_iter()
        .map(|(_, group, cases)| (group, cases))
        .collect()
}

fn reference(pristine: &Driver, group: &Group, cases: &[Case]) -> Result<Vec<Answer>> {
    let alone: Vec<Case> = cases
        .iter()
        .map(|case| Case {
            rows: Vec::new(),
            ..case.clone()
        })
        .collect();
    pristine.run(&group.how(), &alone)
}

fn record(outcome: &mut Outcome, group: &Group, case: &Case, tally: Tally) {
    outcome.cases[0] += 1;
    let contraction = match group.contraction {
        Contraction::Fused => "fused",
        Contraction::Split => "split",
    };
    let reduction = match group.reduction {
        Reduction::Butterfly => "butterfly",
        Reduction::Neighbours => "neighbours",
        Reduction::Sequential => "sequential",
    };
    let policy = group.policy.to_string();
    let weights = match (case.mode, case.global_scale) {
        (Mode::Affine, _) => case.bits.to_string(),
        (mode, false) => mode.to_string(),
        (mode, true) => format!("{mode}, global scale"),
    };
    *outcome
        .by_setting
        .entry((policy.clone(), contraction, reduction))
        .or_default() += tally;
    *outcome
        .by_kind
        .entry((weights, case.kind, policy))
        .or_default() += tally;
    *outcome
        .by_type
        .entry((case.dtype.name(), case.group))
        .or_default() += tally;
}
