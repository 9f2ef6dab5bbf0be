// clang-format off
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"
#include "mlx/backend/metal/kernels/quantized_utils.h"
#include "mlx/backend/metal/kernels/quantized.h"
#include "mlx/backend/metal/kernels/qmv_streamed.h"

// The tiles must be those of streamed_tiles in qmv_plan.cpp.
#define instantiate_qmv_streamed(function, type, group_size, bits, tile, fast, batched)          \
  instantiate_kernel(                                                                            \
      "affine_" #function "_" #type "_gs_" #group_size "_b_" #bits "_nv_" #tile "_batch_" #batched, \
      affine_qmv_streamed,                                                                       \
      type,                                                                                      \
      group_size,                                                                                \
      bits,                                                                                      \
      tile,                                                                                      \
      fast,                                                                                      \
      batched)

#define instantiate_qmv_streamed_tile(type, group_size, bits, tile)                     \
  instantiate_qmv_streamed(qmv_streamed_fast, type, group_size, bits, tile, true, 0)    \
  instantiate_qmv_streamed(qmv_streamed_fast, type, group_size, bits, tile, true, 1)    \
  instantiate_qmv_streamed(qmv_streamed, type, group_size, bits, tile, false, 0)        \
  instantiate_qmv_streamed(qmv_streamed, type, group_size, bits, tile, false, 1)

#define instantiate_qmv_streamed_tiles(type, group_size, bits) \
  instantiate_qmv_streamed_tile(type, group_size, bits, 2)     \
  instantiate_qmv_streamed_tile(type, group_size, bits, 3)     \
  instantiate_qmv_streamed_tile(type, group_size, bits, 4)     \
  instantiate_qmv_streamed_tile(type, group_size, bits, 6)     \
  instantiate_qmv_streamed_tile(type, group_size, bits, 8)

#define instantiate_qmv_streamed_types(group_size, bits)       \
  instantiate_qmv_streamed_tiles(float, group_size, bits)      \
  instantiate_qmv_streamed_tiles(float16_t, group_size, bits)  \
  instantiate_qmv_streamed_tiles(bfloat16_t, group_size, bits)

#define instantiate_qmv_streamed_groups(bits) \
  instantiate_qmv_streamed_types(128, bits)   \
  instantiate_qmv_streamed_types(64, bits)    \
  instantiate_qmv_streamed_types(32, bits)

instantiate_qmv_streamed_groups(1)
instantiate_qmv_streamed_groups(2)
instantiate_qmv_streamed_groups(3)
instantiate_qmv_streamed_groups(4)
instantiate_qmv_streamed_groups(5)
instantiate_qmv_streamed_groups(6)
instantiate_qmv_streamed_groups(8) // clang-format on
