//! The results, one line per family of kernels.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::case::Case;
use crate::problem::Problem;

/// The bits of y from both compilations of a kernel.
pub(crate) struct Run {
    /// Apple's, lowered by LLVM.
    pub(crate) apple: Vec<u8>,
    /// The simulator's, if it took part.
    pub(crate) simulated: Option<Vec<u8>>,
}

/// All runs of one case on one seed's inputs: by reading of `llvm.fmuladd` (fused, split), then by order of `simd_sum`.
pub(crate) type Runs = [[Run; 2]; 2];

/// The findings for one case and seed.
pub(crate) struct Outcome {
    case: Case,
    /// Outputs of one reading, both orders.
    outputs: usize,
    /// Largest error of Apple's against double precision, as a fraction of the tolerance.
    error: f64,
    /// Outputs where the simulator's bits differ from Apple's, by reading.
    differing: Option<[usize; 2]>,
    /// Outputs of Apple's whose bits depend on the reading.
    reading_matters: usize,
    /// Outputs of Apple's, read as fused, whose bits depend on the order of `simd_sum`.
    order_matters: usize,
    complaints: Vec<String>,
}

impl Outcome {
    /// Compares the runs with each other and with double precision.
    pub(crate) fn new(case: &Case, problem: &Problem, runs: &Runs) -> Self {
        let mut complaints = Vec::new();
        let mut error = 0f64;
        for run in runs.iter().flatten() {
            error = error.max(problem.error(case, &run.apple));
        }
        if error > 1.0 {
            complaints.push(format!(
                "the error against double precision is {error} times the tolerance"
            ));
        }
        let compared = runs.iter().flatten().all(|run| run.simulated.is_some());
        let mut differing = [0; 2];
        for (count, orders) in differing.iter_mut().zip(runs) {
            for run in orders {
                let Some(simulated) = &run.simulated else {
                    continue;
                };
                let (number, first) = differences(case, &run.apple, simulated);
                if let Some(first) = first {
                    complaints.push(format!(
                        "{number} of {} outputs differ, {first}",
                        case.m * case.n
                    ));
                }
                *count += number;
            }
        }
        let [fused, split] = runs;
        let between = |left: &Run, right: &Run| differences(case, &left.apple, &right.apple).0;
        Self {
            case: *case,
            outputs: 2 * case.m * case.n,
            error,
            differing: compared.then_some(differing),
            reading_matters: fused
                .iter()
                .zip(split)
                .map(|(fused, split)| between(fused, split))
                .sum(),
            order_matters: between(&fused[0], &fused[1]),
            complaints,
        }
    }

    /// The errors, one line each.
    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    fn family(&self) -> (&'static str, &'static str, &'static str) {
        (
            self.case.mode.name(),
            self.case.path.name(),
            self.case.element.name(),
        )
    }
}

/// How many values of two y differ, and the first one.
fn differences(case: &Case, left: &[u8], right: &[u8]) -> (usize, Option<String>) {
    let size = case.element.size();
    let bits = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0u32, |bits, byte| bits << 8 | u32::from(*byte))
    };
    let mut different = left
        .chunks_exact(size)
        .map(bits)
        .zip(right.chunks_exact(size).map(bits))
        .enumerate()
        .filter(|(_, (left, right))| left != right);
    let Some((index, (left, right))) = different.next() else {
        return (0, None);
    };
    let first = format!(
        "the first in row {}, column {}: {left:#x}, {right:#x}",
        index / case.n,
        index % case.n
    );
    (1 + different.count(), Some(first))
}

/// All outcomes.
pub(crate) struct Report {
    provenance: String,
    outcomes: Vec<Outcome>,
}

impl Report {
    /// Without outcomes; `provenance` describes what is compared.
    pub(crate) fn new(provenance: String) -> Self {
        Self {
            provenance,
            outcomes: Vec::new(),
        }
    }

    /// Adds the outcome of one case and seed.
    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// Whether something was run, and all of it is near double precision and equal to the simulator's.
    pub(crate) fn agrees(&self) -> bool {
        !self.outcomes.is_empty()
            && self
                .outcomes
                .iter()
                .all(|outcome| outcome.complaints.is_empty())
    }

    /// The report as a table.
    pub(crate) fn to_markdown(&self) -> String {
        let mut families: Vec<_> = Vec::new();
        for outcome in &self.outcomes {
            if !families.contains(&outcome.family()) {
                families.push(outcome.family());
            }
        }
        let mut text = format!(
            "# Apple-compiled kernels next to the simulator's: results\n\n\
             Written by `ci/air-oracle.sh`; its [README](../../crates/air-oracle/README.md) explains the columns.\n\n\
             {} Outputs are counted once a reading.\n\n\
             | mode | kernel | type | kernels | outputs | differ, fused | differ, split | reading matters | \
             order matters | error, of what is allowed |\n|---|---|---|---|---|---|---|---|---|---|\n",
            self.provenance
        );
        for (mode, path, element) in families {
            let family = |outcome: &&Outcome| outcome.family() == (mode, path, element);
            self.row(&mut text, &format!("{mode} | {path} | {element}"), family);
        }
        self.row(&mut text, "all | |", |_| true);
        text
    }

    fn row(&self, text: &mut String, head: &str, wanted: impl Fn(&&Outcome) -> bool) {
        let outcomes: Vec<&Outcome> = self.outcomes.iter().filter(wanted).collect();
        let kernels: BTreeSet<String> = outcomes
            .iter()
            .map(|outcome| outcome.case.kernel())
            .collect();
        let sum =
            |of: fn(&Outcome) -> usize| outcomes.iter().map(|outcome| of(outcome)).sum::<usize>();
        let outputs = sum(|outcome| outcome.outputs);
        let differ = |reading: usize| {
            let counts: Option<Vec<_>> = outcomes
                .iter()
                .map(|outcome| Some(outcome.differing?[reading]))
                .collect();
            counts.map_or_else(
                || "not run".to_owned(),
                |counts| counts.iter().sum::<usize>().to_string(),
            )
        };
        let percent =
            |count: usize, of: usize| format!("{:.0} %", 100.0 * count as f64 / of as f64);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {head} | {} | {outputs} | {} | {} | {} | {} | {:.3} |",
            kernels.len(),
            differ(0),
            differ(1),
            percent(sum(|outcome| outcome.reading_matters), outputs),
            percent(sum(|outcome| outcome.order_matters), outputs / 2),
            outcomes
                .iter()
                .map(|outcome| outcome.error)
                .fold(0.0, f64::max)
        );
    }
}
