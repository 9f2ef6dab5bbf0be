#include <metal_stdlib>

// clang-format off
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/sdpa_rows.h"

// P: rows that share loads; registers decide (see sdpa_rows.h).
#define instantiate_sdpa_rows(type, dim, g, hpt, p)                        \
  instantiate_kernel(                                                      \
      "sdpa_vector_2pass_1_gqa_rows_" #g "_" #type "_" #dim "_" #dim,      \
      sdpa_vector_2pass_1_gqa_rows, type, dim, g, hpt, p)

#define instantiate_sdpa_rows_all(type)        \
  instantiate_sdpa_rows(type, 64, 8, 8, 2)     \
  instantiate_sdpa_rows(type, 128, 8, 4, 2)    \
  instantiate_sdpa_rows(type, 128, 12, 4, 2)   \
  instantiate_sdpa_rows(type, 128, 16, 2, 4)

instantiate_sdpa_rows_all(float)
instantiate_sdpa_rows_all(bfloat16_t)
instantiate_sdpa_rows_all(float16_t)
