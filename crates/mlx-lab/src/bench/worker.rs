//! Runs the chains, in this process or in one that is linked to another build.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Instant;

use mlx_overlay::{
    Array, Dtype, QuantizedMatrix, RoutePath, RowPolicy, Stream, add, dequantize, matmul,
    quantized_matmul, slice, transpose,
};
use serde::{Deserialize, Serialize};

use crate::kernels;
use crate::machine::Machine;
use crate::product::Product;
use crate::setting::Routed;
use crate::values::{Noise, settled};
use crate::{Error, Result, setting};

/// A chain of products: each output feeds the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The product.
    pub product: Product,
    /// Blocks of rows that use the same weights.
    pub batch: usize,
    /// Rows of each block.
    pub rows: usize,
    /// A policy's name, [`ALTERNATIVE`], or [`DENSE`]: the same product with dense weights.
    pub arm: String,
    /// Products in the chain.
    pub length: usize,
    /// Matrices that take turns, so many that none is still in a cache at its next turn.
    pub copies: usize,
}

/// The name of the arm with dense weights.
pub const DENSE: &str = "dense";

/// The name of the arm that uses the other arrangement of the streamed kernels: `exact` with a route to it.
pub const ALTERNATIVE: &str = "exact-alt";

/// Runs chains.
pub trait Worker {
    /// The worker's machine.
    ///
    /// # Errors
    /// MLX's.
    fn machine(&mut self) -> Result<Machine>;

    /// Makes a chain. Returns its number and the kernel of its products (empty if the library does not report it).
    ///
    /// # Errors
    /// MLX's.
    fn prepare(&mut self, setup: &Setup) -> Result<(usize, String)>;

    /// Evaluates a chain and returns the seconds.
    ///
    /// # Errors
    /// MLX's.
    fn run(&mut self, chain: usize) -> Result<f64>;

    /// Drops all chains and their weights.
    ///
    /// # Errors
    /// None for a local worker; for another process, those of the connection.
    fn clear(&mut self) -> Result<()>;
}

/// Works in this process.
#[derive(Default)]
pub struct Local {
    streams: HashMap<String, Rc<Stream>>,
    weights: HashMap<(String, usize), Rc<Vec<QuantizedMatrix>>>,
    dense: HashMap<(String, usize), Rc<Vec<Array>>>,
    chains: Vec<Chain>,
}

enum Weights {
    Quantized(Rc<Vec<QuantizedMatrix>>),
    Dense(Rc<Vec<Array>>),
}

struct Chain {
    setup: Setup,
    stream: Rc<Stream>,
    route: Option<RoutePath>,
    weights: Weights,
    x: Array,
}

/// Type of x, scales and dense weights, as in most models.
const DTYPE: Dtype = Dtype::Bf16;

impl Local {
    fn stream(&mut self, arm: &str) -> Result<Rc<Stream>> {
        if let Some(stream) = self.streams.get(arm) {
            return Ok(Rc::clone(stream));
        }
        let policy = match arm {
            DENSE => RowPolicy::DEFAULT,
            ALTERNATIVE => RowPolicy::EXACT,
            name => setting::policy(name)?,
        };
        let stream = Rc::new(setting::stream(policy)?);
        self.streams.insert(arm.to_owned(), Rc::clone(&stream));
        Ok(stream)
    }

    fn quantized(&mut self, setup: &Setup) -> Result<Rc<Vec<QuantizedMatrix>>> {
        let key = (setup.product.shape(), setup.copies);
        if let Some(weights) = self.weights.get(&key) {
            return Ok(Rc::clone(weights));
        }
        let Product {
            n, k, quantization, ..
        } = setup.product;
        let mut noise = Noise::new(1);
        let weights = (0..setup.copies)
            .map(|_| noise.matrix([n, k], quantization, DTYPE, 1.0))
            .collect::<Result<_>>()?;
        let weights = Rc::new(weights);
        self.weights.insert(key, Rc::clone(&weights));
        Ok(weights)
    }

    fn dense(&mut self, setup: &Setup) -> Result<Rc<Vec<Array>>> {
        let key = (setup.product.shape(), setup.copies);
        if let Some(weights) = self.dense.get(&key) {
            return Ok(Rc::clone(weights));
        }
        let stream = self.stream(DENSE)?;
        let quantized = self.quantized(setup)?;
        let weights = stream.scope(|| {
            quantized
                .iter()
                .map(|matrix| {
                    let dense = settled(&mlx_overlay::as_type(&dequantize(matrix)?, DTYPE)?)?;
                    Ok(transpose(&dense)?)
                })
                .collect::<Result<Vec<_>>>()
        })?;
        let weights = Rc::new(weights);
        self.dense.insert(key, Rc::clone(&weights));
        Ok(weights)
    }
}

impl Worker for Local {
    fn machine(&mut self) -> Result<Machine> {
        Machine::here()
    }

    fn prepare(&mut self, setup: &Setup) -> Result<(usize, String)> {
        let stream = self.stream(&setup.arm)?;
        let weights = if setup.arm == DENSE {
            Weights::Dense(self.dense(setup)?)
        } else {
            Weights::Quantized(self.quantized(setup)?)
        };
        let shape = [setup.batch, setup.rows, setup.product.k];
        let x = stream.scope(|| Noise::new(2).array(&shape, 1.0, DTYPE))?;
        let chain = Chain {
            setup: setup.clone(),
            stream,
            route: (setup.arm == ALTERNATIVE).then_some(RoutePath::StreamedAlt),
            weights,
            x,
        };
        let (_, kernel) = kernels::of_product(|| chain.evaluate(1))?;
        self.chains.push(chain);
        Ok((self.chains.len() - 1, kernel))
    }

    fn run(&mut self, chain: usize) -> Result<f64> {
        let chain = self
            .chains
            .get(chain)
            .ok_or_else(|| Error::Invalid(format!("no chain {chain}")))?;
        chain.evaluate(chain.setup.length)
    }

    fn clear(&mut self) -> Result<()> {
        self.chains.clear();
        self.weights.clear();
        self.dense.clear();
        Ok(())
    }
}

impl Chain {
    /// Builds the graph, then times its evaluation.
    fn evaluate(&self, length: usize) -> Result<f64> {
        let Product {
            n, k, quantization, ..
        } = self.setup.product;
        let [batch, rows] = [self.setup.batch, self.setup.rows];
        // The output of a square product is the next input. For other products, one column of the output is added to the
        // input, which costs another small kernel. Block floats would drift.
        let direct = n == k && quantization.has_biases();
        let end = self.stream.scope(|| {
            let mut x = self.x.clone();
            for i in 0..length {
                let y = match &self.weights {
                    Weights::Quantized(all) => quantized_matmul(&x, &all[i % all.len()])?,
                    Weights::Dense(all) => matmul(&x, &all[i % all.len()])?,
                };
                x = if direct {
                    y
                } else {
                    add(&x, &slice(&y, &[0..batch, 0..rows, 0..1])?)?
                };
            }
            Ok::<_, Error>(x)
        })?;
        // The routing table belongs to the process, and must not affect other arms.
        let product = &self.setup.product;
        let _routed = match self.route {
            Some(path) => Some(Routed::new(product, path)?),
            None => None,
        };
        let start = Instant::now();
        mlx_overlay::eval([&end])?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// A request to a worker in another process, one JSON object per line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Machine,
    Prepare(Setup),
    Run(usize),
    Clear,
}

/// The worker's answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Machine(Machine),
    Prepared(usize, String),
    Seconds(f64),
    Cleared,
    Failed(String),
}

/// Answers requests until the input ends: the main loop of a process that is linked to another build.
///
/// # Errors
/// [`Error::Invalid`] for a line that is not a request, or if the output cannot be written. The result of a request,
/// even a failure, is written to the output.
pub fn serve(input: impl BufRead, mut output: impl Write) -> Result<()> {
    let mut worker = Local::default();
    let broken = |error: &dyn std::fmt::Display| Error::Invalid(format!("the worker: {error}"));
    for line in input.lines() {
        let line = line.map_err(|error| broken(&error))?;
        let request = serde_json::from_str(&line).map_err(|error| broken(&error))?;
        let answer = match request {
            Request::Machine => worker.machine().map(Answer::Machine),
            Request::Prepare(setup) => worker
                .prepare(&setup)
                .map(|(chain, kernel)| Answer::Prepared(chain, kernel)),
            Request::Run(chain) => worker.run(chain).map(Answer::Seconds),
            Request::Clear => worker.clear().map(|()| Answer::Cleared),
        };
        let answer = answer.unwrap_or_else(|error| Answer::Failed(error.to_string()));
        let text = serde_json::to_string(&answer).map_err(|error| broken(&error))?;
        writeln!(output, "{text}").map_err(|error| broken(&error))?;
        output.flush().map_err(|error| broken(&error))?;
    }
    Ok(())
}

/// Works in another process: a `mlx-lab` that was linked to another build of MLX. In such a comparison both arms are
/// separate processes, so that neither has an advantage.
pub struct Remote {
    program: PathBuf,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Remote {
    /// Starts the process.
    ///
    /// # Errors
    /// [`Error::Worker`].
    pub fn start(program: &Path) -> Result<Self> {
        let fail = |reason: String| Error::Worker {
            program: program.to_owned(),
            reason,
        };
        let mut child = Command::new(program)
            .arg("serve-bench")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| fail(error.to_string()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(fail("it has no standard input and output".to_owned()));
        };
        Ok(Self {
            program: program.to_owned(),
            child,
            input: Some(input),
            output: BufReader::new(output),
        })
    }

    fn ask(&mut self, request: &Request) -> Result<Answer> {
        let answer = self.exchange(request).map_err(|reason| Error::Worker {
            program: self.program.clone(),
            reason,
        })?;
        match answer {
            Answer::Failed(reason) => Err(Error::Worker {
                program: self.program.clone(),
                reason,
            }),
            answer => Ok(answer),
        }
    }

    fn exchange(&mut self, request: &Request) -> std::result::Result<Answer, String> {
        let text = serde_json::to_string(request).map_err(|error| error.to_string())?;
        let input = self.input.as_mut().ok_or("its input is closed")?;
        writeln!(input, "{text}").map_err(|error| error.to_string())?;
        input.flush().map_err(|error| error.to_string())?;
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err("it exited; it must be a mlx-lab of this version".to_owned()),
            Ok(_) => serde_json::from_str(&line)
                .map_err(|error| format!("it answered \"{}\": {error}", line.trim_end())),
            Err(error) => Err(error.to_string()),
        }
    }

    fn unexpected<T>(&self, answer: &Answer) -> Result<T> {
        Err(Error::Worker {
            program: self.program.clone(),
            reason: format!("it replied {answer:?}"),
        })
    }
}

impl Worker for Remote {
    fn machine(&mut self) -> Result<Machine> {
        match self.ask(&Request::Machine)? {
            Answer::Machine(machine) => Ok(machine),
            other => self.unexpected(&other),
        }
    }

    fn prepare(&mut self, setup: &Setup) -> Result<(usize, String)> {
        match self.ask(&Request::Prepare(setup.clone()))? {
            Answer::Prepared(chain, kernel) => Ok((chain, kernel)),
            other => self.unexpected(&other),
        }
    }

    fn run(&mut self, chain: usize) -> Result<f64> {
        match self.ask(&Request::Run(chain))? {
            Answer::Seconds(seconds) => Ok(seconds),
            other => self.unexpected(&other),
        }
    }

    fn clear(&mut self) -> Result<()> {
        match self.ask(&Request::Clear)? {
            Answer::Cleared => Ok(()),
            other => self.unexpected(&other),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // It exits when its input ends.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
