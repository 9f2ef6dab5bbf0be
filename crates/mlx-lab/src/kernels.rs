//! Kernels by name: what ran, and what a whole product would take.

use dispatch_plan::{Architecture, Plan, Problem};
use mlx_overlay::{
    Device, DispatchPlan, Dtype, Error as MlxError, QuantizationMode, Stream, has_matrix_units,
    has_policies, record_kernels,
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
    let product = names.into_iter().rfind(|name| function(name).is_some());
    Ok((outcome?, product.unwrap_or_default()))
}

/// The function of a quantized product's kernel: `qmv_fast` of `affine_qmv_fast_float_gs_64_b_4..`. None for a kernel
/// that computes something else.
pub(crate) fn function(kernel: &str) -> Option<&str> {
    let of_mode = |mode: &QuantizationMode| kernel.strip_prefix(mode.name())?.strip_prefix('_');
    let rest = QuantizationMode::ALL.iter().find_map(of_mode)?;
    let types = ["_float_", "_float16_t_", "_bfloat16_t_"];
    let (function, _) = types.iter().find_map(|dtype| rest.split_once(dtype))?;
    // Those only round.
    (!function.contains("quantize")).then_some(function)
}

/// What a product takes on a stream of this device, as the dispatch decides it; none where the library has no policies.
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
    let architecture: Architecture = Device::Gpu
        .architecture()?
        .parse()
        .map_err(|error| Error::Invalid(format!("this GPU's architecture: {error}")))?;
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
        m: extent(rows)?,
        dtype: match dtype {
            Dtype::F16 => dispatch_plan::Dtype::Float16,
            Dtype::Bf16 => dispatch_plan::Dtype::Bfloat16,
            _ => dispatch_plan::Dtype::Float32,
        },
        ..Problem::new(architecture, extent(product.n)?, extent(product.k)?)
            .with_format(product.quantization.format())
    };
    let tile = u32::try_from(decided.tile).unwrap_or(0);
    Ok(Some(Plan::of(
        &problem,
        decided.path,
        tile,
        decided.identical,
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_read_from_names() {
        for (kernel, expected) in [
            (
                "affine_qmv_fast_bfloat16_t_gs_64_b_4_batch_0",
                Some("qmv_fast"),
            ),
            (
                "nvfp4_qmv_streamed_float_gs_16_b_4_nv_2_batch_0",
                Some("qmv_streamed"),
            ),
            ("affine_quantize_float_gs_64_b_4", None),
            ("mxfp8_quantize_dequantize_float16_t_gs_32_b_8", None),
            ("vv_Addfloat32", None),
        ] {
            assert_eq!(function(kernel), expected, "{kernel}");
        }
    }
}
