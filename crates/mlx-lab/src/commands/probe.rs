use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use mlx_lab::model::Model;
use mlx_lab::probe::{self, Layer, Options, Report};
use mlx_lab::product::Product;
use mlx_overlay::{Backend, Dtype, Quantization, RowPolicy};

use super::{FOUND, Numbers, Outcome};

/// Compare each row of a block with the same row alone, bit for bit, policy by policy
///
/// The result lists the policies that are exact for every product, and which of them reads the fewest bytes of weights.
/// With --model, attention, dense products, norms and rotary positions are compared too. Every tensor of the model is
/// either compared, known not to be multiplied, or listed as not probed, such as the matrices of a mixture of experts.
/// If any is not probed, the result is not "exact".
///
/// Exit codes: 0 exact, 3 not exact or not all probed, 1 an error, 2 wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mlx-lab probe                                      the shapes of `bench`
  mlx-lab probe --product mlp=17408x5120:4:64 --rows 2-16
  mlx-lab probe --model ~/models/Qwen3-8B-4bit --json probe.json
  mlx-lab probe --model ~/models/Qwen3-8B-4bit --policy exact && serve
  mlx-lab probe --model ~/models/Qwen3-8B-4bit --policy exact --shader-validation")]
pub(crate) struct Args {
    /// A model folder as mlx_lm writes it: config.json and model*.safetensors (only headers are read)
    #[arg(long, value_name = "FOLDER", conflicts_with = "product")]
    model: Option<PathBuf>,
    /// Exit with 0 if everything that was probed is exact, even if parts of the model were not probed
    #[arg(long, requires = "model")]
    allow_skipped: bool,
    /// A product: [NAME=]OUTPUTSxVALUES[:BITS[:GROUP]], or :mxfp4, :mxfp8, :nvfp4. May be repeated
    #[arg(long, value_name = "SHAPE")]
    product: Vec<Product>,
    /// Rows of the blocks
    #[arg(long, value_name = "LIST", default_value = "2-9,12,13,16")]
    rows: Numbers,
    /// Only this policy; the exit code is then for it. May be repeated
    #[arg(long, value_name = "NAME")]
    policy: Vec<RowPolicy>,
    /// Type of x; f32 is always compared too [default: the model's, else bf16]
    #[arg(long, value_enum)]
    dtype: Option<Type>,
    /// Random matrices for each product
    ///
    /// [default: 2; 1 on a simulated GPU]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Compute only this many outputs if the kernel is the same, and only one key head
    ///
    /// [default: all; 32 on a simulated GPU]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    outputs: Option<u32>,
    /// Positions in attention's context; of several with the same kernels, only the first is used
    ///
    /// [default: 512,1030,4100,8200; 40,1030,4100 on a simulated GPU]
    #[arg(long, value_name = "LIST")]
    context: Option<Numbers>,
    /// Make Metal check every memory access of the kernels and report faults on standard error; macOS
    #[arg(long)]
    shader_validation: bool,
    /// Write all comparisons to a file, as JSON; - for standard output, without the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Type {
    Bf16,
    F16,
    F32,
}

impl Type {
    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Self::Bf16 => Dtype::Bf16,
            Self::F16 => Dtype::F16,
            Self::F32 => Dtype::F32,
        }
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    super::check_json(args.json.as_deref())?;
    if args.shader_validation {
        validate()?;
    }
    let mut options = Options::new()?;
    options.rows = args.rows.0.clone();
    if let Some(dtype) = args.dtype {
        options.dtype = dtype.dtype();
    }
    options.seeds = args.seeds.unwrap_or(options.seeds);
    if !args.policy.is_empty() {
        options.policies = args.policy.clone();
    }
    if let Some(outputs) = args.outputs {
        options.outputs = Some(outputs as usize);
    }
    if let Some(contexts) = &args.context {
        options.contexts = contexts.0.clone();
    }
    let report = examine(&args, &options)?;
    super::print(&report, args.json.as_deref(), probe::render)?;
    Ok(
        if report.is_exact() || args.allow_skipped && report.is_exact_where_probed() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(FOUND)
        },
    )
}

/// Metal's shader validation, which is read from the environment before there is a device.
const VALIDATION: [&str; 2] = [
    "MTL_SHADER_VALIDATION",
    "MTL_SHADER_VALIDATION_REPORT_TO_STDERR",
];

/// Restarts this program with shader validation, unless it is already on.
fn validate() -> Result<()> {
    if mlx_overlay::build_info()?.backend != Backend::Metal {
        bail!(
            "--shader-validation needs the Metal back-end, but this is another one: run it on a Mac; the simulated device always \
             checks accesses"
        );
    }
    if is_on(std::env::var_os(VALIDATION[0]).as_deref()) {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let failed = Command::new(program)
        .args(std::env::args_os().skip(1))
        .envs(VALIDATION.map(|name| (name, "1")))
        .exec();
    Err(failed).context("cannot start this program again")
}

/// `0` turns it off.
fn is_on(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| value == "1")
}

fn examine(args: &Args, options: &Options) -> Result<Report> {
    let progress = cli::Progress::counted("probe");
    let mut show = |done, total| progress.count(done, total);
    if let Some(folder) = &args.model {
        let model = Model::read(folder)?;
        let mut options = options.clone();
        if let (None, Some(dtype)) = (args.dtype, model.dtype) {
            options.dtype = dtype;
        }
        return Ok(probe::model(&model, &options, &mut show)?);
    }
    let products = if args.product.is_empty() {
        mlx_lab::shapes(&[Quantization::affine(4, 64)?, Quantization::affine(8, 64)?])?
    } else {
        args.product.clone()
    };
    if products.is_empty() {
        bail!("no product to probe");
    }
    let layers: Vec<Layer> = products
        .into_iter()
        .map(|product| Layer { product, count: 1 })
        .collect();
    Ok(probe::products(&layers, options, &mut show)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validation_that_is_turned_off_is_not_taken_for_it() {
        assert!(is_on(Some(OsStr::new("1"))));
        for value in [None, Some("0"), Some("")] {
            assert!(!is_on(value.map(OsStr::new)), "{value:?}");
        }
    }
}
