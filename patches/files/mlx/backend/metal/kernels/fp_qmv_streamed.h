// Order-preserving twins of fp_qmv_fast and fp_qmv for several rows: mxfp4,
// mxfp8 and nvfp4.
//
// Include after fp_quantized.h, whose helpers this file uses; the JIT appends
// it to that header's text for the same reason. That header and quantized.h
// declare the same names, so no source includes both this file and
// qmv_streamed.h.

#include "mlx/backend/metal/kernels/streamed_tile.h"

// Weights of the fp modes, and the order in which qdot folds them. `fast`
// selects the kernel for one row: fp_qmv_fast, whose K is whole blocks, or
// fp_qmv. The narrower kernel for one row that some GPUs use has fewer rows per
// simdgroup, and the same order.
template <
    typename T_,
    int group_size,
    int bits,
    bool fast,
    bool has_global_scale>
struct FpQmvFormat {
  typedef T_ T;
  typedef float U;

  MLX_MTL_CONST bool whole_blocks = fast;
  MLX_MTL_CONST bool has_sum = false;
  MLX_MTL_CONST bool three_bits = false;
  MLX_MTL_CONST int words = fast ? 2 : 1;
  MLX_MTL_CONST int per_word = get_pack_factor<32, bits>();
  MLX_MTL_CONST int values = words * per_word;
  MLX_MTL_CONST int x_step = 4;
  MLX_MTL_CONST int terms = 4;

  // Every fp4 and fp8 value fits in a half, and upstream decodes to float
  // through it.
  typedef half Weight;

  struct Row {
    uint32_t packed[words];
    U scale;
  };

  // Where the block begins in the simdgroup's first row, and the lane's part of
  // it: the pointers are the same for all lanes.
  const device uint32_t* w;
  const device uint8_t* scales;
  int row_words;
  int row_groups;
  int lane_words;
  int lane_group;
  U scale_of_all;

  METAL_FUNC FpQmvFormat(
      const device uint32_t* w_,
      const device uint8_t* scales_,
      const device float* global_scale,
      uint in_vec_size,
      int first_row,
      uint lane)
      : row_words(in_vec_size / per_word),
        row_groups(in_vec_size / group_size),
        lane_words(lane * words),
        lane_group(lane / (group_size / values)) {
    const int64_t row = first_row;
    w = w_ + row * row_words;
    scales = scales_ + row * row_groups;
    if constexpr (has_global_scale) {
      scale_of_all = *global_scale / (F8E4M3_MAX * F4E2M1_MAX);
    }
  }

  METAL_FUNC void advance() {
    w += SIMD_SIZE * words;
    scales += SIMD_SIZE * values / group_size;
  }

  METAL_FUNC void load(int row, thread Row& chunk) const {
    STEEL_PRAGMA_UNROLL
    for (int i = 0; i < words; i++) {
      chunk.packed[i] = w[row * row_words + lane_words + i];
    }
  }

  METAL_FUNC void load_scale(int row, thread Row& chunk) const {
    chunk.scale =
        dequantize_scale<U, group_size>(scales[row * row_groups + lane_group]);
  }

  static METAL_FUNC void
  unpack(const thread Row& chunk, int quad, thread Weight* weights) {
    STEEL_PRAGMA_UNROLL
    for (int i = 0; i < 4; i++) {
      const int value = 4 * quad + i;
      const uint32_t word = chunk.packed[value / per_word];
      weights[i] =
          Dequantize<bits, half>{}(word >> (bits * (value % per_word)));
    }
  }

  // Like load_vector, four values at a time: `x` is aligned for that, and a
  // load of one value costs a GPU as much.
  static METAL_FUNC void
  load_x(const device T* x, thread U* x_thread, thread U&) {
    const auto four = *(const device vec<T, 4>*)x;
    STEEL_PRAGMA_UNROLL
    for (int i = 0; i < 4; i++) {
      x_thread[i] = four[i];
    }
  }

  static METAL_FUNC void
  dot(int, const thread Weight* weights, const thread U* x, thread U& accum) {
    if constexpr (bits == 4) {
      accum +=
          (x[0] * U(weights[0]) + x[1] * U(weights[1]) + x[2] * U(weights[2]) +
           x[3] * U(weights[3]));
    } else {
      STEEL_PRAGMA_UNROLL
      for (int i = 0; i < 4; i++) {
        accum += x[i] * U(weights[i]);
      }
    }
  }

  static METAL_FUNC U finish(const thread Row& chunk, U, U accum) {
    return chunk.scale * accum;
  }

  METAL_FUNC U total(U sum) const {
    if constexpr (has_global_scale) {
      return sum * scale_of_all;
    } else {
      return sum;
    }
  }
};

// Buffers are fp_qmv's with M and the rows of a tile after the sizes, the grid
// is fp_qmv_wide's; `rows` and `sharing` are those of StreamedTile.
template <
    typename T,
    int group_size,
    int bits,
    int V,
    int rows,
    int sharing,
    bool fast,
    bool batched,
    bool has_global_scale>
[[
  kernel,
  max_total_threads_per_threadgroup(32 * (sharing > 0 ? sharing : 2))
]] void
fp_qmv_streamed(
    const device uint32_t* w [[buffer(0)]],
    const device uint8_t* scales [[buffer(1)]],
    const device float* global_scale [[buffer(2)]],
    const device T* x [[buffer(3)]],
    device T* y [[buffer(4)]],
    const constant int& in_vec_size [[buffer(5)]],
    const constant int& out_vec_size [[buffer(6)]],
    const constant int& M [[buffer(7)]],
    const constant int& tile_rows [[buffer(8)]],
    const constant int& x_batch_ndims [[buffer(9)]],
    const constant int* x_shape [[buffer(10)]],
    const constant int64_t* x_strides [[buffer(11)]],
    const constant int& w_batch_ndims [[buffer(12)]],
    const constant int* w_shape [[buffer(13)]],
    const constant int64_t* w_strides [[buffer(14)]],
    const constant int64_t* s_strides [[buffer(15)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  typedef FpQmvFormat<T, group_size, bits, fast, has_global_scale> Format;
  typedef StreamedTile<Format, V, rows, sharing> Tile;
  threadgroup float4 shared[Tile::shared_size];
  if (batched) {
    adjust_matrix_offsets(
        x,
        w,
        scales,
        y,
        out_vec_size * M,
        x_batch_ndims,
        x_shape,
        x_strides,
        w_batch_ndims,
        w_shape,
        w_strides,
        s_strides,
        tid);
  }
  const int row = min(Tile::first_row(tid, simd_gid), out_vec_size - 1);
  Format weights(w, scales, global_scale, in_vec_size, row, simd_lid);
  streamed_tile<Format, V, rows, sharing>(
      weights,
      x,
      y,
      shared,
      in_vec_size,
      out_vec_size,
      M,
      tile_rows,
      tid,
      simd_gid,
      simd_lid);
}
