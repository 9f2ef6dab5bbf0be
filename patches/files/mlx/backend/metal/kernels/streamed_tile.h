// The common part of qmv_streamed.h and fp_qmv_streamed.h: the product of a few
// rows of x with packed weights that are loaded once for all of them.
//
// Every row of the result equals, bit for bit, what MLX's kernel for one row
// gives. That kernel's order is kept in full: which lane has which values of K,
// how it folds a chunk of them, one running sum per lane and row, and simd_sum
// at the end. The difference: a lane loads and unpacks its weights once for V
// rows of x, and x may be prepared once for several simdgroups.
//
// Include through those two: the headers before them declare SIMD_SIZE,
// MLX_MTL_CONST, METAL_FUNC and STEEL_PRAGMA_UNROLL.
//
// A format says how weights are stored and how the kernel for one row folds a
// chunk of them:
//
//   T              the type of x and of the result
//   values         values of K in a lane's chunk, a multiple of 4
//   whole_blocks   whether K is whole chunks of all lanes
//   x_step         values of x that are prepared at a time, 4 or 8
//   Weight, terms  the unpacked weights of four values
//   Row            one row's packed chunk and its scale, in registers
//   has_sum        whether folding needs the sum of the chunk's x
//   three_bits     whether weights have 3 bits
//   load           loads a row's packed chunk
//   load_scale     loads its scale
//   advance        moves along K by one block of all lanes
//   unpack         the weights of four values
//   load_x         a step of x as the weights meet it, and its part of the sum
//   dot            adds the products of four values
//   finish         a chunk's contribution to the result
//   total          the result, from the sum over all lanes

#pragma once

// `rows` are outputs that a simdgroup computes, V the most rows of x.
// `sharing` simdgroups of a threadgroup share x in threadgroup memory; with 0
// there are two, and each lane prepares x for itself.
template <typename Format, int V, int rows, int sharing>
struct StreamedTile {
  typedef typename Format::T T;

  MLX_MTL_CONST int simdgroups = sharing > 0 ? sharing : 2;
  MLX_MTL_CONST int block = Format::values * SIMD_SIZE;
  MLX_MTL_CONST int quads = Format::values / 4;

  // Threadgroup memory in units of four floats: a block of prepared x and the
  // sums of its chunks.
  MLX_MTL_CONST int shared_sums = V * quads * SIMD_SIZE;
  MLX_MTL_CONST int shared_size = sharing == 0
      ? 1
      : shared_sums + (Format::has_sum ? V * SIMD_SIZE / 4 : 0);

  // Quads whose weights are unpacked at once: one if x is shared, as its rows
  // then lie in threadgroup memory. A lane that prepares x for itself unpacks a
  // whole chunk and takes one row of x after the other, so that the unfinished
  // sums of one row only are in registers.
  MLX_MTL_CONST int at_once = sharing > 0 ? 1 : quads;

  // Scales are loaded with the weights, which hides latency; but the unfinished
  // sums of many rows of x leave no registers for scales and biases before the
  // last quad.
  MLX_MTL_CONST bool scale_first =
      at_once == quads || !Format::has_sum || V == 2;

  static METAL_FUNC int first_row(uint3 tid, uint simd_gid) {
    return (tid.y * simdgroups + simd_gid) * rows;
  }

  // Prepares a lane's chunk of a row of x for all simdgroups.
  static METAL_FUNC void
  share(const device T* x, int v, uint lane, threadgroup float4* shared) {
    float sum = 0;
    STEEL_PRAGMA_UNROLL
    for (int i = 0; i < Format::values; i += Format::x_step) {
      float x_thread[Format::x_step];
      Format::load_x(x + i, x_thread, sum);
      STEEL_PRAGMA_UNROLL
      for (int j = 0; j < Format::x_step; j += 4) {
        shared[(v * quads + (i + j) / 4) * SIMD_SIZE + lane] = float4(
            x_thread[j], x_thread[j + 1], x_thread[j + 2], x_thread[j + 3]);
      }
    }
    if constexpr (Format::has_sum) {
      ((threadgroup float*)(shared + shared_sums))[v * SIMD_SIZE + lane] = sum;
    }
  }

  // Adds a chunk to the sums of a row of x.
  static METAL_FUNC void finish(
      const thread typename Format::Row (&chunk)[rows],
      int v,
      uint lane,
      const threadgroup float4* shared,
      float sum,
      const thread float (&accum)[rows],
      thread float (&result)[rows]) {
    if constexpr (sharing > 0 && Format::has_sum) {
      sum = ((const threadgroup float*)(shared + shared_sums))
          [v * SIMD_SIZE + lane];
    }
    STEEL_PRAGMA_UNROLL
    for (int row = 0; row < rows; row++) {
      result[row] += Format::finish(chunk[row], sum, accum[row]);
    }
  }

  // Folds a lane's chunk into the sums of `count` rows of x and all rows of
  // weights. Rows of weights past the last repeat it and are not stored, so no
  // condition is needed here.
  static METAL_FUNC void fold(
      const thread Format& weights,
      int last_row,
      const device T* x,
      int x_stride,
      int count,
      const threadgroup float4* shared,
      uint lane,
      thread float (&result)[V][rows]) {
    typename Format::Row chunk[rows];
    STEEL_PRAGMA_UNROLL
    for (int row = 0; row < rows; row++) {
      weights.load(min(row, last_row), chunk[row]);
      if constexpr (scale_first) {
        weights.load_scale(min(row, last_row), chunk[row]);
      }
    }

    float accum[V][rows];
    float sum[V];
    STEEL_PRAGMA_UNROLL
    for (int v = 0; v < V; v++) {
      sum[v] = 0;
      STEEL_PRAGMA_UNROLL
      for (int row = 0; row < rows; row++) {
        accum[v][row] = 0;
      }
    }

    STEEL_PRAGMA_UNROLL
    for (int quad0 = 0; quad0 < quads; quad0 += at_once) {
      typename Format::Weight w[at_once][rows][Format::terms];
      STEEL_PRAGMA_UNROLL
      for (int i = 0; i < at_once; i++) {
        STEEL_PRAGMA_UNROLL
        for (int row = 0; row < rows; row++) {
          Format::unpack(chunk[row], quad0 + i, w[i][row]);
        }
      }
      STEEL_PRAGMA_UNROLL
      for (int v = 0; v < V; v++) {
        float x_thread[4 * at_once];
        if constexpr (sharing > 0) {
          STEEL_PRAGMA_UNROLL
          for (int i = 0; i < at_once; i++) {
            const float4 four =
                shared[(v * quads + quad0 + i) * SIMD_SIZE + lane];
            STEEL_PRAGMA_UNROLL
            for (int j = 0; j < 4; j++) {
              x_thread[4 * i + j] = four[j];
            }
          }
        } else {
          const device T* x_row = x + min(v, count - 1) * x_stride +
              lane * Format::values + 4 * quad0;
          STEEL_PRAGMA_UNROLL
          for (int i = 0; i < 4 * at_once; i += Format::x_step) {
            Format::load_x(x_row + i, x_thread + i, sum[v]);
          }
        }
        STEEL_PRAGMA_UNROLL
        for (int i = 0; i < at_once; i++) {
          STEEL_PRAGMA_UNROLL
          for (int row = 0; row < rows; row++) {
            Format::dot(quad0 + i, w[i][row], x_thread + 4 * i, accum[v][row]);
          }
        }
        if constexpr (at_once == quads) {
          finish(chunk, v, lane, shared, sum[v], accum[v], result[v]);
        }
      }
    }

    if constexpr (!scale_first) {
      STEEL_PRAGMA_UNROLL
      for (int row = 0; row < rows; row++) {
        weights.load_scale(min(row, last_row), chunk[row]);
      }
    }
    if constexpr (at_once < quads) {
      STEEL_PRAGMA_UNROLL
      for (int v = 0; v < V; v++) {
        finish(chunk, v, lane, shared, sum[v], accum[v], result[v]);
      }
    }
  }

  // `count` rows of x from the first of the tile on; those past the last repeat
  // it and are not stored.
  static METAL_FUNC void compute(
      thread Format& weights,
      const device T* x,
      device T* y,
      threadgroup float4* shared,
      int in_vec_size,
      int out_vec_size,
      int count,
      uint3 tid,
      uint simd_gid,
      uint lane) {
    const int out_row = first_row(tid, simd_gid);
    const bool has_rows = out_row < out_vec_size;
    // If x is shared, every lane must reach the barriers.
    if (sharing == 0 && !has_rows) {
      return;
    }
    const int last_row = clamp(out_vec_size - out_row, 1, rows) - 1;

    float result[V][rows];
    STEEL_PRAGMA_UNROLL
    for (int v = 0; v < V; v++) {
      STEEL_PRAGMA_UNROLL
      for (int row = 0; row < rows; row++) {
        result[v][row] = 0;
      }
    }

    for (int k = 0; k < in_vec_size; k += block) {
      // K is a multiple of a lane's chunk: in the last block a lane has a whole
      // chunk or none, so that no `_safe` helpers are needed.
      const bool has_chunk = Format::whole_blocks ||
          k + static_cast<int>(lane) * Format::values < in_vec_size;
      if constexpr (sharing > 0) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int v = simd_gid; v < V && has_chunk; v += simdgroups) {
          const device T* x_row = x + min(v, count - 1) * in_vec_size;
          share(x_row + lane * Format::values, v, lane, shared);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
      }
      // A simdgroup past the last output computes that output again. With two
      // rows of x it is cheaper to leave it out; with more, the branch costs
      // more than it saves (H200).
      if (has_chunk && (V > 2 || has_rows)) {
        fold(weights, last_row, x, in_vec_size, count, shared, lane, result);
      }
      weights.advance();
      x += block;
    }

    STEEL_PRAGMA_UNROLL
    for (int v = 0; v < V; v++) {
      STEEL_PRAGMA_UNROLL
      for (int row = 0; row < rows; row++) {
        const float total = weights.total(simd_sum(result[v][row]));
        if (lane == 0 && v < count && out_row + row < out_vec_size) {
          y[static_cast<int64_t>(v) * out_vec_size + out_row + row] =
              static_cast<T>(total);
        }
      }
    }
  }
};

// The product of a threadgroup: `tile_rows` of the M rows of x, at most V,
// fewer in the last tile. A kernel for more than 4 rows has a second body for
// one row fewer, so that almost no row is computed in vain. 3-bit weights
// without shared x have none: with 5 and 7 rows that body was slower on an
// H200.
template <typename Format, int V, int rows, int sharing>
METAL_FUNC void streamed_tile(
    thread Format& weights,
    const device typename Format::T* x,
    device typename Format::T* y,
    threadgroup float4* shared,
    int in_vec_size,
    int out_vec_size,
    int M,
    int tile_rows,
    uint3 tid,
    uint simd_gid,
    uint lane) {
  const int first = tid.x * tile_rows;
  const int count = min(tile_rows, M - first);
  x += static_cast<int64_t>(first) * in_vec_size;
  y += static_cast<int64_t>(first) * out_vec_size;
  constexpr bool one_body = V <= 4 || (Format::three_bits && sharing == 0);
  // The same in all lanes of the threadgroup.
  if (one_body || count == V) {
    StreamedTile<Format, V, rows, sharing>::compute(
        weights,
        x,
        y,
        shared,
        in_vec_size,
        out_vec_size,
        count,
        tid,
        simd_gid,
        lane);
  } else {
    StreamedTile<Format, V - 1, rows, sharing>::compute(
        weights,
        x,
        y,
        shared,
        in_vec_size,
        out_vec_size,
        count,
        tid,
        simd_gid,
        lane);
  }
}
