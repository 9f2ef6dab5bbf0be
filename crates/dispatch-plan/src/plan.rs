//! The plan of a product on the device.

use mlx_terms::{Mode, Path, Policy, Route};

use crate::decide::decide;
use crate::kernel::{Decision, Launch};
use crate::{Dtype, Error, Problem};

/// The plan of a product on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub path: Path,
    /// Whether it is the path's kernel for a K without a tail.
    pub fast: bool,
    /// The kernel's function, such as `qmv_fast`; empty if there is nothing to compute.
    pub function: &'static str,
    /// The kernel's name in the library.
    pub kernel: String,
    /// The most rows of x per threadgroup.
    pub tile: u32,
    /// Tiles of rows.
    pub tiles: u32,
    /// Threadgroups along x, y and z.
    pub grid: [u32; 3],
    /// Threads per threadgroup along x, y and z.
    pub group: [u32; 3],
    /// How often each product reads its weights; 0 if the indices of a gather decide.
    pub weight_passes: u32,
    /// Bytes of weights, scales and biases read in these passes.
    pub weight_bytes: u64,
    /// Whether every row has the same bits as alone; under `wide`, the same as alone under `wide`.
    pub identical: bool,
}

/// The plan of a product under a policy, with a routing table (empty: none).
///
/// # Errors
///
/// Names the field that is out of range.
pub fn plan(problem: &Problem, policy: Policy, routes: &[Route]) -> Result<Plan, Error> {
    problem.check_format()?;
    for (number, route) in routes.iter().enumerate() {
        route
            .check_format()
            .map_err(|error| Error::Invalid(format!("route {number}: {error}")))?;
    }
    let decision = decide(problem, policy, routes)?;
    Ok(Plan::of(problem, decision))
}

impl Plan {
    /// The part of the plan that a patched libmlx reports for its own device, for a product of a
    /// valid format.
    #[must_use]
    pub fn of(problem: &Problem, decision: Decision) -> Self {
        let launch = Launch::of(problem, decision);
        Self {
            path: decision.path,
            fast: decision.fast,
            identical: decision.identical,
            weight_bytes: u64::try_from(
                matrix_bytes(problem) * u128::from(launch.passes) * u128::from(problem.batch),
            )
            .unwrap_or(u64::MAX),
            weight_passes: launch.passes,
            tile: launch.tile,
            tiles: launch.tiles,
            grid: launch.grid,
            group: launch.group,
            function: launch.function,
            kernel: launch.name,
        }
    }

    /// Rows that a streamed kernel computes for `m` rows of weights with so many bits, as in streamed_tile.h: all rows
    /// of each tile. Kernels for 6 and 8 rows also have a body for one row fewer, except for 3 bits without shared x.
    #[must_use]
    pub fn computed_rows(&self, m: u32, bits: u32) -> u32 {
        let shares_x = self.group[1] != 2;
        let one_body = self.tile <= 4 || bits == 3 && !shares_x;
        let a_tile = m.div_ceil(self.tiles);
        (0..self.tiles)
            .map(|tile| {
                let count = a_tile.min(m - tile * a_tile);
                self.tile - u32::from(!one_body && count < self.tile)
            })
            .sum()
    }
}

/// Bytes of one matrix of weights with its scales and biases.
fn matrix_bytes(problem: &Problem) -> u128 {
    let weights = u128::from(problem.n) * u128::from(problem.k);
    // Affine has a scale and a bias of x's type per group, the others one byte.
    let group_bytes = match (problem.mode, problem.dtype) {
        (Mode::Affine, Dtype::Float32) => 8,
        (Mode::Affine, Dtype::Float16 | Dtype::Bfloat16) => 4,
        _ => 1,
    };
    weights * u128::from(problem.bits) / 8
        + weights / u128::from(problem.group_size.max(1)) * group_bytes
}
