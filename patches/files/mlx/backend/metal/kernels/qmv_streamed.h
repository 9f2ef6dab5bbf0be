// Order-preserving twins of affine_qmv_fast and affine_qmv for several rows.
//
// Include after quantized.h, whose helpers this file uses; the JIT appends it
// to that header's text for the same reason.
//
// Every row of the result equals, bit for bit, what the one-row kernel gives.
// That kernel's order is kept in full: which lane takes which values of K, how
// many it folds before it adds (load_vector and qdot of one chunk), the scale
// and bias of the whole chunk at once, one running sum a lane and row, and
// simd_sum at the end. What changes is only how often memory is read: a lane
// loads its packed weights, scales and biases once and uses them for V rows.

///////////////////////////////////////////////////////////////////////////////
// One lane's packed weights in registers
///////////////////////////////////////////////////////////////////////////////

// The word that qdot reads: 16 bits at 4 bits a weight, else a byte.
template <int bits>
struct QmvPackedWord {
  typedef uint8_t type;
};

template <>
struct QmvPackedWord<4> {
  typedef uint16_t type;
};

// qdot on registers. Upstream's takes a device pointer and so has to load the
// weights anew for each vector; the arithmetic below is its text, and a test
// compares the two token by token.
template <typename U, int values_per_thread, int bits, typename W>
METAL_FUNC U qdot_packed(
    const thread W* w,
    const thread U* x_thread,
    U scale,
    U bias,
    U sum) {
  static_assert(
      bits == 1 || bits == 2 || bits == 3 || bits == 4 || bits == 5 ||
          bits == 6 || bits == 8,
      "Template undefined for bits not in {1, 2, 3, 4, 5, 6, 8}");

  U accum = 0;

  if (bits == 1) {
    for (int i = 0; i < (values_per_thread / 8); i++) {
      uint8_t wb = w[i];
      accum += select(U(0), x_thread[8 * i], bool(wb & 0x01));
      accum += select(U(0), x_thread[8 * i + 1], bool(wb & 0x02));
      accum += select(U(0), x_thread[8 * i + 2], bool(wb & 0x04));
      accum += select(U(0), x_thread[8 * i + 3], bool(wb & 0x08));
      accum += select(U(0), x_thread[8 * i + 4], bool(wb & 0x10));
      accum += select(U(0), x_thread[8 * i + 5], bool(wb & 0x20));
      accum += select(U(0), x_thread[8 * i + 6], bool(wb & 0x40));
      accum += select(U(0), x_thread[8 * i + 7], bool(wb & 0x80));
    }
  }

  else if (bits == 2) {
    for (int i = 0; i < (values_per_thread / 4); i++) {
      accum +=
          (x_thread[4 * i] * (w[i] & 0x03) +
           x_thread[4 * i + 1] * (w[i] & 0x0c) +
           x_thread[4 * i + 2] * (w[i] & 0x30) +
           x_thread[4 * i + 3] * (w[i] & 0xc0));
    }
  }

  else if (bits == 3) {
    for (int i = 0; i < (values_per_thread / 8); i++) {
      x_thread += 8 * i;
      w += 3 * i;

      accum += (w[0] & 0x07) * x_thread[0];
      accum += (w[0] & 0x38) * x_thread[1];
      accum += (w[0] & 0xc0) * x_thread[2];
      accum += (w[1] & 0x01) * (x_thread[2] * 256.0f);

      accum += (w[1] & 0x0e) * x_thread[3];
      accum += (w[1] & 0x70) * x_thread[4];
      accum += (w[1] & 0x80) * x_thread[5];
      accum += (w[2] & 0x03) * (x_thread[5] * 256.0f);

      accum += (w[2] & 0x1c) * x_thread[6];
      accum += (w[2] & 0xe0) * x_thread[7];
    }
  }

  else if (bits == 4) {
    const thread uint16_t* ws = (const thread uint16_t*)w;
    for (int i = 0; i < (values_per_thread / 4); i++) {
      accum +=
          (x_thread[4 * i] * (ws[i] & 0x000f) +
           x_thread[4 * i + 1] * (ws[i] & 0x00f0) +
           x_thread[4 * i + 2] * (ws[i] & 0x0f00) +
           x_thread[4 * i + 3] * (ws[i] & 0xf000));
    }
  }

  else if (bits == 5) {
    for (int i = 0; i < (values_per_thread / 8); i++) {
      x_thread += 8 * i;
      w += 5 * i;

      accum += (w[0] & 0x1f) * x_thread[0];
      accum += (w[0] & 0xe0) * x_thread[1];
      accum += (w[1] & 0x3) * (x_thread[1] * 256.0f);
      accum += (w[1] & 0x7c) * x_thread[2];
      accum += (w[1] & 0x80) * x_thread[3];
      accum += (w[2] & 0xf) * (x_thread[3] * 256.0f);
      accum += (w[2] & 0xf0) * x_thread[4];
      accum += (w[3] & 0x1) * (x_thread[4] * 256.0f);
      accum += (w[3] & 0x3e) * x_thread[5];
      accum += (w[3] & 0xc0) * x_thread[6];
      accum += (w[4] & 0x7) * (x_thread[6] * 256.0f);
      accum += (w[4] & 0xf8) * x_thread[7];
    }
  }

  else if (bits == 6) {
    for (int i = 0; i < (values_per_thread / 4); i++) {
      x_thread += 4 * i;
      w += 3 * i;

      accum += (w[0] & 0x3f) * x_thread[0];

      accum += (w[0] & 0xc0) * x_thread[1];
      accum += (w[1] & 0x0f) * (x_thread[1] * 256.0f);

      accum += (w[1] & 0xf0) * x_thread[2];
      accum += (w[2] & 0x03) * (x_thread[2] * 256.0f);

      accum += (w[2] & 0xfc) * x_thread[3];
    }
  }

  else if (bits == 8) {
    for (int i = 0; i < values_per_thread; i++) {
      accum += x_thread[i] * w[i];
    }
  }

  return scale * accum + sum * bias;
}

///////////////////////////////////////////////////////////////////////////////
// The kernel
///////////////////////////////////////////////////////////////////////////////

// The output rows and rows of x that one simdgroup works on, and its sums.
template <typename T, int rows, int V>
struct QmvStreamedTile {
  const device uint8_t* w[rows];
  const device T* scales[rows];
  const device T* biases[rows];
  const device T* x[V];
  float result[V][rows];
};

// Folds one chunk of K, `values_per_thread` values from `k` on, into the sums.
// The pointers of the tile are the lane's own and start at k = 0.
template <
    typename T,
    int group_size,
    int bits,
    int values_per_thread,
    int rows,
    int V>
METAL_FUNC void qmv_streamed_chunk(
    int k,
    thread QmvStreamedTile<T, rows, V>& tile) {
  typedef float U;
  typedef typename QmvPackedWord<bits>::type W;
  constexpr int words = values_per_thread * bits / 8 / sizeof(W);
  constexpr int pack_factor = get_pack_factor<bits, 32>();
  constexpr int bytes_per_pack = get_bytes_per_pack<bits, 32>();

  thread W packed[rows][words];
  thread U scale[rows];
  thread U bias[rows];
#pragma unroll
  for (int row = 0; row < rows; row++) {
    auto w = (const device W*)(tile.w[row] + k / pack_factor * bytes_per_pack);
#pragma unroll
    for (int i = 0; i < words; i++) {
      packed[row][i] = w[i];
    }
    scale[row] = tile.scales[row][k / group_size];
    bias[row] = tile.biases[row][k / group_size];
  }

#pragma unroll
  for (int v = 0; v < V; v++) {
    thread U x_thread[values_per_thread];
    U sum = load_vector<T, U, values_per_thread, bits>(tile.x[v] + k, x_thread);
#pragma unroll
    for (int row = 0; row < rows; row++) {
      tile.result[v][row] += qdot_packed<U, values_per_thread, bits, W>(
          packed[row], x_thread, scale[row], bias[row], sum);
    }
  }
}

// `packs_per_thread` is the twin's: 2 (1 at one and two bits) for qmv_fast, 1
// for qmv.
template <
    typename T,
    int group_size,
    int bits,
    int packs_per_thread,
    int V,
    bool partial_block>
METAL_FUNC void qmv_streamed_impl(
    const device uint32_t* w,
    const device T* scales,
    const device T* biases,
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
  constexpr int pack_factor = get_pack_factor<bits, 32>();
  constexpr int bytes_per_pack = get_bytes_per_pack<bits, 32>();
  constexpr int values_per_thread = pack_factor * packs_per_thread;
  constexpr int block_size = values_per_thread * SIMD_SIZE;
  constexpr int scale_step_per_thread = group_size / values_per_thread;

  const int out_row = tid.y * (num_simdgroups * rows) + simd_gid * rows;
  if (out_row >= out_vec_size) {
    return;
  }
  const int vec0 = tid.x * V;

  // Rows and vectors past the end repeat the last one and are not stored, so
  // nothing inside the loop has to ask.
  const int64_t in_vec_size_w = in_vec_size / pack_factor * bytes_per_pack;
  const int64_t in_vec_size_g = in_vec_size / group_size;
  thread QmvStreamedTile<T, rows, V> tile;
#pragma unroll
  for (int row = 0; row < rows; row++) {
    const int64_t src = min(out_row + row, out_vec_size - 1);
    tile.w[row] = (const device uint8_t*)w + src * in_vec_size_w +
        simd_lid * packs_per_thread * bytes_per_pack;
    tile.scales[row] =
        scales + src * in_vec_size_g + simd_lid / scale_step_per_thread;
    tile.biases[row] =
        biases + src * in_vec_size_g + simd_lid / scale_step_per_thread;
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
    qmv_streamed_chunk<T, group_size, bits, values_per_thread, rows, V>(
        k, tile);
  }
  // K is a multiple of 32 and so of a lane's chunk: in the last block a lane
  // has a whole chunk or none, and needs no twin of the `_safe` helpers.
  if constexpr (partial_block) {
    if (k + static_cast<int>(simd_lid) * values_per_thread < in_vec_size) {
      qmv_streamed_chunk<T, group_size, bits, values_per_thread, rows, V>(
          k, tile);
    }
  }

#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int row = 0; row < rows; row++) {
      const float total = simd_sum(tile.result[v][row]);
      if (simd_lid == 0 && vec0 + v < M && out_row + row < out_vec_size) {
        y[static_cast<int64_t>(vec0 + v) * out_vec_size + out_row + row] =
            static_cast<T>(total);
      }
    }
  }
}

// `fast` tells which kernel this one is the twin of: affine_qmv_fast, whose K
// is whole blocks, or affine_qmv. Buffers and grid are those of affine_qmv_wide
// with V vectors a threadgroup.
template <typename T, int group_size, int bits, int V, bool fast, bool batched>
[[kernel]] void affine_qmv_streamed(
    const device uint32_t* w [[buffer(0)]],
    const device T* scales [[buffer(1)]],
    const device T* biases [[buffer(2)]],
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
    const constant int64_t* b_strides [[buffer(15)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
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
  constexpr int packs_per_thread = fast && bits > 2 ? 2 : 1;
  qmv_streamed_impl<T, group_size, bits, packs_per_thread, V, !fast>(
      w,
      scales,
      biases,
      x,
      y,
      in_vec_size,
      out_vec_size,
      M,
      tid,
      simd_gid,
      simd_lid);
}
