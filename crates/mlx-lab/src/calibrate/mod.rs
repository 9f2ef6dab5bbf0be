//! Finds out which kernel to use for which shape, saves the result in a file, and computes how far ahead to guess.

mod choose;
mod depth;

use std::path::Path;

use mlx_overlay::{
    Array, DispatchPath, DispatchPlan, Dtype, Mask, Route, RoutePath, RowPolicy, attention,
    set_routes,
};
use serde::{Deserialize, Serialize};

use crate::bench::Cell;
use crate::machine::Machine;
use crate::model::Attention;
use crate::product::Product;
use crate::setting::Routed;
use crate::values::{Noise, settled};
use crate::{Error, Result, kernels, setting};

pub use choose::choose;
pub use depth::{Costs, Depth, best_depth};

/// The file format. Format 1 had neither mode nor group size.
const FORMAT: u32 = 2;

/// A measured preference, as it is stored in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preference {
    /// `affine`, `mxfp4`, `mxfp8` or `nvfp4`.
    pub mode: String,
    /// Bits per weight.
    pub bits: u8,
    /// Weights that share a scale.
    pub group_size: u8,
    /// Range of outputs per row.
    pub n: [i32; 2],
    /// Range of values per row.
    pub k: [i32; 2],
    /// Range of rows. Above it another path wins, or nothing was measured.
    pub m: [i32; 2],
    /// `qmv`, `qmv_wide`, `qmv_streamed` or `qmv_streamed_alt`.
    pub path: String,
    /// The smallest part of the time that the path saves compared with the choice without this entry. 0 for an entry
    /// that only hides a later one from policies that do not require the bits of one row.
    pub saves: f64,
}

/// A calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The file format.
    pub format: u32,
    /// The part of the time that a kernel must save to be preferred.
    pub margin: f64,
    /// Whether only kernels with the bits of one row were allowed to win.
    pub exact: bool,
    /// Measured kernels that are not preferred, with the reason.
    pub rejected: Vec<String>,
    /// The machine on which it was made, and for which alone it is valid.
    pub machine: Machine,
    /// The preferences, in the order in which the dispatch tries them.
    #[serde(default, rename = "route")]
    pub preferences: Vec<Preference>,
}

impl Calibration {
    /// Makes a calibration from measured cells. `sound` returns whether an arm's results are right: bit for bit if
    /// `exact` is set or the arm promises it, otherwise within a tolerance.
    ///
    /// No preference is based on a simulator's times.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid margin; the errors of `sound`.
    pub fn of(
        machine: Machine,
        cells: &[Cell],
        exact: bool,
        margin: f64,
        sound: &mut dyn FnMut(&Product, usize, RoutePath) -> Result<bool>,
    ) -> Result<Self> {
        let margin = self::margin(margin)?;
        let (preferences, rejected) = if machine.simulated {
            let reason = "simulated: no preference is based on a simulator's times";
            (Vec::new(), vec![reason.to_owned()])
        } else {
            choose(cells, exact, margin, sound)?
        };
        Ok(Self {
            format: FORMAT,
            margin,
            exact,
            rejected,
            machine,
            preferences,
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Content`].
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::File {
            path: path.to_owned(),
            error,
        })?;
        // Read first, because a file of another format may lack fields of this one.
        let Layout { format } =
            toml::from_str(&text).map_err(|error| Error::content(path, error))?;
        if format != FORMAT {
            return Err(Error::content(
                path,
                format!("format {format}, expected {FORMAT}: calibrate again"),
            ));
        }
        toml::from_str(&text).map_err(|error| Error::content(path, error))
    }

    /// The file's text.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String> {
        let body = toml::to_string(self).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(format!(
            "# Written by `mlx-lab calibrate`. Valid only for this machine and this build of MLX.\n{body}"
        ))
    }

    /// The preferences in the form that the dispatch accepts.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown mode or path.
    pub fn routes(&self) -> Result<Vec<Route>> {
        let route = |entry: &Preference| {
            Ok(Route {
                mode: Some(entry.mode.parse()?),
                bits: Some(entry.bits),
                group_size: Some(entry.group_size),
                n: entry.n[0]..=entry.n[1],
                k: entry.k[0]..=entry.k[1],
                m: entry.m[0]..=entry.m[1],
                path: entry.path.parse()?,
            })
        };
        self.preferences.iter().map(route).collect()
    }

    /// Installs the preferences in the dispatch of this process, replacing its current ones.
    ///
    /// # Errors
    /// [`Error::ForeignCalibration`] if it was made on another device or with another MLX;
    /// [`mlx_overlay::Error::NoPolicies`].
    pub fn install(&self) -> Result<()> {
        let here = Machine::here()?;
        let place = |machine: &Machine| {
            format!(
                "{}, {}, tree {}",
                machine.place(),
                if machine.jit {
                    "JIT"
                } else {
                    "compiled kernels"
                },
                machine.tree
            )
        };
        if place(&here) != place(&self.machine) {
            return Err(Error::ForeignCalibration {
                expected: place(&self.machine),
                found: place(&here),
            });
        }
        Ok(set_routes(&self.routes()?)?)
    }
}

/// Checks a margin and returns it.
///
/// # Errors
/// [`Error::Invalid`] if it is out of range.
pub fn margin(part: f64) -> Result<f64> {
    if (0.0..1.0).contains(&part) {
        Ok(part)
    } else {
        Err(Error::Invalid(format!(
            "the margin must be from 0 to below 1; found {part}"
        )))
    }
}

/// The field that every format of the file has.
#[derive(Deserialize)]
struct Layout {
    format: u32,
}

/// Whether a path's rows are right for a product: bit for bit, or within rounding for `qmv_wide`. Computes the fewest
/// outputs, but at least `outputs`, that use the same kernels as all outputs. A path that the product does not use is
/// not right.
///
/// To examine the other arrangement of the streamed kernels, this replaces the process's routing table, which is empty
/// afterwards.
///
/// # Errors
/// MLX's.
pub fn sound(product: &Product, rows: usize, path: RoutePath, outputs: usize) -> Result<bool> {
    const DTYPE: Dtype = Dtype::F32;
    let policy = match path {
        RoutePath::Qmv => RowPolicy::NARROW,
        RoutePath::Wide => RowPolicy::DEFAULT,
        RoutePath::Streamed | RoutePath::StreamedAlt => RowPolicy::EXACT,
    };
    let stream = setting::stream(policy)?;
    let default = setting::stream(RowPolicy::DEFAULT)?;
    // Only a route selects that path.
    let _routed = match path {
        RoutePath::StreamedAlt => Some(Routed::new(product, path)?),
        _ => None,
    };
    let shape = [rows, product.n, product.k];
    let decided = DispatchPlan::of(shape, product.quantization, DTYPE, &stream)?;
    if decided.path != DispatchPath::from(path) {
        return Ok(false);
    }
    let taken = |part: &Product| {
        let of = |rows, stream| {
            let plan = kernels::plan(part, DTYPE, rows, stream)?;
            Ok::<_, Error>(plan.map(|plan| plan.kernel))
        };
        Ok::<_, Error>([of(rows, &stream)?, of(1, &default)?])
    };
    let whole = taken(product)?;
    let n = kernels::fewest_outputs(product, Some(outputs), |part| Ok(taken(part)? == whole))?;
    let mut noise = Noise::new(7);
    let matrix = noise.matrix([n, product.k], product.quantization, DTYPE, 1.0)?;
    let x = noise.array(&[rows, product.k], 1.0, DTYPE)?;
    let together = stream.scope(|| mlx_overlay::quantized_matmul(&x, &matrix)?.to_vec::<f32>())?;
    for (row, together) in together.chunks(n).enumerate() {
        let alone = default.scope(|| {
            let x = mlx_overlay::slice(&x, &[row..row + 1, 0..product.k])?;
            mlx_overlay::quantized_matmul(&x, &matrix)?.to_vec::<f32>()
        })?;
        let largest = alone.iter().fold(0f32, |most, y| most.max(y.abs()));
        // The same sums of K terms in another order.
        let allowed = largest * f32::EPSILON * (product.k as f32).sqrt() * 4.0;
        let right = |(a, b): (&f32, &f32)| match path {
            RoutePath::Wide => (a - b).abs() <= allowed,
            _ => a.to_bits() == b.to_bits(),
        };
        if !alone.iter().zip(together).all(right) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The seconds that attention takes for a block of rows at a context length: the median over chains in which each
/// output is the next query.
///
/// # Errors
/// MLX's.
pub fn attention_seconds(
    shape: Attention,
    rows: usize,
    context: usize,
    repeats: usize,
) -> Result<f64> {
    const LENGTH: usize = 8;
    if shape.value_dim != shape.head_dim {
        return Err(Error::Invalid(format!(
            "heads of {} and values of {}: outputs are not queries, so their chain cannot be measured",
            shape.head_dim, shape.value_dim
        )));
    }
    let stream = setting::stream(RowPolicy::DEFAULT)?;
    let mut noise = Noise::new(3);
    let dtype = Dtype::Bf16;
    stream.scope(|| {
        let query = [1, shape.heads, rows, shape.head_dim];
        let cache = [1, shape.kv_heads, context.max(rows), shape.head_dim];
        let q = noise.array(&query, 1.0, dtype)?;
        let k = settled(&noise.array(&cache, 1.0, dtype)?)?;
        let v = settled(&noise.array(&cache, 1.0, dtype)?)?;
        let scale = 1.0 / (shape.head_dim as f32).sqrt();
        let mut times = Vec::new();
        for _ in 0..=repeats {
            let mut x: Array = q.clone();
            for _ in 0..LENGTH {
                x = attention(&x, &k, &v, scale, Mask::Causal, None)?;
            }
            let start = std::time::Instant::now();
            mlx_overlay::eval([&x])?;
            times.push(start.elapsed().as_secs_f64());
        }
        // The first run compiles the pipeline.
        let spread = crate::bench::Spread::of(&times[1..], LENGTH);
        spread
            .map(|spread| spread.median)
            .ok_or_else(|| Error::Invalid("no repeats to measure attention with".to_owned()))
    })
}
