// Entry points for the GPU: MLX's kernels for one row and for several, and the
// overlay's streamed kernels. Their arguments are bound as the dispatch binds
// them for one product, or for a batch of products stored one after another;
// the depth of the grid is the size of the batch. Included after the kernels'
// own headers, either the affine or the fp ones. Here both take their arguments
// in the same order, so that the host launches them in the same way.
#pragma once

#define QMV_ENTRY(name, T, simdgroups)                                  \
  extern "C" __global__ __launch_bounds__(32 * (simdgroups)) void name( \
      const uint32_t* w,                                                \
      const T* scales,                                                  \
      const T* biases,                                                  \
      const T* x,                                                       \
      T* y,                                                             \
      int k,                                                            \
      int n,                                                            \
      int m,                                                            \
      int tile_rows)

#define QMV_ARGUMENTS w, scales, biases, x, y, k, n

// The arguments that only batched kernels read, to find their product: for a
// batch of one dimension the strides and M, but not its extent.
#define QMV_STRIDES(group_size, bits)                            \
  const int x_shape[] = {0, m};                                  \
  const int64_t x_strides[] = {int64_t(m) * k};                  \
  const int w_shape[] = {0};                                     \
  const int64_t w_strides[] = {int64_t(n) * k / 32 * (bits)};    \
  const int64_t s_strides[] = {int64_t(n) * (k / (group_size))}; \
  const int64_t* b_strides = s_strides;                          \
  (void)b_strides
#define QMV_BATCH \
  1, x_shape, x_strides, 1, w_shape, w_strides, s_strides, b_strides
#define QMV_POSITION                             \
  mtlcuda::threadgroup_position_in_grid(),       \
      mtlcuda::simdgroup_index_in_threadgroup(), \
      mtlcuda::thread_index_in_simdgroup()

// `function` is affine_qmv_fast or affine_qmv. One column of threadgroups per
// row of x.
#define QMV_ONE_ROW(                                            \
    name, function, T, group_size, bits, partial_rows, batched) \
  QMV_ENTRY(name, T, 2) {                                       \
    QMV_STRIDES(group_size, bits);                              \
    function<T, group_size, bits, batched, partial_rows>(       \
        QMV_ARGUMENTS, QMV_BATCH, QMV_POSITION);                \
  }

#define QMV_STREAMED(                                                   \
    name, T, group_size, bits, tile, rows, sharing, fast, batched)      \
  QMV_ENTRY(name, T, sharing > 0 ? sharing : 2) {                       \
    QMV_STRIDES(group_size, bits);                                      \
    affine_qmv_streamed<                                                \
        T,                                                              \
        group_size,                                                     \
        bits,                                                           \
        tile,                                                           \
        rows,                                                           \
        sharing,                                                        \
        fast,                                                           \
        batched>(QMV_ARGUMENTS, m, tile_rows, QMV_BATCH, QMV_POSITION); \
  }

// With as many lanes per output as MLX uses.
#define QMV_WIDE(name, T, group_size, bits, tile)                   \
  QMV_ENTRY(name, T, 2) {                                           \
    QMV_STRIDES(group_size, bits);                                  \
    affine_qmv_wide<T, group_size, bits, tile, 8, false>(           \
        w, scales, biases, x, y, k, n, m, QMV_BATCH, QMV_POSITION); \
  }

// The fp modes: one byte per scale, and in place of the biases the global
// scale, which only kernels with `global_scale` read.
#define QMV_FP_ENTRY(name, T, simdgroups)                               \
  extern "C" __global__ __launch_bounds__(32 * (simdgroups)) void name( \
      const uint32_t* w,                                                \
      const uint8_t* scales,                                            \
      const float* matrix_scale,                                        \
      const T* x,                                                       \
      T* y,                                                             \
      int k,                                                            \
      int n,                                                            \
      int m,                                                            \
      int tile_rows)

#define QMV_FP_ARGUMENTS w, scales, matrix_scale, x, y, k, n
#define QMV_FP_BATCH 1, x_shape, x_strides, 1, w_shape, w_strides, s_strides

// `function` is fp_qmv_fast or fp_qmv, `rows` the number of outputs per
// simdgroup.
#define QMV_FP_ONE_ROW(                                                       \
    name,                                                                     \
    function,                                                                 \
    T,                                                                        \
    group_size,                                                               \
    bits,                                                                     \
    partial_rows,                                                             \
    batched,                                                                  \
    global_scale,                                                             \
    rows)                                                                     \
  QMV_FP_ENTRY(name, T, 2) {                                                  \
    QMV_STRIDES(group_size, bits);                                            \
    function<T, group_size, bits, batched, partial_rows, global_scale, rows>( \
        QMV_FP_ARGUMENTS, QMV_FP_BATCH, QMV_POSITION);                        \
  }

#define QMV_FP_STREAMED(                                             \
    name,                                                            \
    T,                                                               \
    group_size,                                                      \
    bits,                                                            \
    tile,                                                            \
    rows,                                                            \
    sharing,                                                         \
    fast,                                                            \
    batched,                                                         \
    global_scale)                                                    \
  QMV_FP_ENTRY(name, T, sharing > 0 ? sharing : 2) {                 \
    QMV_STRIDES(group_size, bits);                                   \
    fp_qmv_streamed<                                                 \
        T,                                                           \
        group_size,                                                  \
        bits,                                                        \
        tile,                                                        \
        rows,                                                        \
        sharing,                                                     \
        fast,                                                        \
        batched,                                                     \
        global_scale>(                                               \
        QMV_FP_ARGUMENTS, m, tile_rows, QMV_FP_BATCH, QMV_POSITION); \
  }

#define QMV_FP_WIDE(name, T, group_size, bits, tile)           \
  QMV_FP_ENTRY(name, T, 2) {                                   \
    QMV_STRIDES(group_size, bits);                             \
    fp_qmv_wide<T, group_size, bits, tile, 16, false>(         \
        w, scales, x, y, k, n, m, QMV_FP_BATCH, QMV_POSITION); \
  }
