// The fp kernels for several rows, for a compiler that reports registers. Built
// by registers.sh, which takes the kernels from vendor/mlx and patches/files.

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long size_t;
typedef long int64_t;
typedef _Float16 half;
typedef _Float16 float16_t;
struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  explicit bfloat16_t(half value) : bits(__builtin_bit_cast(uint16_t, value)) {}
};
struct uint3 {
  uint x, y, z;
};
struct short2 {
  short x, y;
  short2(int x, int y) : x(x), y(y) {}
};

#define METAL_FUNC inline __attribute__((always_inline))
#define inline inline __attribute__((always_inline))
#define device __attribute__((address_space(1)))
#define thread
#define threadgroup
#define constant const

template <typename T, int n>
struct vec {
  T v[n];
  vec() = default;
  vec(T a, T b, T c, T d) : v{a, b, c, d} {}
  template <typename U>
  vec(const device vec<U, n>& other) {
    for (int i = 0; i < n; i++) {
      v[i] = other.v[i];
    }
  }
  T operator[](int i) const {
    return v[i];
  }
};
typedef vec<float, 4> float4;

inline float dot(const float4& a, const float4& b) {
  return a.v[0] * b.v[0] + a.v[1] * b.v[1] + a.v[2] * b.v[2] + a.v[3] * b.v[3];
}
template <typename To, typename From>
inline To as_type(From from) {
  return __builtin_bit_cast(To, from);
}
template <typename T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
inline T clamp(T a, T low, T high) {
  return a < low ? low : a > high ? high : a;
}
namespace metal {
inline bool isnan(float x) {
  return x != x;
}
inline bool isfinite(float x) {
  return x - x == 0;
}
inline bool signbit(float x) {
  return as_type<uint32_t>(x) >> 31;
}
inline float abs(float x) {
  return __builtin_fabsf(x);
}
inline float round(float x) {
  return __builtin_roundf(x);
}
inline float log2(float x) {
  return x;
}
} // namespace metal

static inline float simd_shuffle_down(float v, int distance) {
  return __builtin_bit_cast(
      float,
      __builtin_amdgcn_ds_bpermute(4 * distance, __builtin_bit_cast(int, v)));
}
static inline float simd_sum(float v) {
  for (int distance = 16; distance; distance >>= 1) {
    v += simd_shuffle_down(v, distance);
  }
  return v;
}
static inline float quad_sum(float v) {
  return v + simd_shuffle_down(v, 1) + simd_shuffle_down(v, 2);
}

#include "kernels.h"

template <
    typename T,
    int group_size,
    int bits,
    int values_per_thread,
    int rows,
    int V>
METAL_FUNC void packed_chunk(int k, FpQmvStreamedTile<T, rows, V>& tile) {
  constexpr int words = values_per_thread * bits / 16;
  uint16_t packed[rows][words];
  float scale[rows];
#pragma unroll
  for (int row = 0; row < rows; row++) {
    auto w = (const device uint16_t*)(tile.w[row] + k * bits / 32);
#pragma unroll
    for (int i = 0; i < words; i++) {
      packed[row][i] = w[i];
    }
    scale[row] =
        dequantize_scale<float, group_size>(tile.scales[row][k / group_size]);
  }
#pragma unroll
  for (int v = 0; v < V; v++) {
    float x[values_per_thread];
    load_vector<T, float, values_per_thread>(tile.x[v] + k, x);
#pragma unroll
    for (int row = 0; row < rows; row++) {
      float accum = 0;
#pragma unroll
      for (int i = 0; i < words; i++) {
        const uint16_t word = packed[row][i];
        if constexpr (bits == 4) {
          accum +=
              (x[4 * i] * Dequantize<4>{}(word) +
               x[4 * i + 1] * Dequantize<4>{}(word >> 4) +
               x[4 * i + 2] * Dequantize<4>{}(word >> 8) +
               x[4 * i + 3] * Dequantize<4>{}(word >> 12));
        } else {
          accum += x[2 * i] * Dequantize<8>{}(word);
          accum += x[2 * i + 1] * Dequantize<8>{}(word >> 8);
        }
      }
      tile.result[v][row] += scale[row] * accum;
    }
  }
}

#include "packed.h"

#define KERNEL(name, call)                              \
  extern "C" __attribute__((amdgpu_kernel)) void name(  \
      const device uint32_t* w,                         \
      const device uint8_t* scales,                     \
      const device half* x,                             \
      device half* y,                                   \
      int K,                                            \
      int N,                                            \
      int M) {                                          \
    const uint3 tid = {                                 \
        __builtin_amdgcn_workgroup_id_x(),              \
        __builtin_amdgcn_workgroup_id_y(),              \
        0};                                             \
    const uint lane = __builtin_amdgcn_workitem_id_x(); \
    const device float* none = nullptr;                 \
    call;                                               \
  }
#define STREAMED(mode, group, bits, V, kind)               \
  KERNEL(                                                  \
      mode##_v##V##_##kind,                                \
      (kind##_impl<half, group, bits, 2, V, false, false>( \
          w, scales, none, x, y, K, N, M, tid, lane >> 5, lane & 31)))
#define WIDE(mode, group, bits, V)                 \
  KERNEL(                                          \
      mode##_v##V##_wide,                          \
      (fp_qmv_wide_impl<half, group, bits, V, 16>( \
          w, scales, x, y, K, N, M, tid, lane >> 5, lane & 31)))
#define TILE(mode, group, bits, V)                \
  WIDE(mode, group, bits, V)                      \
  STREAMED(mode, group, bits, V, fp_qmv_streamed) \
  STREAMED(mode, group, bits, V, packed)
#define MODE(mode, group, bits)                                     \
  KERNEL(                                                           \
      mode##_v1_one_row,                                            \
      (fp_qmv_fast_impl<half, group, bits>(                         \
          w, scales, none, x, y, K, N, tid, lane >> 5, lane & 31))) \
  TILE(mode, group, bits, 2)                                        \
  TILE(mode, group, bits, 3)                                        \
  TILE(mode, group, bits, 4)                                        \
  TILE(mode, group, bits, 5)                                        \
  TILE(mode, group, bits, 6)                                        \
  TILE(mode, group, bits, 7)                                        \
  TILE(mode, group, bits, 8)
MODE(mxfp4, 32, 4)
MODE(mxfp8, 32, 8)
MODE(nvfp4, 16, 4)
