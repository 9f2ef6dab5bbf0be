// Order-preserving twins of affine_qmv_fast and affine_qmv for several rows.
//
// Include after quantized.h, whose helpers this file uses; the JIT appends it
// to that header's text for the same reason.

#include "mlx/backend/metal/kernels/streamed_tile.h"

// Affine weights, and the order in which load_vector and qdot fold them.
// `fast` selects the kernel for one row: affine_qmv_fast, whose K is whole
// blocks, or affine_qmv.
template <typename T_, int group_size, int bits, bool fast>
struct QmvFormat {
  static_assert(
      bits == 1 || bits == 2 || bits == 3 || bits == 4 || bits == 5 ||
          bits == 6 || bits == 8,
      "Template undefined for bits not in {1, 2, 3, 4, 5, 6, 8}");

  typedef T_ T;
  typedef float U;

  MLX_MTL_CONST bool whole_blocks = fast;
  MLX_MTL_CONST bool has_sum = true;
  MLX_MTL_CONST bool three_bits = bits == 3;
  MLX_MTL_CONST int packs = fast && bits > 2 ? 2 : 1;
  MLX_MTL_CONST int pack_factor = get_pack_factor<bits, 32>();
  MLX_MTL_CONST int chunk_bytes = packs * get_bytes_per_pack<bits, 32>();
  MLX_MTL_CONST int values = packs * pack_factor;
  // What load_vector adds in one expression.
  MLX_MTL_CONST int x_step = bits == 1 || bits == 3 || bits == 5 ? 8 : 4;
  // A weight that is split over two units is two terms.
  MLX_MTL_CONST int terms = bits == 5 || bits == 6 ? 6 : bits == 3 ? 5 : 4;

  // The unit from which qdot masks weights: 16 bits at 4 bits, else a byte.
  typedef metal::conditional_t<bits == 4, uint16_t, uint8_t> Unit;
  MLX_MTL_CONST int unit_bits = bits == 4 ? 16 : 8;

  // The unit in which a lane loads its chunk: the widest that divides it. The
  // matrix is aligned to 32 bits, and so are its rows, as K is a multiple
  // of 32.
  typedef metal::conditional_t<
      chunk_bytes % 4 == 0,
      uint32_t,
      metal::conditional_t<chunk_bytes % 2 == 0, uint16_t, uint8_t>>
      Word;
  MLX_MTL_CONST int words = chunk_bytes / static_cast<int>(sizeof(Word));

  // One bit selects a value; more bits multiply.
  typedef metal::conditional_t<bits == 1, bool, U> Weight;

  struct Row {
    Word packed[words];
    U scale;
    U bias;
  };

  // Where the block begins in the simdgroup's first row, and the lane's part of
  // it: the pointers are the same for all lanes.
  const device uint8_t* w;
  const device T* scales;
  const device T* biases;
  int row_bytes;
  int row_groups;
  int lane_bytes;
  int lane_group;

  METAL_FUNC QmvFormat(
      const device uint32_t* w_,
      const device T* scales_,
      const device T* biases_,
      uint in_vec_size,
      int first_row,
      uint lane)
      : row_bytes(in_vec_size / pack_factor * (chunk_bytes / packs)),
        row_groups(in_vec_size / group_size),
        lane_bytes(lane * chunk_bytes),
        lane_group(lane / (group_size / values)) {
    const int64_t row = first_row;
    w = (const device uint8_t*)w_ + row * row_bytes;
    scales = scales_ + row * row_groups;
    biases = biases_ + row * row_groups;
  }

  METAL_FUNC void advance() {
    w += SIMD_SIZE * chunk_bytes;
    scales += SIMD_SIZE * values / group_size;
    biases += SIMD_SIZE * values / group_size;
  }

  METAL_FUNC void load(int row, thread Row& chunk) const {
    const auto from = (const device Word*)(w + row * row_bytes + lane_bytes);
    STEEL_PRAGMA_UNROLL
    for (int i = 0; i < words; i++) {
      chunk.packed[i] = from[i];
    }
  }

  METAL_FUNC void load_scale(int row, thread Row& chunk) const {
    chunk.scale = scales[row * row_groups + lane_group];
    chunk.bias = biases[row * row_groups + lane_group];
  }

  // Unit `i` of a lane's chunk.
  static METAL_FUNC Unit unit(const thread Row& chunk, int i) {
    constexpr int units = static_cast<int>(sizeof(Word)) * 8 / unit_bits;
    return static_cast<Unit>(
        chunk.packed[i / units] >> (unit_bits * (i % units)));
  }

  // The first bit of value `i` of a chunk in its unit.
  static constexpr int place(int i) {
    return i * bits % unit_bits;
  }

  // The terms of four values, in the order in which qdot adds them. Weights are
  // not shifted down: x is divided instead.
  static METAL_FUNC void
  unpack(const thread Row& chunk, int quad, thread Weight* weights) {
    constexpr int mask = (1 << bits) - 1;
    int term = 0;
    STEEL_PRAGMA_UNROLL
    for (int i = 4 * quad; i < 4 * quad + 4; i++) {
      const int at = i * bits / unit_bits;
      weights[term++] = Weight(unit(chunk, at) & (mask << place(i)));
      if (place(i) + bits > unit_bits) {
        weights[term++] =
            Weight(unit(chunk, at + 1) & (mask >> (unit_bits - place(i))));
      }
    }
  }

  // Divides a step of x by the power of two at which its weights were left,
  // which is exact except for the smallest numbers.
  static METAL_FUNC void place_x(thread U* x) {
    if constexpr (bits == 2) {
      x[1] /= 4.0f;
      x[2] /= 16.0f;
      x[3] /= 64.0f;
    } else if constexpr (bits == 3) {
      x[1] /= 8.0f;
      x[2] /= 64.0f;
      x[3] /= 2.0f;
      x[4] /= 16.0f;
      x[5] /= 128.0f;
      x[6] /= 4.0f;
      x[7] /= 32.0f;
    } else if constexpr (bits == 4) {
      x[1] /= 16.0f;
      x[2] /= 256.0f;
      x[3] /= 4096.0f;
    } else if constexpr (bits == 5) {
      x[1] /= 32.0f;
      x[2] /= 4.0f;
      x[3] /= 128.0f;
      x[4] /= 16.0f;
      x[5] /= 2.0f;
      x[6] /= 64.0f;
      x[7] /= 8.0f;
    } else if constexpr (bits == 6) {
      x[1] /= 64.0f;
      x[2] /= 16.0f;
      x[3] /= 4.0f;
    }
  }

  // `x` is aligned to four values, which are loaded at once: a load of one
  // value costs a GPU as much as one of four.
  static METAL_FUNC void
  load_x(const device T* x, thread U* x_thread, thread U& sum) {
    T v[x_step];
    STEEL_PRAGMA_UNROLL
    for (int i = 0; i < x_step; i += 4) {
      const auto four = *(const device vec<T, 4>*)(x + i);
      STEEL_PRAGMA_UNROLL
      for (int j = 0; j < 4; j++) {
        v[i + j] = four[j];
      }
    }

    if constexpr (bits == 1) {
      sum += v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7];
    } else if constexpr (bits == 8) {
      sum += v[0];
      sum += v[1];
      sum += v[2];
      sum += v[3];
    } else if constexpr (x_step == 8) {
      sum += U(v[0]) + U(v[1]) + U(v[2]) + U(v[3]) + U(v[4]) + U(v[5]) +
          U(v[6]) + U(v[7]);
    } else {
      sum += U(v[0]) + U(v[1]) + U(v[2]) + U(v[3]);
    }

    STEEL_PRAGMA_UNROLL
    for (int i = 0; i < x_step; i++) {
      x_thread[i] = U(v[i]);
    }
    place_x(x_thread);
  }

  static METAL_FUNC void dot(
      int quad,
      const thread Weight* weights,
      const thread U* x,
      thread U& accum) {
    if constexpr (bits == 2 || bits == 4) {
      accum +=
          (x[0] * weights[0] + x[1] * weights[1] + x[2] * weights[2] +
           x[3] * weights[3]);
    } else {
      int term = 0;
      STEEL_PRAGMA_UNROLL
      for (int i = 0; i < 4; i++) {
        if constexpr (bits == 1) {
          accum += select(U(0), x[i], weights[term++]);
        } else {
          accum += weights[term++] * x[i];
          if (place(4 * quad + i) + bits > unit_bits) {
            accum += weights[term++] * (x[i] * 256.0f);
          }
        }
      }
    }
  }

  // The result of qdot. A compiler that may fuse chooses one of the two
  // products by the order of the operands; in this order nvcc chooses as in
  // qdot. Metal's front end follows the expression.
  static METAL_FUNC U chunk_sum(U sum, U bias, U scale, U accum) {
    return scale * accum + sum * bias;
  }

  static METAL_FUNC U finish(const thread Row& chunk, U sum, U accum) {
    return chunk_sum(sum, chunk.bias, chunk.scale, accum);
  }

  METAL_FUNC U total(U sum) const {
    return sum;
  }
};

// Buffers and grid are those of affine_qmv_wide, with the rows of a tile after
// M; `rows` and `sharing` are those of StreamedTile.
template <
    typename T,
    int group_size,
    int bits,
    int V,
    int rows,
    int sharing,
    bool fast,
    bool batched>
[[
  kernel,
  max_total_threads_per_threadgroup(32 * (sharing > 0 ? sharing : 2))
]] void
affine_qmv_streamed(
    const device uint32_t* w [[buffer(0)]],
    const device T* scales [[buffer(1)]],
    const device T* biases [[buffer(2)]],
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
    const constant int64_t* b_strides [[buffer(16)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  typedef QmvFormat<T, group_size, bits, fast> Format;
  typedef StreamedTile<Format, V, rows, sharing> Tile;
  threadgroup float4 shared[Tile::shared_size];
  if (batched) {
    adjust_matrix_offsets<T>(
        x,
        w,
        scales,
        biases,
        y,
        out_vec_size * M,
        x_batch_ndims,
        x_shape,
        x_strides,
        w_batch_ndims,
        w_shape,
        w_strides,
        s_strides,
        b_strides,
        tid);
  }
  const int row = min(Tile::first_row(tid, simd_gid), out_vec_size - 1);
  Format weights(w, scales, biases, in_vec_size, row, simd_lid);
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
