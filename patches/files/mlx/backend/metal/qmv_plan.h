// Which kernel a quantized product takes, as a pure function.
//
// MLX's Metal back-end asks this file when it dispatches, and anyone may ask it
// without a device: it includes nothing of MLX, compiles alone and has a C
// interface. Functions that can fail return 0 on success and -1 on an error,
// which `mlx_qmv_last_error` then explains.

#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MLX_QMV_API __attribute__((visibility("default")))

/// Who decides between kernels that compute the same product.
enum {
  /// MLX's own choice.
  MLX_QMV_POLICY_DEFAULT = 0,
  /// One-row kernels for every row below the batch limit: each row has the
  /// bits of its M = 1 result, and the weights are read once a row.
  MLX_QMV_POLICY_NARROW = 1,
  /// Order-preserving kernels below the batch limit: the same bits, and the
  /// weights are read once for up to MLX_QMV_STREAMED_ROWS rows.
  MLX_QMV_POLICY_STREAMED = 2,
  /// As streamed, at any M: no matrix kernel is taken, so a row's bits depend
  /// on nothing but that row.
  MLX_QMV_POLICY_EXACT = 3,
};

/// The most rows that one pass over the weights serves under `streamed`.
#define MLX_QMV_STREAMED_ROWS 8

/// The primitive that computes the product.
enum {
  MLX_QMV_OP_QUANTIZED_MATMUL = 0,
  MLX_QMV_OP_GATHER_QMM = 1,
  MLX_QMV_OP_QQ_MATMUL = 2,
  MLX_QMV_OP_GATHER_QQMM = 3,
};

/// Quantization modes, in the order of mlx::core::QuantizationMode.
enum {
  /// Every mode, in a routing table.
  MLX_QMV_MODE_ANY = -1,
  MLX_QMV_MODE_AFFINE = 0,
  MLX_QMV_MODE_MXFP4 = 1,
  MLX_QMV_MODE_MXFP8 = 2,
  MLX_QMV_MODE_NVFP4 = 3,
};

/// The type of x, of the result and, for affine, of scales and biases.
enum {
  MLX_QMV_DTYPE_FLOAT32 = 0,
  MLX_QMV_DTYPE_FLOAT16 = 1,
  MLX_QMV_DTYPE_BFLOAT16 = 2,
};

/// Kernel families.
enum {
  MLX_QMV_PATH_NONE = 0, // nothing to compute
  MLX_QMV_PATH_QUAD,
  MLX_QMV_PATH_QMV,
  MLX_QMV_PATH_WIDE,
  MLX_QMV_PATH_STREAMED,
  MLX_QMV_PATH_QVM,
  MLX_QMV_PATH_QVM_SPLIT_K,
  MLX_QMV_PATH_QMM,
  MLX_QMV_PATH_QMM_SPLIT_K,
  MLX_QMV_PATH_GATHER_QMV,
  MLX_QMV_PATH_GATHER_QVM,
  MLX_QMV_PATH_GATHER_QMM,
  MLX_QMV_PATH_GATHER_QMM_RHS,
  MLX_QMV_PATH_COUNT,
};

/// One quantized product: x of (batch, m, k) times weights of n rows of k
/// values (of k rows of n values without `transpose`).
typedef struct mlx_qmv_problem {
  int32_t op; // MLX_QMV_OP_*
  int32_t mode; // MLX_QMV_MODE_*
  int32_t dtype; // MLX_QMV_DTYPE_*
  int32_t bits; // bits a weight
  int32_t group_size; // weights that share a scale
  int32_t transpose; // 1: the weights are (n, k)
  int32_t m; // rows of x that meet the same weights
  int32_t n; // outputs a row
  int32_t k; // values a row
  int32_t batch; // products, each with m rows
  int32_t experts; // matrices among which a gather picks; else 1
  int32_t right_sorted; // gather: the right-hand indices are sorted
  int32_t global_scale; // 1: nvfp4 with a per-tensor scale
  /// 1: above the batch limit a matrix kernel exists for this product. The
  /// primitives that quantize x have one for some products only.
  int32_t matrix_kernels;
  int32_t arch_generation; // 15 of applegpu_g15d
  int32_t arch_size; // 'd' of applegpu_g15d
  int32_t nax; // 1: the device has matrix units that MLX uses
  int32_t tf32; // 1: they may serve float32
  /// The M from which MLX takes matrix kernels; 0: as the architecture says.
  int32_t batch_limit;
  int32_t stream; // Stream::index during an evaluation, else -1
} mlx_qmv_problem;

/// A measured preference: products of this format and within all the ranges
/// (both ends included) take `path`, provided the policy in force permits it.
typedef struct mlx_qmv_route {
  int32_t mode; // MLX_QMV_MODE_*
  int32_t bits; // 0: any
  int32_t group_size; // 0: any
  int32_t n_min, n_max;
  int32_t k_min, k_max;
  int32_t m_min, m_max;
  int32_t path; // MLX_QMV_PATH_QMV, _WIDE or _STREAMED
} mlx_qmv_route;

/// What a product does on the device.
typedef struct mlx_qmv_plan {
  int32_t path; // MLX_QMV_PATH_*
  int32_t policy; // the policy that it was made under
  int32_t tile; // rows of x that one threadgroup serves
  int32_t tiles; // ceil(m / tile)
  int32_t grid[3]; // threadgroups
  int32_t group[3]; // threads a threadgroup
  /// How often a product reads its weights; 0 where the indices of a gather
  /// decide.
  int32_t weight_passes;
  /// 1: every row has the bits that the M = 1 product gives it.
  int32_t identical;
  /// Bytes of weights, scales and biases read in these passes, all products.
  int64_t weight_bytes;
  char kernel[128]; // the kernel's name in the library
} mlx_qmv_plan;

/// What is wrong with the calling thread's last failed call.
MLX_QMV_API const char* mlx_qmv_last_error(void);

/// The policy of that name, or -1: default, narrow, streamed, exact.
MLX_QMV_API int32_t mlx_qmv_policy_from_name(const char* name);

/// The name of a policy, or NULL if there is none of that value.
MLX_QMV_API const char* mlx_qmv_policy_name(int32_t policy);

/// The name of a kernel family, or NULL.
MLX_QMV_API const char* mlx_qmv_path_name(int32_t path);

/// A product without batch on a device of that name (applegpu_g15d) that runs
/// an OS without support for its matrix units; further fields are the
/// caller's to change.
MLX_QMV_API int mlx_qmv_problem_init(
    mlx_qmv_problem* problem,
    const char* architecture);

/// The plan of a product under a policy. `routes` may be NULL with a count
/// of 0.
MLX_QMV_API int mlx_qmv_plan_product(
    const mlx_qmv_problem* problem,
    int32_t policy,
    const mlx_qmv_route* routes,
    size_t route_count,
    mlx_qmv_plan* plan);

/// Whether a routing table makes sense, entry by entry.
MLX_QMV_API int mlx_qmv_check_routes(
    const mlx_qmv_route* routes,
    size_t route_count);

#ifdef __cplusplus
} // extern "C"

#include <string>

namespace mlx::core {

/// Sets what `mlx_qmv_last_error` returns on this thread, and returns -1.
int qmv_fail(std::string message);

/// The rows from which on matrix kernels are taken: `upstream`, or never.
int qmv_batch_limit(int policy, int upstream);

/// The kernel family of a product below its batch limit with the weights
/// transposed: quad, one-row, wide or streamed.
int qmv_path(
    const mlx_qmv_problem& problem,
    int policy,
    const mlx_qmv_route* routes,
    size_t route_count);

/// The kernel, grid and traffic of a product that takes a given family.
mlx_qmv_plan qmv_describe(const mlx_qmv_problem& problem, int policy, int path);

/// Whether products of this k and width take qmv_fast at M = 1.
bool qmv_is_fast(int bits, int k);

} // namespace mlx::core

#endif // __cplusplus
