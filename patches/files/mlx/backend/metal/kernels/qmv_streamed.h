// Order-preserving twins of affine_qmv_fast and affine_qmv for several rows.
//
// Include after quantized.h, whose helpers this file uses; the JIT appends it
// to that header's text for the same reason.
//
// Every row of the result equals, bit for bit, what the one-row kernel gives.
// That kernel's order is kept in full: which lane takes which values of K, how
// it folds a chunk of them (load_vector and qdot), the scale and bias of the
// whole chunk at once, one running sum a lane and row, and simd_sum at the end.
// What changes is how often: a lane loads its packed weights, scales and biases
// and converts the weights once, and uses them for V rows.

///////////////////////////////////////////////////////////////////////////////
// A step: what load_vector and qdot fold in one turn of their loops
///////////////////////////////////////////////////////////////////////////////

template <int bits>
struct QmvStep {
  static_assert(
      bits == 1 || bits == 2 || bits == 3 || bits == 4 || bits == 5 ||
          bits == 6 || bits == 8,
      "Template undefined for bits not in {1, 2, 3, 4, 5, 6, 8}");

  // What qdot masks weights out of: 16 bits at 4 bits a weight, else a byte.
  typedef metal::conditional_t<bits == 4, uint16_t, uint8_t> Unit;
  MLX_MTL_CONST int unit_bits = bits == 4 ? 16 : 8;

  // Where weights fill 32-bit words a lane's chunk is whole words, aligned as
  // the matrix is; else it may begin at any byte.
  typedef metal::conditional_t<(bits & (bits - 1)) == 0, uint32_t, uint8_t>
      Word;

  // A single bit chooses, more bits multiply.
  typedef metal::conditional_t<bits == 1, bool, float> Weight;

  MLX_MTL_CONST int values = bits == 1 || bits == 3 || bits == 5 ? 8 : 4;
  MLX_MTL_CONST int units = values * bits / unit_bits;
  // A weight that lies in two units is two terms.
  MLX_MTL_CONST int terms = bits == 3 ? 10
      : bits == 5                     ? 12
      : bits == 6                     ? 6
                                      : values;
};

// How far left in its unit the weight of value `i` lies. Weights are not
// shifted: load_vector divides x instead, which is exact but for the smallest
// numbers.
template <int bits>
constexpr int qmv_place(int i) {
  return i * bits % QmvStep<bits>::unit_bits;
}

template <int bits>
constexpr bool qmv_is_split(int i) {
  return qmv_place<bits>(i) + bits > QmvStep<bits>::unit_bits;
}

// Unit `i` of a lane's packed weights.
template <int bits>
METAL_FUNC typename QmvStep<bits>::Unit qmv_unit(
    const thread typename QmvStep<bits>::Word* packed,
    int i) {
  typedef QmvStep<bits> Step;
  constexpr int units_per_word =
      sizeof(typename Step::Word) * 8 / Step::unit_bits;
  return static_cast<typename Step::Unit>(
      packed[i / units_per_word] >> (Step::unit_bits * (i % units_per_word)));
}

// The terms of step `step`, in the order in which qdot adds them.
template <int bits>
METAL_FUNC void qmv_unpack_step(
    const thread typename QmvStep<bits>::Word* packed,
    int step,
    thread typename QmvStep<bits>::Weight* w) {
  typedef QmvStep<bits> Step;
  typedef typename Step::Weight W;
  constexpr int mask = (1 << bits) - 1;

  int term = 0;
#pragma unroll
  for (int i = 0; i < Step::values; i++) {
    const int unit = step * Step::units + i * bits / Step::unit_bits;
    const int place = qmv_place<bits>(i);
    w[term++] = W(qmv_unit<bits>(packed, unit) & (mask << place));
    if (qmv_is_split<bits>(i)) {
      const int low = Step::unit_bits - place;
      w[term++] = W(qmv_unit<bits>(packed, unit + 1) & (mask >> low));
    }
  }
}

// A step of load_vector. `x` is aligned to four values, which are loaded at
// once: a load of one value costs a GPU as much as one of four.
template <typename T, int bits>
METAL_FUNC void
qmv_load_step(const device T* x, thread float* x_thread, thread float& sum) {
  typedef float U;
  constexpr int values = QmvStep<bits>::values;

  thread T v[values];
#pragma unroll
  for (int i = 0; i < values; i += 4) {
    const auto four = *(const device vec<T, 4>*)(x + i);
#pragma unroll
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
  } else if constexpr (values == 8) {
    sum += U(v[0]) + U(v[1]) + U(v[2]) + U(v[3]) + U(v[4]) + U(v[5]) + U(v[6]) +
        U(v[7]);
  } else {
    sum += U(v[0]) + U(v[1]) + U(v[2]) + U(v[3]);
  }

#pragma unroll
  for (int i = 0; i < values; i++) {
    x_thread[i] = bits == 1 ? U(v[i]) : U(v[i]) / (1 << qmv_place<bits>(i));
  }
}

// A step of qdot.
template <int bits>
METAL_FUNC void qmv_dot_step(
    const thread typename QmvStep<bits>::Weight* w,
    const thread float* x_thread,
    thread float& accum) {
  typedef float U;

  if constexpr (bits == 2 || bits == 4) {
    accum +=
        (x_thread[0] * w[0] + x_thread[1] * w[1] + x_thread[2] * w[2] +
         x_thread[3] * w[3]);
  } else {
    int term = 0;
#pragma unroll
    for (int i = 0; i < QmvStep<bits>::values; i++) {
      if constexpr (bits == 1) {
        accum += select(U(0), x_thread[i], w[term++]);
      } else {
        accum += w[term++] * x_thread[i];
        if (qmv_is_split<bits>(i)) {
          accum += w[term++] * (x_thread[i] * 256.0f);
        }
      }
    }
  }
}

// What qdot returns for a chunk. A compiler that fuses as it likes chooses one
// of the two products by which operands it meets first; in this order nvcc
// chooses as it does in qdot. Metal's front end goes by the expression.
METAL_FUNC float
qmv_chunk_sum(float sum, float bias, float scale, float accum) {
  return scale * accum + sum * bias;
}

///////////////////////////////////////////////////////////////////////////////
// The kernel
///////////////////////////////////////////////////////////////////////////////

// What one lane works on and its sums. The pointers are the lane's own, in the
// first row and vector, and go along K.
template <typename T, int rows, int V>
struct QmvStreamedTile {
  const device uint8_t* w;
  const device T* scales;
  const device T* biases;
  const device T* x;
  int w_stride; // bytes a row
  int group_stride;
  int x_stride;
  // Rows and vectors past the end repeat the last one and are not stored, so
  // nothing inside the loop has to ask.
  int last_row;
  int last_vec;
  float result[V][rows];
};

// Moves a lane along K by a multiple of its chunk that is whole groups, or by a
// part of its chunk.
template <int group_size, int bits, typename T, int rows, int V>
METAL_FUNC void qmv_streamed_advance(
    int values,
    thread QmvStreamedTile<T, rows, V>& tile) {
  tile.w +=
      values / get_pack_factor<bits, 32>() * get_bytes_per_pack<bits, 32>();
  tile.scales += values / group_size;
  tile.biases += values / group_size;
  tile.x += values;
}

// Folds a lane's next chunk of K into the sums.
template <int bits, int values_per_thread, typename T, int rows, int V>
METAL_FUNC void qmv_streamed_chunk(thread QmvStreamedTile<T, rows, V>& tile) {
  typedef QmvStep<bits> Step;
  typedef typename Step::Word Word;
  constexpr int words = values_per_thread * bits / 8 / sizeof(Word);

  thread Word packed[rows][words];
  thread float scale[rows];
  thread float bias[rows];
#pragma unroll
  for (int row = 0; row < rows; row++) {
    const int src = min(row, tile.last_row);
    auto w = (const device Word*)(tile.w + src * tile.w_stride);
#pragma unroll
    for (int i = 0; i < words; i++) {
      packed[row][i] = w[i];
    }
    scale[row] = tile.scales[src * tile.group_stride];
    bias[row] = tile.biases[src * tile.group_stride];
  }

  thread float accum[V][rows];
  thread float sum[V];
#pragma unroll
  for (int v = 0; v < V; v++) {
    sum[v] = 0;
#pragma unroll
    for (int row = 0; row < rows; row++) {
      accum[v][row] = 0;
    }
  }

  // For few vectors, steps outside: one step's weights are unpacked at a time.
  // For many, their unfinished sums would take more registers than that saves.
  constexpr int steps = values_per_thread / Step::values;
  constexpr int at_once = V <= 4 ? 1 : steps;
#pragma unroll
  for (int step0 = 0; step0 < steps; step0 += at_once) {
    thread typename Step::Weight w[at_once][rows][Step::terms];
#pragma unroll
    for (int i = 0; i < at_once; i++) {
#pragma unroll
      for (int row = 0; row < rows; row++) {
        qmv_unpack_step<bits>(packed[row], step0 + i, w[i][row]);
      }
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
      const device T* x = tile.x + min(v, tile.last_vec) * tile.x_stride;
#pragma unroll
      for (int i = 0; i < at_once; i++) {
        thread float x_thread[Step::values];
        qmv_load_step<T, bits>(
            x + (step0 + i) * Step::values, x_thread, sum[v]);
#pragma unroll
        for (int row = 0; row < rows; row++) {
          qmv_dot_step<bits>(w[i][row], x_thread, accum[v][row]);
        }
      }
      if (step0 + at_once == steps) {
#pragma unroll
        for (int row = 0; row < rows; row++) {
          tile.result[v][row] +=
              qmv_chunk_sum(sum[v], bias[row], scale[row], accum[v][row]);
        }
      }
    }
  }
}

// `packs_per_thread` is the twin's: 2 (1 at one and two bits) for qmv_fast, 1
// for qmv. `x` is aligned to four values.
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

  thread QmvStreamedTile<T, rows, V> tile;
  tile.w_stride = in_vec_size / pack_factor * bytes_per_pack;
  tile.group_stride = in_vec_size / group_size;
  tile.x_stride = in_vec_size;
  tile.last_row = min(rows, out_vec_size - out_row) - 1;
  tile.last_vec = min(V, M - vec0) - 1;
  const int64_t row0 = out_row;
  tile.w = (const device uint8_t*)w + row0 * tile.w_stride +
      simd_lid * packs_per_thread * bytes_per_pack;
  tile.scales =
      scales + row0 * tile.group_stride + simd_lid / scale_step_per_thread;
  tile.biases =
      biases + row0 * tile.group_stride + simd_lid / scale_step_per_thread;
  tile.x = x + static_cast<int64_t>(vec0) * tile.x_stride +
      simd_lid * values_per_thread;
#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int row = 0; row < rows; row++) {
      tile.result[v][row] = 0;
    }
  }

  int k = 0;
  for (; k + block_size <= in_vec_size; k += block_size) {
    qmv_streamed_chunk<bits, values_per_thread>(tile);
    qmv_streamed_advance<group_size, bits>(block_size, tile);
  }
  // K is a multiple of 32 and so of a lane's chunk: in the last block a lane
  // has a whole chunk or none, and needs no twin of the `_safe` helpers.
  if constexpr (partial_block) {
    if (k + static_cast<int>(simd_lid) * values_per_thread < in_vec_size) {
      qmv_streamed_chunk<bits, values_per_thread>(tile);
    }
  }

#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int row = 0; row < rows; row++) {
      const float total = simd_sum(tile.result[v][row]);
      if (simd_lid == 0 && v <= tile.last_vec && row <= tile.last_row) {
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
