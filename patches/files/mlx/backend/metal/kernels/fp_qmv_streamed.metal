// clang-format off
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"
#include "mlx/backend/metal/kernels/quantized_utils.h"
#include "mlx/backend/metal/kernels/fp_quantized.h"
#include "mlx/backend/metal/kernels/fp_qmv_streamed.h"

// The tiles and their arrangements are those of qmv_plan.cpp: `outputs` per
// simdgroup, and `sharing` simdgroups that share x.
#define instantiate_fp_qmv_streamed(mode, function, type, group_size, bits, tile, outputs, sharing, fast, batched, suffix, global_scale) \
  instantiate_kernel(                                                                                                                    \
      #mode "_" #function "_" #type "_gs_" #group_size "_b_" #bits "_nv_" #tile "_r_" #outputs "_s_" #sharing "_batch_" #batched suffix, \
      fp_qmv_streamed,                                                                                                                   \
      type,                                                                                                                              \
      group_size,                                                                                                                        \
      bits,                                                                                                                              \
      tile,                                                                                                                              \
      outputs,                                                                                                                           \
      sharing,                                                                                                                           \
      fast,                                                                                                                              \
      batched,                                                                                                                           \
      global_scale)

#define instantiate_fp_qmv_streamed_tile(mode, type, group_size, bits, tile, outputs, sharing, batched, suffix, global_scale)               \
  instantiate_fp_qmv_streamed(mode, qmv_streamed_fast, type, group_size, bits, tile, outputs, sharing, true, batched, suffix, global_scale) \
  instantiate_fp_qmv_streamed(mode, qmv_streamed, type, group_size, bits, tile, outputs, sharing, false, batched, suffix, global_scale)

#define instantiate_fp_qmv_streamed_tiles(mode, type, group_size, bits, outputs, sharing, batched, suffix, global_scale) \
  instantiate_fp_qmv_streamed_tile(mode, type, group_size, bits, 2, outputs, sharing, batched, suffix, global_scale)     \
  instantiate_fp_qmv_streamed_tile(mode, type, group_size, bits, 3, outputs, sharing, batched, suffix, global_scale)     \
  instantiate_fp_qmv_streamed_tile(mode, type, group_size, bits, 4, outputs, sharing, batched, suffix, global_scale)     \
  instantiate_fp_qmv_streamed_tile(mode, type, group_size, bits, 6, outputs, sharing, batched, suffix, global_scale)     \
  instantiate_fp_qmv_streamed_tile(mode, type, group_size, bits, 8, outputs, sharing, batched, suffix, global_scale)

// Products with a global scale have no batch: qqmm takes matrices.
#define instantiate_fp_qmv_streamed_modes(type)                                \
  instantiate_fp_qmv_streamed_tiles(mxfp4, type, 32, 4, 4, 4, 0, "", false)    \
  instantiate_fp_qmv_streamed_tiles(mxfp4, type, 32, 4, 4, 4, 1, "", false)    \
  instantiate_fp_qmv_streamed_tiles(mxfp4, type, 32, 4, 2, 0, 0, "", false)    \
  instantiate_fp_qmv_streamed_tiles(mxfp8, type, 32, 8, 4, 0, 0, "", false)    \
  instantiate_fp_qmv_streamed_tiles(mxfp8, type, 32, 8, 4, 0, 1, "", false)    \
  instantiate_fp_qmv_streamed_tiles(nvfp4, type, 16, 4, 4, 4, 0, "", false)    \
  instantiate_fp_qmv_streamed_tiles(nvfp4, type, 16, 4, 4, 4, 1, "", false)    \
  instantiate_fp_qmv_streamed_tiles(nvfp4, type, 16, 4, 2, 0, 0, "", false)    \
  instantiate_fp_qmv_streamed_tiles(nvfp4, type, 16, 4, 4, 4, 0, "_hgs", true) \
  instantiate_fp_qmv_streamed_tiles(nvfp4, type, 16, 4, 2, 0, 0, "_hgs", true)

instantiate_fp_qmv_streamed_modes(float)
instantiate_fp_qmv_streamed_modes(float16_t)
instantiate_fp_qmv_streamed_modes(bfloat16_t) // clang-format on
