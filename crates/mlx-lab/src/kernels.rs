//! Kernels by name: what ran, and what a whole product would take.

use dispatch_plan::{Architecture, Decision, Plan, Problem, function_of};
use mlx_overlay::{
    Device, DispatchPlan, Dtype, Error as MlxError, Stream, has_matrix_units, has_policies,
    record_kernels,
};

use crate::product::Product;
use crate::{Error, Result};

/// Runs `work`, which evaluates one product last, and gives the name of that product's kernel; empty where the library
/// does not tell.
pub(crate) fn of_product<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, String)> {
    if !has_policies() {
        return Ok((work()?, String::new()));
    }
    let (outcome, names) = record_kernels(work)?;
    let product = names.into_iter().rfind(|name| function_of(name).is_some());
    Ok((outcome?, product.unwrap_or_default()))
}

/// What a product takes on a stream of this device, as the dispatch decides it; none where the library has no policies,
/// or the GPU is of an architecture whose kernels are not described.
pub(crate) fn plan(
    product: &Product,
    dtype: Dtype,
    rows: usize,
    stream: &Stream,
) -> Result<Option<Plan>> {
    if !has_policies() {
        return Ok(None);
    }
    let decided = DispatchPlan::of(
        [rows, product.n, product.k],
        product.quantization,
        dtype,
        stream,
    )?;
    let Ok(architecture) = Device::Gpu.architecture()?.parse::<Architecture>() else {
        return Ok(None);
    };
    let extent = |extent: usize| {
        u32::try_from(extent).map_err(|_| {
            Error::from(MlxError::TooLarge {
                what: "each extent",
                shape: vec![rows, product.n, product.k],
            })
        })
    };
    let problem = Problem {
        nax: has_matrix_units()?,
        tf32: std::env::var("MLX_ENABLE_TF32").as_deref() != Ok("0"),
        m: extent(rows)?,
        dtype: match dtype {
            Dtype::F16 => dispatch_plan::Dtype::Float16,
            Dtype::Bf16 => dispatch_plan::Dtype::Bfloat16,
            _ => dispatch_plan::Dtype::Float32,
        },
        ..Problem::new(architecture, extent(product.n)?, extent(product.k)?)
            .with_format(product.quantization.format())
    };
    let count = |count: usize| u32::try_from(count).unwrap_or(0);
    let decision = Decision {
        path: decided.path,
        fast: decided.fast,
        tile: count(decided.tile),
        outputs: count(decided.outputs),
        sharing: count(decided.sharing),
        identical: decided.identical,
    };
    Ok(Some(Plan::of(&problem, decision)))
}
