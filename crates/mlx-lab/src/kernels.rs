//! Kernels by name: those that ran, and those that a whole product would use.

use dispatch_plan::{Architecture, Decision, Plan, Problem, function_of};
use mlx_overlay::{
    Device, DispatchPlan, Dtype, Error as MlxError, Stream, has_matrix_units, has_policies,
    record_kernels,
};

use crate::product::Product;
use crate::{Error, Result};

/// Runs `work`, whose last evaluation is one product, and returns the name of that product's kernel; empty if the library
/// does not report it.
pub(crate) fn of_product<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, String)> {
    if !has_policies() {
        return Ok((work()?, String::new()));
    }
    let (outcome, names) = record_kernels(work)?;
    let product = names.into_iter().rfind(|name| function_of(name).is_some());
    Ok((outcome?, product.unwrap_or_default()))
}

/// Runs `work` and returns, without duplicates, the kernels that ran and whose choice affects the bits; empty if the
/// library does not report them.
pub(crate) fn of_all<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<String>)> {
    if !has_policies() {
        return Ok((work()?, Vec::new()));
    }
    let (outcome, names) = record_kernels(work)?;
    let mut kernels = Vec::new();
    for name in names {
        if decides(&name) && !kernels.contains(&name) {
            kernels.push(name);
        }
    }
    Ok((outcome?, kernels))
}

/// Whether a kernel computes a product or attention.
pub(crate) fn decides(kernel: &str) -> bool {
    function_of(kernel).is_some() || is_operation(kernel)
}

/// Whether a kernel computes a dense product or attention.
pub(crate) fn is_operation(kernel: &str) -> bool {
    const FAMILIES: [&str; 6] = [
        "gemv",
        "steel_",
        "sdpa_",
        "dot_product",
        "gather_mm",
        "segmented_mm",
    ];
    FAMILIES.iter().any(|family| kernel.starts_with(family))
}

/// The device's architecture, if its kernels are described.
pub(crate) fn architecture() -> Result<Option<Architecture>> {
    Ok(Device::Gpu.architecture()?.parse().ok())
}

/// The type for plans.
pub(crate) fn dtype(dtype: Dtype) -> dispatch_plan::Dtype {
    match dtype {
        Dtype::F16 => dispatch_plan::Dtype::Float16,
        Dtype::Bf16 => dispatch_plan::Dtype::Bfloat16,
        _ => dispatch_plan::Dtype::Float32,
    }
}

/// How the dispatch computes a product on a stream of this device; `None` if the library has no policies,
/// or if the GPU's architecture is not described.
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
    let Some(architecture) = architecture()? else {
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
        dtype: self::dtype(dtype),
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

/// How many outputs to compute: at least `outputs`, and the fewest that use the same kernels as the whole product;
/// otherwise all.
pub(crate) fn fewest_outputs(
    product: &Product,
    few: Option<usize>,
    same: impl Fn(&Product) -> Result<bool>,
) -> Result<usize> {
    let Some(few) = few else {
        return Ok(product.n);
    };
    // The limits in MLX and here are powers of two; just above one, other kernels are used.
    let candidates = std::iter::successors(Some(few), |few| few.checked_mul(2));
    for few in candidates.flat_map(|few| [few, few.saturating_add(8)]) {
        let n = reduced(product, few);
        if n >= product.n {
            break;
        }
        if same(&Product {
            n,
            ..product.clone()
        })? {
            return Ok(n);
        }
    }
    Ok(product.n)
}

/// A small number of outputs that is a multiple of 8 if and only if the number of all outputs is: one-row kernels
/// differ between the two cases.
fn reduced(product: &Product, outputs: usize) -> usize {
    let few = outputs.next_multiple_of(8);
    let few = few + product.n % 8;
    few.min(product.n)
}
