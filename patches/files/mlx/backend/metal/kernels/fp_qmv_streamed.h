// Order-preserving twins of fp_qmv_fast and fp_qmv for several rows: mxfp4,
// mxfp8 and nvfp4.
//
// Include after fp_quantized.h, whose helpers this file uses; the JIT appends
// it to that header's text for the same reason. That header and quantized.h
// declare the same names, so this file and qmv_streamed.h never meet in one
// source.
//
// Every row of the result equals, bit for bit, what the one-row kernel gives.
// That kernel's order is kept in full: which lane takes which values of K, how
// many it folds before it adds (qdot of one chunk), the group's scale on the
// chunk's sum, one running sum a lane and row, simd_sum, and the tensor's scale
// on its total. The narrower one-row kernel that some GPUs take has fewer rows
// a simdgroup, and the same order. What changes is only how often memory is
// read: a lane loads and decodes its weights once and uses them for V rows.

// The output rows and rows of x that one simdgroup works on, and its sums.
template <typename T, int rows, int V>
struct FpQmvStreamedTile {
  const device uint32_t* w[rows];
  const device uint8_t* scales[rows];
  const device T* x[V];
  float result[V][rows];
};

// A lane's weights of a chunk, decoded from whole words. A half holds every fp4
// and fp8 value exactly, and upstream decodes to float by way of it.
template <int values_per_thread, int bits>
METAL_FUNC void fp_decode(const device uint32_t* w, thread half* values) {
  constexpr int per_word = 32 / bits;
#pragma unroll
  for (int i = 0; i < values_per_thread; i += per_word) {
    const uint32_t word = w[i / per_word];
#pragma unroll
    for (int j = 0; j < per_word; j++) {
      values[i + j] = Dequantize<bits, half>{}(word >> (bits * j));
    }
  }
}

// load_vector, four values at a time: `x` is aligned to them, and a load of one
// value costs a GPU as much.
template <typename T, typename U, int values_per_thread>
METAL_FUNC void fp_load_vector(const device T* x, thread U* x_thread) {
#pragma unroll
  for (int i = 0; i < values_per_thread; i += 4) {
    const auto four = *(const device vec<T, 4>*)(x + i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      x_thread[i + j] = four[j];
    }
  }
}

// qdot on decoded weights. Upstream's takes a device pointer and so would load
// and decode the weights anew for each vector; the sums below are its text.
template <typename U, int values_per_thread, int bits>
METAL_FUNC U
fp_qdot_decoded(const thread half* w, const thread U* x_thread, U scale) {
  U accum = 0;
  if constexpr (bits == 4) {
    for (int i = 0; i < (values_per_thread / 4); i++) {
      accum +=
          (x_thread[4 * i] * U(w[4 * i]) +
           x_thread[4 * i + 1] * U(w[4 * i + 1]) +
           x_thread[4 * i + 2] * U(w[4 * i + 2]) +
           x_thread[4 * i + 3] * U(w[4 * i + 3]));
    }
  } else {
    for (int i = 0; i < values_per_thread; i++) {
      accum += x_thread[i] * U(w[i]);
    }
  }

  return scale * accum;
}

// Folds one chunk of K, `values_per_thread` values from `k` on, into the sums.
// The pointers of the tile are the lane's own and start at k = 0.
template <
    typename T,
    int group_size,
    int bits,
    int values_per_thread,
    int rows,
    int V>
METAL_FUNC void fp_qmv_streamed_chunk(
    int k,
    thread FpQmvStreamedTile<T, rows, V>& tile) {
  typedef float U;

  thread half values[rows][values_per_thread];
  thread U scale[rows];
#pragma unroll
  for (int row = 0; row < rows; row++) {
    fp_decode<values_per_thread, bits>(
        tile.w[row] + k * bits / 32, values[row]);
    scale[row] =
        dequantize_scale<U, group_size>(tile.scales[row][k / group_size]);
  }

#pragma unroll
  for (int v = 0; v < V; v++) {
    thread U x_thread[values_per_thread];
    fp_load_vector<T, U, values_per_thread>(tile.x[v] + k, x_thread);
#pragma unroll
    for (int row = 0; row < rows; row++) {
      tile.result[v][row] += fp_qdot_decoded<U, values_per_thread, bits>(
          values[row], x_thread, scale[row]);
    }
  }
}

// `packs_per_thread` is the twin's: 2 for fp_qmv_fast, 1 for fp_qmv. `x` is
// aligned to four values.
template <
    typename T,
    int group_size,
    int bits,
    int packs_per_thread,
    int V,
    bool partial_block,
    bool has_global_scale>
METAL_FUNC void fp_qmv_streamed_impl(
    const device uint32_t* w,
    const device uint8_t* scales,
    const device float* global_scale,
    const device T* x,
    device T* y,
    const constant int& in_vec_size,
    const constant int& out_vec_size,
    const constant int& M,
    uint3 tid [[threadgroup_position_in_grid]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  constexpr int num_simdgroups = 2;
  constexpr int rows = 4;
  constexpr int values_per_thread =
      get_pack_factor<32, bits>() * packs_per_thread;
  constexpr int block_size = values_per_thread * SIMD_SIZE;
  constexpr int scale_step_per_thread = group_size / values_per_thread;

  const int out_row = tid.y * (num_simdgroups * rows) + simd_gid * rows;
  if (out_row >= out_vec_size) {
    return;
  }
  const int vec0 = tid.x * V;

  // Rows and vectors past the end repeat the last one and are not stored, so
  // nothing inside the loop has to ask.
  const int64_t in_vec_size_w = in_vec_size * bits / 32;
  const int64_t in_vec_size_g = in_vec_size / group_size;
  thread FpQmvStreamedTile<T, rows, V> tile;
#pragma unroll
  for (int row = 0; row < rows; row++) {
    const int64_t src = min(out_row + row, out_vec_size - 1);
    tile.w[row] =
        w + src * in_vec_size_w + simd_lid * values_per_thread * bits / 32;
    tile.scales[row] =
        scales + src * in_vec_size_g + simd_lid / scale_step_per_thread;
  }
#pragma unroll
  for (int v = 0; v < V; v++) {
    const int64_t src = min(vec0 + v, M - 1);
    tile.x[v] = x + src * in_vec_size + simd_lid * values_per_thread;
#pragma unroll
    for (int row = 0; row < rows; row++) {
      tile.result[v][row] = 0;
    }
  }

  int k = 0;
  for (; k + block_size <= in_vec_size; k += block_size) {
    fp_qmv_streamed_chunk<T, group_size, bits, values_per_thread, rows, V>(
        k, tile);
  }
  // K is a multiple of the group size and so of a lane's chunk: in the last
  // block a lane has a whole chunk or none, and needs no twin of the `_safe`
  // helpers.
  if constexpr (partial_block) {
    if (k + static_cast<int>(simd_lid) * values_per_thread < in_vec_size) {
      fp_qmv_streamed_chunk<T, group_size, bits, values_per_thread, rows, V>(
          k, tile);
    }
  }

  float inv_scale_enc = 1.0f;
  if constexpr (has_global_scale) {
    inv_scale_enc = *global_scale / (F8E4M3_MAX * F4E2M1_MAX);
  }
#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int row = 0; row < rows; row++) {
      float total = simd_sum(tile.result[v][row]);
      if constexpr (has_global_scale) {
        total *= inv_scale_enc;
      }
      if (simd_lid == 0 && vec0 + v < M && out_row + row < out_vec_size) {
        y[static_cast<int64_t>(vec0 + v) * out_vec_size + out_row + row] =
            static_cast<T>(total);
      }
    }
  }
}

// `fast` tells which kernel this one is the twin of: fp_qmv_fast, whose K is
// whole blocks, or fp_qmv. Buffers are fp_qmv's with M after the sizes, the
// grid is fp_qmv_wide's with V vectors a threadgroup.
template <
    typename T,
    int group_size,
    int bits,
    int V,
    bool fast,
    bool batched,
    bool has_global_scale>
[[kernel]] void fp_qmv_streamed(
    const device uint32_t* w [[buffer(0)]],
    const device uint8_t* scales [[buffer(1)]],
    const device float* global_scale [[buffer(2)]],
    const device T* x [[buffer(3)]],
    device T* y [[buffer(4)]],
    const constant int& in_vec_size [[buffer(5)]],
    const constant int& out_vec_size [[buffer(6)]],
    const constant int& M [[buffer(7)]],
    const constant int& x_batch_ndims [[buffer(8)]],
    const constant int* x_shape [[buffer(9)]],
    const constant int64_t* x_strides [[buffer(10)]],
    const constant int& w_batch_ndims [[buffer(11)]],
    const constant int* w_shape [[buffer(12)]],
    const constant int64_t* w_strides [[buffer(13)]],
    const constant int64_t* s_strides [[buffer(14)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
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
  constexpr int packs_per_thread = fast ? 2 : 1;
  fp_qmv_streamed_impl<
      T,
      group_size,
      bits,
      packs_per_thread,
      V,
      !fast,
      has_global_scale>(
      w,
      scales,
      global_scale,
      x,
      y,
      in_vec_size,
      out_vec_size,
      M,
      tid,
      simd_gid,
      simd_lid);
}
