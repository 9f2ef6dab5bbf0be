//! Measures what a program gains from the patched MLX, and checks whether any bits changed. For people at a terminal
//! (the binary `mlx-lab`), and for servers that decide automatically.
//!
//! - [`probe`]: does a row of a block have the same bits as alone, and under which policy?
//! - [`bench`](mod@bench): how long do products of several rows take, kernel by kernel?
//! - [`calibrate`]: which kernel to use for which shape, as a file, and how far to guess ahead.
//! - [`mixed`]: what does a stream under an exact policy cost the other streams of the process?
//!
//! The library prints nothing. A time counts as a GPU's only if a GPU took it: see [`machine::Machine::simulated`].
//!
//! # In a server
//!
//! ```
//! use mlx_overlay::RowPolicy;
//! use mlx_lab::{probe, setting};
//!
//! # fn main() -> mlx_lab::Result<()> {
//! let layers = [probe::Layer { product: "mlp=64x512:4:64".parse()?, count: 36 }];
//! let options = probe::Options { rows: vec![2, 4], seeds: 1, ..probe::Options::new()? };
//! let report = probe::products(&layers, &options, &mut |_, _| ())?;
//! let policy = report.recommended().map_or(Ok(RowPolicy::DEFAULT), str::parse)?;
//! let stream = setting::stream(policy)?;
//! # let _ = stream;
//! // Later: did the verify pass use the kernels that were probed?
//! # if report.recommended().is_some() && mlx_overlay::has_policies() {
//! let (_, kernels) = mlx_overlay::record_kernels(|| {
//!     // .. a verify pass of 4 rows on `stream` ..
//! })?;
//! report.certificate(policy)?.check(4, kernels)?;
//! # }
//! # Ok(())
//! # }
//! ```

mod error;
mod kernels;
mod saved;

pub mod bench;
pub mod calibrate;
pub mod machine;
pub mod mixed;
pub mod model;
pub mod probe;
pub mod product;
pub mod setting;
pub mod values;

pub use error::{Error, Result};
pub use saved::Layout;

/// The default matrices to measure, in these formats: a language model's head and MLP, a fused projection, and two that
/// fit into a cache.
///
/// # Errors
/// [`Error::Product`] if the group size does not divide 2560.
pub fn shapes(formats: &[mlx_overlay::Quantization]) -> Result<Vec<product::Product>> {
    let mut products = Vec::new();
    for &format in formats {
        for (name, n, k) in [
            ("head", 248_320, 2_560),
            ("mlp", 17_408, 5_120),
            ("qkv", 15_360, 3_840),
            ("square", 4_096, 4_096),
            ("kv", 1_024, 4_096),
        ] {
            products.push(product::Product::new(n, k, format)?.named(name));
        }
    }
    Ok(products)
}
