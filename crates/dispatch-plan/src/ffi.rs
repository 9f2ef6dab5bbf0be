//! The C interface of `mlx/backend/metal/qmv_plan.h`, declared field by field.

use std::ffi::c_char;

/// `mlx_qmv_problem`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Problem {
    pub(crate) op: i32,
    pub(crate) mode: i32,
    pub(crate) dtype: i32,
    pub(crate) bits: i32,
    pub(crate) group_size: i32,
    pub(crate) transpose: i32,
    pub(crate) m: i32,
    pub(crate) n: i32,
    pub(crate) k: i32,
    pub(crate) batch: i32,
    pub(crate) experts: i32,
    pub(crate) right_sorted: i32,
    pub(crate) global_scale: i32,
    pub(crate) matrix_kernels: i32,
    pub(crate) arch_generation: i32,
    pub(crate) arch_size: i32,
    pub(crate) nax: i32,
    pub(crate) tf32: i32,
    pub(crate) batch_limit: i32,
    pub(crate) stream: i32,
}

/// `mlx_qmv_route`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    pub(crate) mode: i32,
    pub(crate) bits: i32,
    pub(crate) group_size: i32,
    pub(crate) n: [i32; 2],
    pub(crate) k: [i32; 2],
    pub(crate) m: [i32; 2],
    pub(crate) path: i32,
}

/// `mlx_qmv_plan`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) path: i32,
    pub(crate) policy: i32,
    pub(crate) tile: i32,
    pub(crate) tiles: i32,
    pub(crate) grid: [i32; 3],
    pub(crate) group: [i32; 3],
    pub(crate) weight_passes: i32,
    pub(crate) identical: i32,
    pub(crate) weight_bytes: i64,
    pub(crate) kernel: [u8; 128],
}

unsafe extern "C" {
    pub(crate) fn mlx_qmv_last_error() -> *const c_char;
    #[cfg(test)]
    pub(crate) fn mlx_qmv_path_name(path: i32) -> *const c_char;
    #[cfg(test)]
    pub(crate) fn mlx_qmv_check_routes(routes: *const Route, route_count: usize) -> i32;
    pub(crate) fn mlx_qmv_problem_init(problem: *mut Problem, architecture: *const c_char) -> i32;
    pub(crate) fn mlx_qmv_plan_product(
        problem: *const Problem,
        policy: i32,
        routes: *const Route,
        route_count: usize,
        plan: *mut Plan,
    ) -> i32;
}
