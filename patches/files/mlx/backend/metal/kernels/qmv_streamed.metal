// clang-format off
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/gemm/gemm.h"
#include "mlx/backend/metal/kernels/quantized_utils.h"
#include "mlx/backend/metal/kernels/quantized.h"
#include "mlx/backend/metal/kernels/qmv_streamed.h"

// The tiles and their arrangements are those of qmv_plan.cpp: `outputs` per
// simdgroup, and `sharing` simdgroups that share x.
#define instantiate_qmv_streamed(function, type, group_size, bits, tile, outputs, sharing, fast, batched)                         \
  instantiate_kernel(                                                                                                             \
      "affine_" #function "_" #type "_gs_" #group_size "_b_" #bits "_nv_" #tile "_r_" #outputs "_s_" #sharing "_batch_" #batched, \
      affine_qmv_streamed,                                                                                                        \
      type,                                                                                                                       \
      group_size,                                                                                                                 \
      bits,                                                                                                                       \
      tile,                                                                                                                       \
      outputs,                                                                                                                    \
      sharing,                                                                                                                    \
      fast,                                                                                                                       \
      batched)

// For single products.
#define instantiate_qmv_streamed_single(type, group_size, bits, tile, outputs, sharing)                \
  instantiate_qmv_streamed(qmv_streamed_fast, type, group_size, bits, tile, outputs, sharing, true, 0) \
  instantiate_qmv_streamed(qmv_streamed, type, group_size, bits, tile, outputs, sharing, false, 0)

#define instantiate_qmv_streamed_tile(type, group_size, bits, tile, outputs, sharing)                  \
  instantiate_qmv_streamed_single(type, group_size, bits, tile, outputs, sharing)                      \
  instantiate_qmv_streamed(qmv_streamed_fast, type, group_size, bits, tile, outputs, sharing, true, 1) \
  instantiate_qmv_streamed(qmv_streamed, type, group_size, bits, tile, outputs, sharing, false, 1)

#define instantiate_qmv_streamed_small_tiles(type, group_size, bits) \
  instantiate_qmv_streamed_tile(type, group_size, bits, 2, 4, 4)     \
  instantiate_qmv_streamed_tile(type, group_size, bits, 3, 4, 4)     \
  instantiate_qmv_streamed_tile(type, group_size, bits, 4, 4, 4)     \
  instantiate_qmv_streamed_single(type, group_size, bits, 2, 2, 0)   \
  instantiate_qmv_streamed_single(type, group_size, bits, 3, 2, 0)   \
  instantiate_qmv_streamed_single(type, group_size, bits, 4, 2, 0)

#define instantiate_qmv_streamed_bits(type, group_size, bits)      \
  instantiate_qmv_streamed_small_tiles(type, group_size, bits)     \
  instantiate_qmv_streamed_tile(type, group_size, bits, 6, 4, 4)   \
  instantiate_qmv_streamed_tile(type, group_size, bits, 8, 4, 4)   \
  instantiate_qmv_streamed_single(type, group_size, bits, 6, 2, 0) \
  instantiate_qmv_streamed_single(type, group_size, bits, 8, 2, 0)

#define instantiate_qmv_streamed_nibbles(type, group_size, bits)   \
  instantiate_qmv_streamed_small_tiles(type, group_size, bits)     \
  instantiate_qmv_streamed_tile(type, group_size, bits, 6, 4, 4)   \
  instantiate_qmv_streamed_tile(type, group_size, bits, 8, 4, 8)   \
  instantiate_qmv_streamed_single(type, group_size, bits, 6, 2, 0) \
  instantiate_qmv_streamed_single(type, group_size, bits, 8, 2, 0)

#define instantiate_qmv_streamed_bytes(type, group_size, bits)   \
  instantiate_qmv_streamed_tile(type, group_size, bits, 2, 4, 0) \
  instantiate_qmv_streamed_tile(type, group_size, bits, 3, 4, 0) \
  instantiate_qmv_streamed_tile(type, group_size, bits, 4, 4, 0) \
  instantiate_qmv_streamed_tile(type, group_size, bits, 6, 4, 0) \
  instantiate_qmv_streamed_tile(type, group_size, bits, 8, 4, 0)

#define instantiate_qmv_streamed_types(tiles, group_size, bits) \
  instantiate_qmv_streamed_##tiles(float, group_size, bits)     \
  instantiate_qmv_streamed_##tiles(float16_t, group_size, bits) \
  instantiate_qmv_streamed_##tiles(bfloat16_t, group_size, bits)

#define instantiate_qmv_streamed_groups(tiles, bits) \
  instantiate_qmv_streamed_types(tiles, 128, bits)   \
  instantiate_qmv_streamed_types(tiles, 64, bits)    \
  instantiate_qmv_streamed_types(tiles, 32, bits)

instantiate_qmv_streamed_groups(small_tiles, 1)
instantiate_qmv_streamed_groups(bits, 2)
instantiate_qmv_streamed_groups(bits, 3)
instantiate_qmv_streamed_groups(nibbles, 4)
instantiate_qmv_streamed_groups(bits, 5)
instantiate_qmv_streamed_groups(bits, 6)
instantiate_qmv_streamed_groups(bytes, 8) // clang-format on
