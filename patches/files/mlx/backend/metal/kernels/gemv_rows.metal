// clang-format off
#include <metal_simdgroup>
#include <metal_stdlib>

#include "mlx/backend/metal/kernels/gemv.h"
#include "mlx/backend/metal/kernels/gemv_rows.h"

#define instantiate_gemv_rows(func, name, type, bm, bn, sm, sn, tm, tn, tile) \
  instantiate_kernel(                                                         \
      #func "_" #name "_bm" #bm "_bn" #bn "_sm" #sm "_sn" #sn                 \
      "_tm" #tm "_tn" #tn "_nv" #tile,                                        \
      func, type, bm, bn, sm, sn, tm, tn, tile)

#define instantiate_gemv_rows_tiles(func, name, type, bm, bn, sm, sn, tm, tn) \
  instantiate_gemv_rows(func, name, type, bm, bn, sm, sn, tm, tn, 2)          \
  instantiate_gemv_rows(func, name, type, bm, bn, sm, sn, tm, tn, 3)          \
  instantiate_gemv_rows(func, name, type, bm, bn, sm, sn, tm, tn, 4)          \
  instantiate_gemv_rows(func, name, type, bm, bn, sm, sn, tm, tn, 6)          \
  instantiate_gemv_rows(func, name, type, bm, bn, sm, sn, tm, tn, 8)

// The tiles that gemv_axbpy takes for several outputs.
#define instantiate_gemv_rows_all(name, type)                             \
  instantiate_gemv_rows_tiles(gemv_rows, name, type, 1, 8, 1, 32, 4, 4)   \
  instantiate_gemv_rows_tiles(gemv_rows, name, type, 1, 8, 1, 32, 1, 4)   \
  instantiate_gemv_rows_tiles(gemv_rows, name, type, 1, 1, 8, 4, 4, 4)    \
  instantiate_gemv_rows_tiles(gemv_rows, name, type, 1, 1, 8, 4, 1, 4)    \
  instantiate_gemv_rows_tiles(gemv_rows, name, type, 4, 1, 1, 32, 4, 4)   \
  instantiate_gemv_rows_tiles(gemv_rows, name, type, 8, 1, 1, 32, 4, 4)   \
  instantiate_gemv_rows_tiles(gemv_t_rows, name, type, 1, 2, 8, 4, 4, 1)  \
  instantiate_gemv_rows_tiles(gemv_t_rows, name, type, 1, 2, 8, 4, 4, 4)  \
  instantiate_gemv_rows_tiles(gemv_t_rows, name, type, 1, 4, 8, 4, 4, 4)  \
  instantiate_gemv_rows_tiles(gemv_t_rows, name, type, 1, 16, 8, 4, 4, 4) \
  instantiate_gemv_rows_tiles(gemv_t_rows, name, type, 1, 16, 4, 8, 4, 4)

instantiate_gemv_rows_all(float32, float)
instantiate_gemv_rows_all(float16, half)
instantiate_gemv_rows_all(bfloat16, bfloat16_t)
