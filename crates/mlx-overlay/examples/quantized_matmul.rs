//! Multiplies M random rows with a quantized matrix. Reports how far the product is from a double-precision reference,
//! and whether each of its rows is bit-identical to the product of that row alone.
//!
//! ```text
//! cargo run -p mlx-overlay --example quantized_matmul -- --m 6 --n 512 --k 1024 --bits 4
//! ```
//!
//! Exit codes: 0 done (equal rows or not), 1 computation failed, 2 usage.

#![allow(
    clippy::print_stdout,
    reason = "an example takes no help from unpublished crates"
)]

use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use mlx_overlay::{
    Array, BuildInfo, Device, Element, Quantization, QuantizedMatrix, Stream, bf16, build_info,
    f16, has_policies, process_policy, quantize, quantized_matmul,
};
use serde::Serialize;
use sha2::{Digest, Sha256};

const BITS: [&str; 7] = ["1", "2", "3", "4", "5", "6", "8"];
const GROUPS: [&str; 3] = ["32", "64", "128"];

#[derive(Parser)]
#[command(
    name = "quantized_matmul",
    about = "Multiply M rows with a quantized N x K matrix and check the product"
)]
struct Args {
    /// Rows of x
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    m: u32,
    /// Rows of the matrix: columns of the product
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// Columns of the matrix, a multiple of the group size
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    k: u32,
    /// How the matrix is quantized
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// Bits per weight; 4 for affine, fixed for the other modes
    #[arg(long, value_parser = PossibleValuesParser::new(BITS))]
    bits: Option<String>,
    /// Weights per group; 64 for affine, fixed for the other modes
    #[arg(long, value_parser = PossibleValuesParser::new(GROUPS))]
    group: Option<String>,
    /// Type of x, affine scales and biases, and product
    #[arg(long, value_enum, default_value_t)]
    dtype: Type,
    /// The device [default: the GPU if there is one]
    #[arg(long, value_enum)]
    device: Option<Place>,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Mode {
    #[default]
    Affine,
    Mxfp4,
    Mxfp8,
    Nvfp4,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Type {
    #[default]
    F32,
    F16,
    Bf16,
}

#[derive(Clone, Copy, ValueEnum)]
enum Place {
    Cpu,
    Gpu,
}

/// The report. The names are those of the JSON output.
#[derive(Serialize)]
struct Report {
    m: usize,
    n: usize,
    k: usize,
    mode: &'static str,
    bits: u32,
    group: u32,
    dtype: String,
    device: String,
    device_name: String,
    seed: u64,
    /// SHA-256 of the product's bits, row-major, each element as a little-endian u32.
    checksum: String,
    /// Largest absolute difference from the reference.
    max_error: f64,
    /// Largest absolute value of the reference.
    max_reference: f64,
    /// Rows of the product that are not bit-identical to their one-row product.
    rows_differing: usize,
    mlx_version: String,
    mlx_tree: &'static str,
    mlx_pristine: bool,
    mlx_backend: String,
    /// The policy that chooses the kernels; `None` without the overlay's Metal back-end.
    policy: Option<String>,
}

struct Problem {
    m: usize,
    n: usize,
    k: usize,
    quantization: Quantization,
    seed: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let problem = match Problem::new(&args) {
        Ok(problem) => problem,
        Err(message) => Args::command()
            .error(ErrorKind::ValueValidation, message)
            .exit(),
    };
    match run(&args, &problem) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Args {
    fn quantization(&self) -> Result<Quantization, String> {
        let fixed = match self.mode {
            Mode::Affine => {
                let parse = |text: &Option<String>, default: u32| match text {
                    Some(text) => text.parse().map_err(|error| format!("{text}: {error}")),
                    None => Ok(default),
                };
                let (bits, group) = (parse(&self.bits, 4)?, parse(&self.group, 64)?);
                return Quantization::affine(bits, group).map_err(|error| error.to_string());
            }
            Mode::Mxfp4 => Quantization::Mxfp4,
            Mode::Mxfp8 => Quantization::Mxfp8,
            Mode::Nvfp4 => Quantization::Nvfp4,
        };
        if self.bits.is_some() || self.group.is_some() {
            return Err("--bits and --group are for --mode affine".to_owned());
        }
        Ok(fixed)
    }
}

impl Problem {
    /// The requested problem, or what is wrong with it.
    fn new(args: &Args) -> Result<Self, String> {
        let quantization = args.quantization()?;
        if !args.k.is_multiple_of(quantization.group_size()) {
            return Err(format!(
                "--k {} is not a multiple of the group size, {}",
                args.k,
                quantization.group_size()
            ));
        }
        for (name, a, b) in [
            ("m * k", args.m, args.k),
            ("n * k", args.n, args.k),
            ("m * n", args.m, args.n),
        ] {
            if a.checked_mul(b)
                .is_none_or(|product| product > i32::MAX as u32)
            {
                return Err(format!("{name} must be below 2^31"));
            }
        }
        Ok(Self {
            m: args.m as usize,
            n: args.n as usize,
            k: args.k as usize,
            quantization,
            seed: args.seed,
        })
    }
}

fn run(args: &Args, problem: &Problem) -> anyhow::Result<()> {
    let device = match args.device {
        Some(Place::Cpu) => Device::Cpu,
        Some(Place::Gpu) => Device::Gpu,
        None => Device::preferred()?,
    };
    let report = Stream::default_of(device)?.scope(|| match args.dtype {
        Type::F32 => examine::<f32>(problem, device),
        Type::F16 => examine::<f16>(problem, device),
        Type::Bf16 => examine::<bf16>(problem, device),
    })?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report).context("JSON")?);
    } else {
        print(&report);
    }
    Ok(())
}

/// A type of a product.
trait Float: Element {
    /// The value, rounded to this type.
    fn narrow(value: f32) -> Self;
    /// The value in double precision; exact.
    fn widen(self) -> f64;
    /// The bits. Equality means equal bits: 0.0 is not -0.0, and a NaN equals itself.
    fn bits(self) -> u32;
}

impl Float for f32 {
    fn narrow(value: f32) -> Self {
        value
    }
    fn widen(self) -> f64 {
        self.into()
    }
    fn bits(self) -> u32 {
        self.to_bits()
    }
}

impl Float for f16 {
    fn narrow(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn widen(self) -> f64 {
        self.into()
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Float for bf16 {
    fn narrow(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn widen(self) -> f64 {
        self.into()
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

/// Computes the product and checks it.
fn examine<T: Float>(problem: &Problem, device: Device) -> anyhow::Result<Report> {
    let &Problem {
        m,
        n,
        k,
        quantization,
        seed,
    } = problem;
    let mut random = SplitMix64(seed);
    let mut values = |count: usize| -> Vec<T> {
        (0..count)
            .map(|_| T::narrow(random.next_signed()))
            .collect()
    };
    let x = values(m * k);
    let w = quantize(&Array::from_slice(&values(n * k), &[n, k])?, quantization)?;

    let product: Vec<T> = quantized_matmul(&Array::from_slice(&x, &[m, k])?, &w)?.to_vec()?;
    ensure!(
        product.len() == m * n,
        "the product has {} elements, expected {}",
        product.len(),
        m * n
    );
    let (max_error, max_reference) = compare(problem, &x, &w, &product)?;
    let rows_differing = rows_differing(problem, &x, &w, &product)?;

    let BuildInfo {
        mlx_version,
        tree,
        pristine,
        backend,
        ..
    } = build_info()?;
    Ok(Report {
        m,
        n,
        k,
        mode: quantization.mode().name(),
        bits: quantization.bits(),
        group: quantization.group_size(),
        dtype: T::DTYPE.to_string(),
        device: device.to_string(),
        device_name: device.name()?,
        seed,
        checksum: checksum(&product),
        max_error,
        max_reference,
        rows_differing,
        mlx_version,
        mlx_tree: tree,
        mlx_pristine: pristine,
        mlx_backend: backend.to_string(),
        policy: has_policies()
            .then(process_policy)
            .transpose()?
            .map(|policy| policy.to_string()),
    })
}

/// The largest error and the largest reference value, both absolute.
///
/// The reference uses the packed weights, scales and biases, and does all arithmetic in double precision.
fn compare<T: Float>(
    problem: &Problem,
    x: &[T],
    w: &QuantizedMatrix,
    product: &[T],
) -> anyhow::Result<(f64, f64)> {
    let &Problem {
        n, k, quantization, ..
    } = problem;
    let (bits, group) = (
        quantization.bits() as usize,
        quantization.group_size() as usize,
    );
    let packed = w.packed().to_vec::<u32>()?;
    let groups = groups::<T>(w)?;
    let x: Vec<f64> = x.iter().map(|&value| value.widen()).collect();

    let (mut max_error, mut max_reference) = (0f64, 0f64);
    for row in 0..n {
        let words = &packed[row * k * bits / 32..][..k * bits / 32];
        let weights: Vec<f64> = (0..k)
            .map(|column| {
                let (scale, bias) = groups[(row * k + column) / group];
                let code = unpack(words, column * bits, bits);
                scale * weight(code, quantization) + bias
            })
            .collect();
        for (vector, x) in x.chunks_exact(k).enumerate() {
            let reference: f64 = x.iter().zip(&weights).map(|(x, w)| x * w).sum();
            let error = (product[vector * n + row].widen() - reference).abs();
            // f64::max would drop a NaN.
            max_error = if error.is_nan() {
                error
            } else {
                max_error.max(error)
            };
            max_reference = max_reference.max(reference.abs());
        }
    }
    Ok((max_error, max_reference))
}

/// Scale and bias of each group.
fn groups<T: Float>(w: &QuantizedMatrix) -> anyhow::Result<Vec<(f64, f64)>> {
    if let Some(biases) = w.biases() {
        let scales = w.scales().to_vec::<T>()?.into_iter().map(T::widen);
        let biases = biases.to_vec::<T>()?.into_iter().map(T::widen);
        return Ok(scales.zip(biases).collect());
    }
    let decode = match w.quantization() {
        Quantization::Nvfp4 => e4m3,
        _ => e8m0,
    };
    let scales = w.scales().to_vec::<u8>()?;
    Ok(scales
        .into_iter()
        .map(|scale| (decode(scale.into()), 0.0))
        .collect())
}

/// The value of a packed weight, before scale and bias.
fn weight(code: u32, quantization: Quantization) -> f64 {
    match quantization {
        Quantization::Mxfp4 | Quantization::Nvfp4 => e2m1(code),
        Quantization::Mxfp8 => e4m3(code),
        _ => code.into(),
    }
}

/// The values of OCP's format, by its definition.
fn e2m1(code: u32) -> f64 {
    let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][(code & 7) as usize];
    if code & 8 == 0 { magnitude } else { -magnitude }
}

fn e4m3(code: u32) -> f64 {
    let (exponent, mantissa) = ((code >> 3 & 15) as i32, f64::from(code & 7));
    let magnitude = if exponent == 0 {
        mantissa * 2f64.powi(-9)
    } else {
        (8.0 + mantissa) * 2f64.powi(exponent - 10)
    };
    if code & 128 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

fn e8m0(code: u32) -> f64 {
    2f64.powi(code as i32 - 127)
}

/// The integer of `bits` bits that starts at bit `start` of a row: MLX packs the lowest bits first.
fn unpack(words: &[u32], start: usize, bits: usize) -> u32 {
    let (word, shift) = (start / 32, start % 32);
    let low = u64::from(words[word]);
    let high = words.get(word + 1).map_or(0, |&word| u64::from(word));
    (((high << 32 | low) >> shift) & ((1 << bits) - 1)) as u32
}

/// Rows of the product that are not bit-identical to the product of the row alone.
fn rows_differing<T: Float>(
    problem: &Problem,
    x: &[T],
    w: &QuantizedMatrix,
    product: &[T],
) -> anyhow::Result<usize> {
    let &Problem { n, k, .. } = problem;
    let mut differing = 0;
    for (x, row) in x.chunks_exact(k).zip(product.chunks_exact(n)) {
        let alone: Vec<T> = quantized_matmul(&Array::from_slice(x, &[1, k])?, w)?.to_vec()?;
        differing += usize::from(
            !alone
                .iter()
                .map(|y| y.bits())
                .eq(row.iter().map(|y| y.bits())),
        );
    }
    Ok(differing)
}

/// SHA-256 of the elements' bits, each as a little-endian u32.
fn checksum<T: Float>(product: &[T]) -> String {
    let mut hash = Sha256::new();
    for element in product {
        hash.update(element.bits().to_le_bytes());
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn print(report: &Report) {
    let Report { m, n, k, .. } = report;
    println!("product        {m} x {k} times {n} x {k}");
    println!(
        "               {}, {} of {} bits, groups of {}, seed {}",
        report.dtype, report.mode, report.bits, report.group, report.seed
    );
    println!("device         {} ({})", report.device, report.device_name);
    let overlay = if report.mlx_pristine {
        "without the overlay"
    } else {
        "patched"
    };
    println!(
        "MLX            {} {overlay}, back-end {}, tree {}",
        report.mlx_version, report.mlx_backend, report.mlx_tree
    );
    match report.policy.as_deref() {
        Some("default") => println!("policy         default: MLX's own choice of kernels"),
        Some(policy) => println!("policy         {policy}"),
        None => {}
    }
    println!("checksum       {}", report.checksum);
    println!(
        "largest error  {:.3e} (the reference reaches {:.3e})",
        report.max_error, report.max_reference
    );
    if report.rows_differing == 0 {
        println!("rows           all {m} equal their one-row product bit for bit");
    } else {
        println!(
            "rows           {} of {m} differ from their one-row product",
            report.rows_differing
        );
    }
}

/// Steele, Lea and Flood's generator: the same numbers everywhere for a seed.
struct SplitMix64(u64);

impl SplitMix64 {
    /// Uniform in [-1, 1).
    fn next_signed(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }
}
