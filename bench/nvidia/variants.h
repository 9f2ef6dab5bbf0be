// Ideas that keep the order of additions and that the overlay does not ship,
// for `compile --header`; 4 and 8 bits. They stand in the place of
// qmv_streamed.h and build on it.
//
//   VARIANT_ROWS    rows of the result a simdgroup (4 as shipped)
//   VARIANT_SHARED  simdgroups of a threadgroup that share x, prepared once in
//                   threadgroup memory (0: none)
//   VARIANT_ALU     weights become floats by putting them into the mantissa of
//                   2^23 and subtracting that
#pragma once

#define affine_qmv_streamed affine_qmv_streamed_as_shipped
#include "mlx/backend/metal/kernels/qmv_streamed.h"
#undef affine_qmv_streamed

#ifndef VARIANT_ROWS
#define VARIANT_ROWS 4
#endif
#ifndef VARIANT_SHARED
#define VARIANT_SHARED 0
#endif
#ifndef VARIANT_ALU
#define VARIANT_ALU 0
#endif

template <int bits>
METAL_FUNC void
variant_unpack_step(const uint32_t* packed, int step, float* w) {
  typedef QmvStep<bits> Step;
  if constexpr (!VARIANT_ALU) {
    qmv_unpack_step<bits>(packed, step, w);
  } else {
#pragma unroll
    for (int i = 0; i < Step::values; i++) {
      const int unit = step * Step::units + i * bits / Step::unit_bits;
      const uint32_t weight = qmv_unit<bits>(packed, unit) &
          (((1 << bits) - 1) << qmv_place<bits>(i));
      w[i] = as_type<float>(0x4b000000 | weight) - 8388608.0f;
    }
  }
}

template <typename T, int group_size, int bits, int values_per_thread, int V>
METAL_FUNC void variant_impl(
    const uint32_t* w,
    const T* scales,
    const T* biases,
    const T* x,
    T* y,
    int k,
    int n,
    int m,
    uint3 tid,
    uint simdgroup,
    uint lane) {
  typedef QmvStep<bits> Step;
  static_assert(Step::values == 4);
  constexpr int rows = VARIANT_ROWS;
  constexpr int simdgroups = VARIANT_SHARED ? VARIANT_SHARED : 2;
  constexpr int steps = values_per_thread / Step::values;
  constexpr int block_size = values_per_thread * SIMD_SIZE;
  constexpr int words = values_per_thread * bits / 32;

  // No simdgroup may leave before the others where they share x.
  const int out_row = (tid.y * simdgroups + simdgroup) * rows;
  const int64_t row0 = min(out_row, n - 1);
  const int vec0 = tid.x * V;
  QmvStreamedTile<T, rows, V> tile;
  tile.w_stride = k / 8 * bits;
  tile.group_stride = k / group_size;
  tile.x_stride = k;
  tile.last_row = clamp(n - out_row, 1, rows) - 1;
  tile.last_vec = min(V, m - vec0) - 1;
  const int group = lane / (group_size / values_per_thread);
  tile.w = (const uint8_t*)w + row0 * tile.w_stride + lane * words * 4;
  tile.scales = scales + row0 * tile.group_stride + group;
  tile.biases = biases + row0 * tile.group_stride + group;
  tile.x = x + int64_t(vec0) * k + lane * values_per_thread;
#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int row = 0; row < rows; row++) {
      tile.result[v][row] = 0;
    }
  }
  auto x_of = [&](int v, int step) {
    return tile.x + min(v, tile.last_vec) * tile.x_stride + step * Step::values;
  };

#if VARIANT_SHARED
  __shared__ vec<float, 4> shared_x[V][steps][SIMD_SIZE];
  __shared__ float shared_sum[V][SIMD_SIZE];
#endif

  for (int k0 = 0; k0 < k; k0 += block_size) {
    const bool here = k0 + int(lane) * values_per_thread < k;
#if VARIANT_SHARED
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int v = simdgroup; v < V && here; v += simdgroups) {
      float sum = 0;
#pragma unroll
      for (int step = 0; step < steps; step++) {
        vec<float, 4> four;
        qmv_load_step<T, bits>(x_of(v, step), four.elements, sum);
        shared_x[v][step][lane] = four;
      }
      shared_sum[v][lane] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    if (here) {
      uint32_t packed[rows][words];
      float scale[rows], bias[rows];
#pragma unroll
      for (int row = 0; row < rows; row++) {
        const int src = min(row, tile.last_row);
#pragma unroll
        for (int i = 0; i < words; i++) {
          packed[row][i] = ((const uint32_t*)(tile.w + src * tile.w_stride))[i];
        }
        scale[row] = tile.scales[src * tile.group_stride];
        bias[row] = tile.biases[src * tile.group_stride];
      }
      float accum[V][rows] = {}, sum[V] = {};
#pragma unroll
      for (int step = 0; step < steps; step++) {
        float weight[rows][Step::terms];
#pragma unroll
        for (int row = 0; row < rows; row++) {
          variant_unpack_step<bits>(packed[row], step, weight[row]);
        }
#pragma unroll
        for (int v = 0; v < V; v++) {
          vec<float, 4> four;
#if VARIANT_SHARED
          four = shared_x[v][step][lane];
          sum[v] = shared_sum[v][lane];
#else
          qmv_load_step<T, bits>(x_of(v, step), four.elements, sum[v]);
#endif
#pragma unroll
          for (int row = 0; row < rows; row++) {
            qmv_dot_step<bits>(weight[row], four.elements, accum[v][row]);
          }
        }
      }
#pragma unroll
      for (int v = 0; v < V; v++) {
#pragma unroll
        for (int row = 0; row < rows; row++) {
          tile.result[v][row] +=
              qmv_chunk_sum(sum[v], bias[row], scale[row], accum[v][row]);
        }
      }
    }
    qmv_streamed_advance<group_size, bits>(block_size, tile);
  }

#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int row = 0; row < rows; row++) {
      const float total = simd_sum(tile.result[v][row]);
      if (lane == 0 && v <= tile.last_vec && out_row + row < n) {
        y[int64_t(vec0 + v) * n + out_row + row] = T(total);
      }
    }
  }
}

template <typename T, int group_size, int bits, int V, bool fast, bool batched>
void affine_qmv_streamed(
    const uint32_t* w,
    const T* scales,
    const T* biases,
    const T* x,
    T* y,
    int k,
    int n,
    int m,
    const int&,
    const int*,
    const int64_t*,
    const int&,
    const int*,
    const int64_t*,
    const int64_t*,
    const int64_t*,
    uint3 tid,
    uint simdgroup,
    uint lane) {
  constexpr int values_per_thread =
      get_pack_factor<bits, 32>() * (fast ? 2 : 1);
  variant_impl<T, group_size, bits, values_per_thread, V>(
      w, scales, biases, x, y, k, n, m, tid, simdgroup, lane);
}
