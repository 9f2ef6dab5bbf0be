// Four ways to arrange the loops of a streamed kernel, for a compiler that
// reports registers. Built by registers.sh, which takes load_vector and qdot
// from vendor/mlx and the shipped kernel's chunk from patches/files.

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned int uint;
typedef long int64_t;
typedef _Float16 half;
#define METAL_FUNC inline __attribute__((always_inline))
#define inline inline __attribute__((always_inline))
#define device __attribute__((address_space(1)))
#define thread
#define constant const

constexpr int SIMD_SIZE = 32;
template <typename T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
inline T select(T a, T b, bool c) {
  return c ? b : a;
}
static inline float simd_sum(float v) {
  for (int offset = 16; offset; offset >>= 1) {
    v += __builtin_bit_cast(
        float,
        __builtin_amdgcn_ds_bpermute(offset, __builtin_bit_cast(int, v)));
  }
  return v;
}

namespace metal {
template <bool condition, class T, class U>
struct conditional {
  using type = T;
};
template <class T, class U>
struct conditional<false, T, U> {
  using type = U;
};
template <bool condition, class T, class U>
using conditional_t = typename conditional<condition, T, U>::type;
} // namespace metal
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
#define MLX_MTL_CONST static constexpr const

#include "helpers.h"
#include "streamed.h"

// The same text of upstream, on weights in registers.
namespace packed {
#undef device
#define device
#include "helpers.h"
#undef device
#define device __attribute__((address_space(1)))
} // namespace packed

enum Shape {
  rows_outer,
  vectors_outer_packed,
  vectors_outer_device,
  steps_outer
};

template <
    typename T,
    int group_size,
    int bits,
    int packs_per_thread,
    int V,
    Shape shape>
METAL_FUNC void streamed(
    const device uint32_t* w,
    const device T* scales,
    const device T* biases,
    const device T* x,
    device T* y,
    int in_vec_size,
    int out_vec_size,
    int M,
    uint tidx,
    uint tidy,
    uint simd_gid,
    uint simd_lid) {
  constexpr int R = 4;
  constexpr int pack_factor = get_pack_factor<bits, 32>();
  constexpr int bytes_per_pack = get_bytes_per_pack<bits, 32>();
  constexpr int vpt = pack_factor * packs_per_thread;
  constexpr int block_size = vpt * SIMD_SIZE;
  constexpr int scale_step = group_size / vpt;
  constexpr int nbytes = bytes_per_pack * packs_per_thread;
  typedef float U;
  const int out_row = tidy * 8 + simd_gid * R;
  if (out_row >= out_vec_size)
    return;
  const int wrow = in_vec_size * bytes_per_pack / pack_factor,
            grow = in_vec_size / group_size;
  const device uint8_t* ws = (const device uint8_t*)w + simd_lid * nbytes;
  const device uint8_t* wr[R];
  const device T* sr[R];
  const device T* br[R];
  for (int r = 0; r < R; r++) {
    int row = min(out_row + r, out_vec_size - 1);
    wr[r] = ws + (int64_t)row * wrow;
    sr[r] = scales + (int64_t)row * grow + simd_lid / scale_step;
    br[r] = biases + (int64_t)row * grow + simd_lid / scale_step;
  }
  const int vec0 = tidx * V;
  const device T* xv[V];
  for (int v = 0; v < V; v++)
    xv[v] = x + (int64_t)min(vec0 + v, M - 1) * in_vec_size + simd_lid * vpt;
  U result[V][R] = {{0}};
  if constexpr (shape == steps_outer) { // as shipped
    QmvStreamedTile<T, R, V> tile{
        wr[0],
        sr[0],
        br[0],
        xv[0],
        wrow,
        grow,
        in_vec_size,
        min(R, out_vec_size - out_row) - 1,
        min(V, M - vec0) - 1,
        {}};
    for (int k = 0; k < in_vec_size; k += block_size) {
      qmv_streamed_chunk<bits, vpt>(tile);
      qmv_streamed_advance<group_size, bits>(block_size, tile);
    }
    for (int v = 0; v < V; v++)
      for (int r = 0; r < R; r++)
        result[v][r] = tile.result[v][r];
  }
  for (int k = 0; shape != steps_outer && k < in_vec_size; k += block_size) {
    const int ko = k * bytes_per_pack / pack_factor, go = k / group_size;
    if constexpr (shape == rows_outer) { // rows outer
      U xt[V][vpt];
      U sum[V];
#pragma unroll
      for (int v = 0; v < V; v++)
        sum[v] = load_vector<T, U, vpt, bits>(xv[v] + k, xt[v]);
#pragma unroll
      for (int r = 0; r < R; r++) {
        U s = sr[r][go], b = br[r][go];
#pragma unroll
        for (int v = 0; v < V; v++)
          result[v][r] += qdot<U, vpt, bits>(wr[r] + ko, xt[v], s, b, sum[v]);
      }
    } else if constexpr (shape == vectors_outer_packed) { // vectors outer,
                                                          // packed registers
      typedef typename QmvStep<bits>::Unit W;
      constexpr int nw = nbytes / sizeof(W);
      W p[R][nw];
      U s[R], b[R];
#pragma unroll
      for (int r = 0; r < R; r++) {
        const device W* src = (const device W*)(wr[r] + ko);
        for (int i = 0; i < nw; i++)
          p[r][i] = src[i];
        s[r] = sr[r][go];
        b[r] = br[r][go];
      }
#pragma unroll
      for (int v = 0; v < V; v++) {
        U xt[vpt];
        U sum = load_vector<T, U, vpt, bits>(xv[v] + k, xt);
#pragma unroll
        for (int r = 0; r < R; r++)
          result[v][r] += packed::qdot<U, vpt, bits>(
              (const uint8_t*)p[r], xt, s[r], b[r], sum);
      }
    } else if constexpr (shape == vectors_outer_device) {
#pragma unroll
      for (int v = 0; v < V; v++) {
        U xt[vpt];
        U sum = load_vector<T, U, vpt, bits>(xv[v] + k, xt);
#pragma unroll
        for (int r = 0; r < R; r++) {
          U s = sr[r][go], b = br[r][go];
          result[v][r] += qdot<U, vpt, bits>(wr[r] + ko, xt, s, b, sum);
        }
      }
    }
  }
  for (int v = 0; v < V; v++)
    for (int r = 0; r < R; r++) {
      U t = simd_sum(result[v][r]);
      if (simd_lid == 0 && out_row + r < out_vec_size && vec0 + v < M)
        y[(int64_t)(vec0 + v) * out_vec_size + out_row + r] = (T)t;
    }
}

#define CANDIDATE(bits, packs, V, shape)                                   \
  extern "C" __attribute__((amdgpu_kernel)) void b##bits##_v##V##_##shape( \
      const device uint32_t* w,                                            \
      const device half* scales,                                           \
      const device half* biases,                                           \
      const device half* x,                                                \
      device half* y,                                                      \
      int K,                                                               \
      int N,                                                               \
      int M) {                                                             \
    const int lane = __builtin_amdgcn_workitem_id_x();                     \
    streamed<half, 64, bits, packs, V, shape>(                             \
        w,                                                                 \
        scales,                                                            \
        biases,                                                            \
        x,                                                                 \
        y,                                                                 \
        K,                                                                 \
        N,                                                                 \
        M,                                                                 \
        __builtin_amdgcn_workgroup_id_x(),                                 \
        __builtin_amdgcn_workgroup_id_y(),                                 \
        lane >> 5,                                                         \
        lane & 31);                                                        \
  }
#define SHAPES(bits, packs, V)                    \
  CANDIDATE(bits, packs, V, rows_outer)           \
  CANDIDATE(bits, packs, V, vectors_outer_packed) \
  CANDIDATE(bits, packs, V, vectors_outer_device) \
  CANDIDATE(bits, packs, V, steps_outer)
#define TILES(bits, packs) \
  SHAPES(bits, packs, 1)   \
  SHAPES(bits, packs, 2)   \
  SHAPES(bits, packs, 4)   \
  SHAPES(bits, packs, 6)   \
  SHAPES(bits, packs, 8)
TILES(1, 1)
TILES(2, 1)
TILES(4, 2)
TILES(6, 2)
TILES(8, 2)
