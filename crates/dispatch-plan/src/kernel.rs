//! MLX's dispatch for a given path: the kernel's name, its grid, and how often it reads the
//! weights.

use mlx_terms::{Mode, Path, SizeClass};

use crate::{Dtype, Op, Problem, upstream};

/// The decision about a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub path: Path,
    /// Whether it is the path's kernel for a K without a tail.
    pub fast: bool,
    /// The most rows per threadgroup; 0 if MLX's matrix kernels decide.
    pub tile: u32,
    /// Outputs of a row that one simdgroup of a streamed kernel computes.
    pub outputs: u32,
    /// Simdgroups of a streamed kernel that share x in threadgroup memory; 0: two, each with its own.
    pub sharing: u32,
    /// Whether every row has the same bits as alone.
    pub identical: bool,
}

/// The function of a quantized product's kernel: `qmv_fast` in `affine_qmv_fast_float_gs_64_b_4..`. `None` for a kernel
/// that computes something else or only rounds.
#[must_use]
pub fn function_of(kernel: &str) -> Option<&str> {
    let of_mode = |mode: &Mode| kernel.strip_prefix(mode.name())?.strip_prefix('_');
    let rest = Mode::ALL.iter().find_map(of_mode)?;
    let types = ["_float_", "_float16_t_", "_bfloat16_t_"];
    let (function, _) = types.iter().find_map(|dtype| rest.split_once(dtype))?;
    (!function.contains("quantize")).then_some(function)
}

/// The parameters of a kernel's dispatch.
#[derive(Debug, Default)]
pub(crate) struct Launch {
    /// The kernel's function, as in `qmv_fast`.
    pub(crate) function: &'static str,
    /// Its name in the library.
    pub(crate) name: String,
    /// Rows of x per threadgroup.
    pub(crate) tile: u32,
    /// Tiles of rows.
    pub(crate) tiles: u32,
    /// Threadgroups along x, y and z.
    pub(crate) grid: [u32; 3],
    /// Threads per threadgroup along x, y and z.
    pub(crate) group: [u32; 3],
    /// How often a product reads its weights; 0 if the indices of a gather decide.
    pub(crate) passes: u32,
}

impl Launch {
    /// The dispatch of a problem with this decision; all zero if there is nothing to compute.
    pub(crate) fn of(problem: &Problem, decision: Decision) -> Self {
        let Decision {
            path, fast, tile, ..
        } = decision;
        match path {
            Path::None => Self::default(),
            Path::Quad => quad(problem),
            Path::Qmv => qmv(problem, fast),
            Path::Wide => wide(problem, tile),
            Path::Streamed | Path::StreamedAlt => streamed(problem, decision),
            Path::Rows if problem.op.gathers() => gather_rows(problem, fast),
            Path::Rows => qvm(problem),
            Path::Matrix if problem.op.gathers() => gather_qmm(problem),
            Path::Matrix => qmm(problem),
            Path::Sorted => gather_qmm_rhs(problem),
            // A path of a newer mlx-terms gets its kernels here before any code decides for it.
            _ => Self::default(),
        }
    }

    /// Row by row: one column of threadgroups per row of x.
    fn rows(
        problem: &Problem,
        outputs: u32,
        group: [u32; 3],
        function: &'static str,
        rest: &str,
    ) -> Self {
        Self {
            function,
            name: name(problem, function, rest),
            tile: 1,
            tiles: problem.m,
            grid: [problem.m, problem.n.div_ceil(outputs), problem.batch],
            group,
            passes: problem.m,
        }
    }

    /// Tiles of rows: each tile reads the weights once.
    fn tiles(
        problem: &Problem,
        tile: u32,
        outputs: u32,
        function: &'static str,
        rest: &str,
    ) -> Self {
        let tiles = problem.m.div_ceil(tile.max(1));
        Self {
            function,
            name: name(problem, function, rest),
            tile,
            tiles,
            grid: [tiles, problem.n.div_ceil(outputs.max(1)), problem.batch],
            group: [32, 2, 1],
            passes: tiles,
        }
    }

    /// Blocks of rows and outputs, the outputs along the grid's first axis.
    fn blocks(problem: &Problem, [bm, bn]: [u32; 2], function: &'static str, rest: &str) -> Self {
        let tiles = problem.m.div_ceil(bm);
        Self {
            function,
            name: name(problem, function, rest),
            tile: bm,
            tiles,
            grid: [problem.n.div_ceil(bn), tiles, problem.batch],
            group: [32, 2, 2],
            passes: tiles,
        }
    }
}

/// A type as Metal's kernels are named after it (`get_type_string`).
pub(crate) fn type_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Float32 => "float",
        Dtype::Float16 => "float16_t",
        Dtype::Bfloat16 => "bfloat16_t",
    }
}

fn name(problem: &Problem, function: &str, rest: &str) -> String {
    let dtype = type_name(problem.dtype);
    let Problem {
        mode,
        group_size,
        bits,
        ..
    } = problem;
    format!("{mode}_{function}_{dtype}_gs_{group_size}_b_{bits}{rest}")
}

fn batch(problem: &Problem) -> &'static str {
    if problem.batch > 1 {
        "_batch_1"
    } else {
        "_batch_0"
    }
}

fn scale(problem: &Problem) -> &'static str {
    if problem.global_scale { "_hgs" } else { "" }
}

fn aligned(problem: &Problem, tile: u32) -> &'static str {
    if problem.n.is_multiple_of(tile) {
        "_alN_true"
    } else {
        "_alN_false"
    }
}

fn quad(problem: &Problem) -> Launch {
    let rest = format!("_d_{}{}", problem.k, batch(problem));
    Launch::rows(problem, 64, [32, 1, 1], "qmv_quad", &rest)
}

fn qmv(problem: &Problem, fast: bool) -> Launch {
    let partial_rows = fast && !problem.n.is_multiple_of(8);
    // Fewer outputs per simdgroup on some GPUs of generation 17.
    let narrow = fast
        && problem.n >= 4096
        && problem.architecture.generation() == 17
        && problem.architecture.class() == SizeClass::Max
        && problem.mode == Mode::Nvfp4;
    let outputs = if narrow { 2 } else { 4 };
    let rest = format!(
        "{}_pr_{}_hgs_{}_r_{outputs}",
        batch(problem),
        u8::from(partial_rows),
        u8::from(problem.global_scale)
    );
    let function = if fast { "qmv_fast" } else { "qmv" };
    Launch::rows(problem, 2 * outputs, [32, 2, 1], function, &rest)
}

fn wide(problem: &Problem, tile: u32) -> Launch {
    let k_lanes = if problem.mode == Mode::Affine { 8 } else { 16 };
    let rest = format!("_nv_{tile}_kl_{k_lanes}{}", batch(problem));
    Launch::tiles(problem, tile, 2 * 32 / k_lanes, "qmv_wide", &rest)
}

fn streamed(problem: &Problem, decision: Decision) -> Launch {
    let Decision {
        tile,
        outputs,
        sharing,
        ..
    } = decision;
    let function = if decision.fast {
        "qmv_streamed_fast"
    } else {
        "qmv_streamed"
    };
    let rest = format!(
        "_nv_{tile}_r_{outputs}_s_{sharing}{}{}",
        batch(problem),
        scale(problem)
    );
    let simdgroups = if sharing > 0 { sharing } else { 2 };
    let mut launch = Launch::tiles(problem, tile, outputs * simdgroups, function, &rest);
    launch.group[1] = simdgroups;
    launch
}

fn qvm(problem: &Problem) -> Launch {
    let outputs = problem.group_size.min(32) * 2;
    if problem.k < 1024 {
        let rest = format!("{}{}", batch(problem), scale(problem));
        return Launch::rows(problem, outputs, [32, 2, 1], "qvm", &rest);
    }
    let parts = if problem.k > 8192 { 32 } else { 8 };
    let rest = format!("_spk_{parts}");
    let mut launch = Launch::rows(problem, outputs, [32, 2, 1], "qvm_split_k", &rest);
    launch.grid[2] = launch.grid[2].saturating_mul(parts);
    launch
}

fn qmm(problem: &Problem) -> Launch {
    let splits = problem.op == Op::QuantizedMatmul && problem.transpose && problem.batch == 1;
    let parts = if splits {
        upstream::split_k(problem)
    } else {
        1
    };
    if parts > 1 {
        let mut launch = Launch::blocks(problem, [32, 32], "qmm_t_splitk", aligned(problem, 32));
        launch.grid[2] = parts;
        return launch;
    }
    let nax = problem.may_take_matrix_units()
        && (problem.transpose || problem.mode == Mode::Affine && problem.n.is_multiple_of(64))
        && problem.k.is_multiple_of(64);
    let (function, bm, bn, block) = match (nax, problem.transpose) {
        (false, true) => ("qmm_t", 32, 32, String::new()),
        (false, false) => ("qmm_n", 32, 32, String::new()),
        (true, transpose) => {
            let bm = if transpose && problem.m <= 32 { 32 } else { 64 };
            let function = if transpose { "qmm_t_nax" } else { "qmm_n_nax" };
            (function, bm, 64, format!("_bm{bm}_bn64_bk64_wm2_wn2"))
        }
    };
    let alignment = if problem.transpose {
        aligned(problem, bn)
    } else {
        ""
    };
    let rest = format!("{block}{alignment}{}{}", batch(problem), scale(problem));
    Launch::blocks(problem, [bm, bn], function, &rest)
}

fn gather_rows(problem: &Problem, fast: bool) -> Launch {
    if !problem.transpose {
        let outputs = problem.group_size.min(32) * 2;
        return Launch::rows(problem, outputs, [32, 2, 1], "gather_qvm", scale(problem));
    }
    let fast = problem.n.is_multiple_of(8) && fast;
    let function = if fast {
        "gather_qmv_fast"
    } else {
        "gather_qmv"
    };
    Launch::rows(problem, 8, [32, 2, 1], function, scale(problem))
}

fn gather_qmm(problem: &Problem) -> Launch {
    if problem.may_take_matrix_units() && problem.transpose && problem.k.is_multiple_of(64) {
        let rest = format!(
            "_bm64_bn64_bk64_wm2_wn2{}{}",
            aligned(problem, 64),
            scale(problem)
        );
        return Launch::blocks(problem, [64, 64], "gather_qmm_t_nax", &rest);
    }
    let (function, alignment) = if problem.transpose {
        ("gather_qmm_t", aligned(problem, 32))
    } else {
        ("gather_qmm_n", "")
    };
    let rest = format!("{alignment}{}", scale(problem));
    Launch::blocks(problem, [32, 32], function, &rest)
}

fn gather_qmm_rhs(problem: &Problem) -> Launch {
    let nax = problem.may_take_matrix_units();
    // m is 1: the products are the rows.
    let rows = problem.batch;
    let [bm, bn] = match (nax, rows / problem.experts.max(1)) {
        (false, _) => [16, 32],
        (true, ..64) => [32, 64],
        (true, _) => [64, 64],
    };
    let (function, block) = match (nax, problem.transpose) {
        (false, true) => ("gather_qmm_rhs_nt", "_bk_32_wm_1_wn_2"),
        (false, false) => ("gather_qmm_rhs_nn", "_bk_32_wm_1_wn_2"),
        (true, true) => ("gather_qmm_rhs_nax_nt", "_bk_64_wm_2_wn_2"),
        (true, false) => ("gather_qmm_rhs_nax_nn", "_bk_64_wm_2_wn_2"),
    };
    let rest = format!("_bm_{bm}_bn_{bn}{block}{}", scale(problem));
    let tiles = rows.min(
        rows.div_ceil(bm)
            .saturating_add(problem.experts.saturating_sub(1)),
    );
    Launch {
        function,
        name: name(problem, function, &rest),
        tile: bm,
        tiles,
        grid: [problem.n.div_ceil(bn), tiles, 1],
        group: [32, 2, if nax { 2 } else { 1 }],
        passes: 0,
    }
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
                "nvfp4_qmv_streamed_float_gs_16_b_4_nv_2_r_2_s_0_batch_0",
                Some("qmv_streamed"),
            ),
            ("affine_quantize_float_gs_64_b_4", None),
            ("mxfp8_quantize_dequantize_float16_t_gs_32_b_8", None),
            ("vv_Addfloat32", None),
        ] {
            assert_eq!(function_of(kernel), expected, "{kernel}");
        }
    }
}
