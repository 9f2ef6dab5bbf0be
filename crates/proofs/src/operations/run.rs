//! Evaluates operations in several processes at a time, and stores finished results.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use dispatch_plan::Dtype;
use metal_sim::Device;
use serde::{Deserialize, Serialize};

use super::case::{Operation, OperationAnswer, Shape};
use super::matrix::Job;
use crate::driver::Driver;

/// Outputs of one policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    pub blocks: u64,
    /// Outputs compared.
    pub outputs: u64,
    /// Outputs whose bits differ from those of the row alone.
    pub differing: u64,
}

/// The results of jobs.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// Number of evaluated jobs, and of all jobs.
    pub jobs: [usize; 2],
    /// By operation, type and kind of policy.
    pub by_policy: BTreeMap<(String, String, String), Compared>,
    /// The findings, one line each: rows that differ under a policy that promises their bits, and
    /// errors compared with float64 that are larger than the type explains.
    pub findings: Vec<String>,
}

impl Comparison {
    /// The sum over everything compared under a kind of policy.
    pub fn total(&self, kind: &str) -> Compared {
        let mut total = Compared::default();
        for ((_, _, policy), compared) in &self.by_policy {
            if policy == kind {
                total.blocks += compared.blocks;
                total.outputs += compared.outputs;
                total.differing += compared.differing;
            }
        }
        total
    }

    fn add(&mut self, (setting, operation): &Job, answer: &OperationAnswer) {
        self.jobs[0] += 1;
        let name = match &operation.shape {
            Shape::Attention { .. } => "attention",
            Shape::Matmul(_) => "matmul",
            Shape::Addmm { .. } => "addmm",
            Shape::GatherMm(_) => "gather_mm",
            Shape::GatherQmm(_) => "gather_qmm",
            Shape::QmmN { .. } => "quantized_matmul, not transposed",
            Shape::GatedDelta { .. } => "gated_delta_update",
        };
        for block in &answer.blocks {
            let kind = block.policy.split(':').next().unwrap_or_default();
            let key = (
                name.to_owned(),
                operation.dtype.to_string(),
                kind.to_owned(),
            );
            let compared = self.by_policy.entry(key).or_default();
            compared.blocks += 1;
            compared.outputs += block.outputs;
            compared.differing += block.differing;
            if kind != "default" && block.differing > 0 {
                self.findings.push(format!(
                    "{} {}: {} of {} outputs of {} rows differ ({}) {operation}",
                    setting.architecture,
                    block.policy,
                    block.differing,
                    block.outputs,
                    block.m,
                    names(&block.kernels),
                ));
            }
            if block.outputs == 0 && operation.run {
                self.findings
                    .push(format!("nothing was compared: {operation}"));
            }
        }
        if let Some(error) = answer.alone.error
            && (error.is_nan() || error >= tolerance(operation.dtype))
        {
            self.findings.push(format!(
                "{}: {error:e} from float64 {operation}",
                setting.architecture
            ));
        }
    }
}

fn names(kernels: &BTreeMap<String, u64>) -> String {
    let names: Vec<&str> = kernels.keys().map(String::as_str).collect();
    names.join(", ")
}

/// The largest allowed error compared with float64: a few units in the last place of the result, sums in float32.
fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float32 => 2e-6,
        Dtype::Float16 => 2e-3,
        Dtype::Bfloat16 => 1.6e-2,
    }
}

/// A line of the results file.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    job: String,
    answer: OperationAnswer,
}

/// Evaluates jobs in `processes` processes at a time. Results in `done` from an earlier run with the same build are not
/// evaluated again, and new ones are added to it. After `deadline` nothing new is started.
///
/// # Errors
/// The driver's errors, or those of the file.
pub fn compare(
    driver: &Driver,
    build: &str,
    jobs: &[Job],
    processes: usize,
    done: Option<&Path>,
    deadline: Option<Instant>,
) -> Result<Comparison> {
    let key = |(setting, operation): &Job| format!("{build} {setting:?} {operation}");
    let mut known = BTreeMap::new();
    if let Some(path) = done.filter(|path| path.exists()) {
        let text = fs_err::read_to_string(path)?;
        for line in text.lines() {
            // The last line of a killed run may be incomplete.
            if let Ok(line) = serde_json::from_str::<Done>(line) {
                known.insert(line.job, line.answer);
            }
        }
    }
    let file = match done {
        Some(path) => Some(
            fs_err::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)?,
        ),
        None => None,
    };
    let file = Mutex::new(file);
    let known = Mutex::new(known);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(job) = jobs.get(number) else {
                return Ok(());
            };
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(());
            }
            let key = key(job);
            if lock(&known).contains_key(&key) {
                continue;
            }
            let answer = driver.operation(job)?;
            if let Some(file) = lock(&file).as_mut() {
                let line = serde_json::to_string(&Done {
                    job: key.clone(),
                    answer: answer.clone(),
                })?;
                writeln!(file, "{line}")?;
            }
            lock(&known).insert(key, answer);
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..processes.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        }
        Ok(())
    })?;
    let known = lock(&known);
    let mut comparison = Comparison {
        jobs: [0, jobs.len()],
        ..Comparison::default()
    };
    for job in jobs {
        if let Some(answer) = known.get(&key(job)) {
            comparison.add(job, answer);
        }
    }
    ensure!(
        comparison.jobs[0] > 0,
        "no operation was evaluated before the limit"
    );
    Ok(comparison)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Driver {
    /// Evaluates one operation in a separate process.
    ///
    /// # Errors
    /// The process's errors.
    pub fn operation(&self, (setting, operation): &Job) -> Result<OperationAnswer> {
        let operations = std::slice::from_ref(operation);
        let mut answers = self.operations(&setting.device(), None, operations)?;
        answers.pop().context("no answer")
    }

    /// Evaluates operations in one process, with other kernels than the build's own if given.
    ///
    /// # Errors
    /// The process's errors.
    pub fn operations(
        &self,
        device: &Device,
        metallib: Option<&Path>,
        operations: &[Operation],
    ) -> Result<Vec<OperationAnswer>> {
        self.ask(device, metallib, None, operations)
    }
}
