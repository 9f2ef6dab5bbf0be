// Entry points for the GPU: MLX's one-row kernels and the overlay's streamed
// ones, their arguments bound as the dispatch binds them for a product without
// batch. Included after the kernels' own headers.
#pragma once

#ifndef QMV_THREADS
#define QMV_THREADS 64
#endif

#define QMV_ENTRY(name, T)                                        \
  extern "C" __global__ __launch_bounds__(QMV_THREADS) void name( \
      const uint32_t* w,                                          \
      const T* scales,                                            \
      const T* biases,                                            \
      const T* x,                                                 \
      T* y,                                                       \
      int k,                                                      \
      int n,                                                      \
      int m)

#define QMV_ARGUMENTS w, scales, biases, x, y, k, n
#define QMV_NO_BATCH 0, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr
#define QMV_POSITION                             \
  mtlcuda::threadgroup_position_in_grid(),       \
      mtlcuda::simdgroup_index_in_threadgroup(), \
      mtlcuda::thread_index_in_simdgroup()

// `function` is affine_qmv_fast or affine_qmv: one column of threadgroups a row
// of x.
#define QMV_ONE_ROW(name, function, T, group_size, bits, partial_rows) \
  QMV_ENTRY(name, T) {                                                 \
    function<T, group_size, bits, false, partial_rows>(                \
        QMV_ARGUMENTS, QMV_NO_BATCH, QMV_POSITION);                    \
  }

#define QMV_STREAMED(name, T, group_size, bits, tile, fast)      \
  QMV_ENTRY(name, T) {                                           \
    affine_qmv_streamed<T, group_size, bits, tile, fast, false>( \
        QMV_ARGUMENTS, m, QMV_NO_BATCH, QMV_POSITION);           \
  }
