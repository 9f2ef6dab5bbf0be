// Products of several rows with quantized weights, which are read once. Every
// row has the bits that qmv.cu gives one row: the same values in the same
// lanes, added in the same order.

#pragma once

#include "mlx/backend/cuda/device/cute_dequant.cuh"

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cutlass/array.h>
#include <cutlass/functional.h>
#include <cutlass/numeric_conversion.h>
#include <cuda/std/type_traits>

namespace mlx::core::cu {

/// How qmv.cu computes a format with a type of rows.
template <typename T, typename Q>
struct QmvFormat {
  static constexpr int bits = cute::sizeof_bits_v<Q>;
  static constexpr bool has_bias = quant_has_bias_v<Q>;
  /// Values of a row that a lane loads at once.
  static constexpr int lane = sizeof(T) == 2 && bits <= 4 ? 16 : 8;
  /// Values that a warp loads at once.
  static constexpr int chunk = 32 * lane;
  /// The type in which a lane adds.
  using Sum = cuda::std::conditional_t<(bits >= 8), float, T>;
};

/// The weights as values of the type of x.
template <typename T, typename Q, typename S>
__device__ __forceinline__ auto qmv_weights(
    const cutlass::Array<Q, QmvFormat<T, Q>::lane>& packed,
    S scale,
    T bias) {
  constexpr int lane = QmvFormat<T, Q>::lane;
  auto w = cutlass::NumericArrayConverter<T, Q, lane>()(packed);
  if constexpr (!QmvFormat<T, Q>::has_bias) {
    w = w * T(scale);
  } else if constexpr (cuda::std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < lane; ++i) {
      w[i] = w[i] * T(scale) + bias;
    }
  } else if constexpr (cuda::std::is_same_v<T, cutlass::bfloat16_t>) {
    // What w * scale + bias compiles to, two values at a time.
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(&w);
    const auto scales = __bfloat162bfloat162(scale.to_nv_bfloat16());
    const auto biases = __bfloat162bfloat162(bias.to_nv_bfloat16());
#pragma unroll
    for (int i = 0; i < lane / 2; ++i) {
      pairs[i] = __hfma2(pairs[i], scales, biases);
    }
  } else {
    w = w * T(scale) + bias;
  }
  return w;
}

/// Adds `count` values of each lane over a warp, in the order of cg::reduce,
/// and returns the sum of value `which`. While there are several values, each
/// half of the lanes continues with half of them; the same terms are paired.
template <int count>
__device__ __forceinline__ float qmv_reduce(
    float (&values)[count],
    int& which) {
  static_assert((count & (count - 1)) == 0 && count <= 32);
  const int lane = threadIdx.x;
  which = 0;
#pragma unroll
  for (int left = count, step = 16; step >= 1; step /= 2) {
    if (left > 1) {
      left /= 2;
      const bool upper = lane & step;
#pragma unroll
      for (int i = 0; i < count / 2; ++i) {
        if (i < left) {
          const float mine = upper ? values[i + left] : values[i];
          const float other = upper ? values[i] : values[i + left];
          values[i] = mine + __shfl_xor_sync(0xffffffff, other, step);
        }
      }
      which = 2 * which + upper;
    } else {
      values[0] += __shfl_xor_sync(0xffffffff, values[0], step);
    }
  }
  return values[0];
}

/// Products of `V` rows of x at a time. A warp computes `R` outputs of each and
/// loads `ahead` chunks of their weights in advance; `warps` of them share the
/// rows in shared memory, `resident` chunks at a time.
/// Grid: outputs, tiles of V rows, products of a batch.
template <
    typename T,
    typename Q,
    typename S,
    int group_size,
    int V,
    int R,
    int ahead,
    int warps>
__global__ void __launch_bounds__(32 * warps) qmv_streamed_kernel(
    const T* x,
    const Q* w,
    const S* scales,
    const T* biases,
    const float* global_scale,
    T* out,
    int m,
    int n,
    int k,
    int resident,
    bool broadcast_w) {
  using Format = QmvFormat<T, Q>;
  using Sum = typename Format::Sum;
  constexpr int E = Format::lane;
  constexpr int chunk = Format::chunk;
  constexpr int chunk_groups = chunk / group_size;
  constexpr int lane_bytes = E * Format::bits / 8;
  constexpr int chunk_bytes = 32 * lane_bytes;
  // Shared memory contains x as [chunk][row][part][lane], in parts of 16 bytes:
  // a warp reads 512 adjacent bytes.
  constexpr int parts = E * sizeof(T) / sizeof(uint4);
  constexpr int chunk_parts = V * parts * 32;
  extern __shared__ uint4 shared_rows[];

  const int lane = threadIdx.x;
  const int first_row = blockIdx.y * V;
  const int last_row = min(V, m - first_row) - 1;
  const int whole = k / chunk;
  const int chunks = (k + chunk - 1) / chunk;
  const int groups = k / group_size;
  const int row_bytes = k / 8 * Format::bits;
  const int64_t w_batch = broadcast_w ? 0 : int64_t(blockIdx.z) * n;
  x += (int64_t(blockIdx.z) * m + first_row) * k;
  out += (int64_t(blockIdx.z) * m + first_row) * n;

  auto load_rows = [&](int begin) {
    constexpr int vector = sizeof(uint4) / sizeof(T);
    const int count = min(resident * chunk, k - begin * chunk) / vector;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const auto* from = reinterpret_cast<const uint4*>(
          x + int64_t(min(v, last_row)) * k + begin * chunk);
      for (int i = threadIdx.y * 32 + lane; i < count; i += 32 * warps) {
        const int c = i / (32 * parts), in_lane = i / parts % 32;
        shared_rows[c * chunk_parts + (v * parts + i % parts) * 32 + in_lane] =
            from[i];
      }
    }
  };
  const bool at_once = chunks <= resident;
  if (at_once) {
    load_rows(0);
    __syncthreads();
  }

  // All warps do the same iterations, since they may wait for each other.
  const int step = gridDim.x * warps * R;
  for (int turn = blockIdx.x * warps * R; turn < n; turn += step) {
    const int row = turn + threadIdx.y * R;
    // Where the weights of this lane are in the next chunk.
    const char* packed[R];
    const S* scale[R];
    const T* bias[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int64_t at = w_batch + min(row + r, n - 1);
      const int64_t group = at * groups + lane * E / group_size;
      packed[r] =
          reinterpret_cast<const char*>(w) + at * row_bytes + lane * lane_bytes;
      scale[r] = scales + group;
      if constexpr (Format::has_bias) {
        bias[r] = biases + group;
      }
    }
    const uint4* rows = shared_rows + lane;
    Sum sums[V][R][E] = {};

    // The next chunks: all loads are issued before the first value is used.
    auto fold = [&](auto chunks_at_once) {
      constexpr int C = chunks_at_once.value;
      cutlass::Array<Q, E> codes[C][R];
      S scale_of[C][R];
      T bias_of[C][R];
#pragma unroll
      for (int c = 0; c < C; ++c) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const char* p = packed[r] + c * chunk_bytes;
          if constexpr (lane_bytes == 8) {
            *reinterpret_cast<uint2*>(&codes[c][r]) =
                __ldcs(reinterpret_cast<const uint2*>(p));
          } else if constexpr (lane_bytes == 4) {
            *reinterpret_cast<uint32_t*>(&codes[c][r]) =
                __ldcs(reinterpret_cast<const uint32_t*>(p));
          } else {
            codes[c][r] = *reinterpret_cast<const cutlass::Array<Q, E>*>(p);
          }
          scale_of[c][r] = scale[r][c * chunk_groups];
          bias_of[c][r] = T(0);
          if constexpr (Format::has_bias) {
            bias_of[c][r] = bias[r][c * chunk_groups];
          }
        }
      }
#pragma unroll
      for (int c = 0; c < C; ++c) {
        cutlass::NumericArrayConverter<Sum, T, E> to_sum;
        cutlass::Array<Sum, E> weights[R];
#pragma unroll
        for (int r = 0; r < R; ++r) {
          weights[r] = to_sum(
              qmv_weights<T, Q, S>(codes[c][r], scale_of[c][r], bias_of[c][r]));
        }
#pragma unroll
        for (int v = 0; v < V; ++v) {
          cutlass::Array<T, E> xs;
#pragma unroll
          for (int p = 0; p < parts; ++p) {
            reinterpret_cast<uint4*>(&xs)[p] =
                rows[c * chunk_parts + (v * parts + p) * 32];
          }
          const auto xs_sum = to_sum(xs);
#pragma unroll
          for (int r = 0; r < R; ++r) {
            auto& sum = *reinterpret_cast<cutlass::Array<Sum, E>*>(sums[v][r]);
            sum = cutlass::fma(xs_sum, weights[r], sum);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        packed[r] += C * chunk_bytes;
        scale[r] += C * chunk_groups;
        if constexpr (Format::has_bias) {
          bias[r] += C * chunk_groups;
        }
      }
      rows += C * chunk_parts;
    };

    for (int begin = 0; begin < chunks; begin += resident) {
      if (!at_once) {
        __syncthreads();
        load_rows(begin);
        __syncthreads();
        rows = shared_rows + lane;
      }
      int left = min(whole - begin, resident);
#pragma unroll 1
      for (; left >= ahead; left -= ahead) {
        fold(cuda::std::integral_constant<int, ahead>{});
      }
      if constexpr (ahead > 2) {
        if (left & 2) {
          fold(cuda::std::integral_constant<int, 2>{});
        }
      }
      // A single chunk, or the tail of K at the end of the last chunks.
      int single = left & 1 & (ahead > 1);
      if (begin + resident >= chunks && lane * E < k - whole * chunk) {
        single++;
      }
#pragma unroll 1
      for (; single > 0; single--) {
        fold(cuda::std::integral_constant<int, 1>{});
      }
    }

    constexpr int outputs = V * R;
    constexpr int slots = outputs <= 1 ? 1
        : outputs <= 2                 ? 2
        : outputs <= 4                 ? 4
        : outputs <= 8                 ? 8
        : outputs <= 16                ? 16
                                       : 32;
    static_assert(outputs <= 32);
    float totals[slots] = {};
#pragma unroll
    for (int i = 0; i < outputs; ++i) {
#pragma unroll
      for (int e = 0; e < E; ++e) {
        totals[i] += float(sums[i / R][i % R][e]);
      }
    }
    int which;
    float total = qmv_reduce(totals, which);
    if constexpr (
        cuda::std::is_same_v<Q, cutlass::float_e2m1_t> &&
        cuda::std::is_same_v<S, cutlass::float_e4m3_t>) {
      if (global_scale) {
        constexpr float largest = 448.0f * 6.0f; // of e4m3 and e2m1
        total *= *global_scale / largest;
      }
    }
    // Lanes that differ only in the lowest bits have the same sum.
    const int v = which / R, r = which % R;
    if (lane % (32 / slots) == 0 && v <= last_row && which < outputs &&
        row + r < n) {
      out[int64_t(v) * n + row + r] = T(total);
    }
  }
}

} // namespace mlx::core::cu
