// gemv and gemv_t for several vectors at once: the matrix is read once for V of
// them, and each is summed as if it were alone. Follows GEMVKernel and
// GEMVTKernel of gemv.h. Include after gemv.h; the JIT appends this file to
// that header's text, so the header is not included here.

#pragma once

// Whether a bias is added.
constant bool gemv_rows_axpby [[function_constant(20)]];

// Where one threadgroup reads and writes: its product of the batch, and `count`
// rows of it.
template <typename T, int V>
struct GemvRowsBlock {
  const device T* mat;
  const device T* x;
  const device T* bias;
  device T* out;
  int count;
  int64_t x_ld;
  int64_t bias_ld;

  // For row v. Rows past the last read the values of the last one and are not
  // written.
  METAL_FUNC const device T* row(int v) const {
    return x + min(v, count - 1) * x_ld;
  }

  // A value is rounded before the bias is added, as in the kernels for one row.
  METAL_FUNC void write(
      int v,
      int column,
      float value,
      float alpha,
      float beta,
      int out_vec_size,
      int bias_stride) const {
    device T* to = out + int64_t(v) * out_vec_size + column;
    if (gemv_rows_axpby) {
      *to = static_cast<T>(alpha) * static_cast<T>(value) +
          static_cast<T>(beta) *
              bias[v * bias_ld + int64_t(column) * bias_stride];
    } else {
      *to = static_cast<T>(value);
    }
  }
};

template <typename T, int V>
METAL_FUNC GemvRowsBlock<T, V> gemv_rows_block(
    const device T* mat,
    const device T* x,
    const device T* bias,
    device T* out,
    int out_vec_size,
    int rows,
    int64_t x_ld,
    int64_t bias_ld,
    int batch_ndim,
    const constant int* batch_shape,
    const constant int64_t* x_batch_strides,
    const constant int64_t* mat_batch_strides,
    const constant int64_t* bias_batch_strides,
    uint3 tid) {
  const int first = tid.y * V;
  mat +=
      elem_to_loc(int64_t(tid.z), batch_shape, mat_batch_strides, batch_ndim);
  x += elem_to_loc(int64_t(tid.z), batch_shape, x_batch_strides, batch_ndim);
  x += first * x_ld;
  if (gemv_rows_axpby) {
    bias += elem_to_loc(
        int64_t(tid.z), batch_shape, bias_batch_strides, batch_ndim);
    bias += first * bias_ld;
  }
  out += (int64_t(tid.z) * rows + first) * out_vec_size;
  return {mat, x, bias, out, min(V, rows - first), x_ld, bias_ld};
}

// Weights are (out_vec_size, in_vec_size).
template <
    typename T,
    const int BM,
    const int BN,
    const int SM,
    const int SN,
    const int TM,
    const int TN,
    const int V>
[[kernel, max_total_threads_per_threadgroup(BM* BN * 32)]] void gemv_rows(
    const device T* mat [[buffer(0)]],
    const device T* x [[buffer(1)]],
    const device T* bias [[buffer(2), function_constant(gemv_rows_axpby)]],
    device T* out [[buffer(3)]],
    const constant int& in_vec_size [[buffer(4)]],
    const constant int& out_vec_size [[buffer(5)]],
    const constant int& rows [[buffer(6)]],
    const constant int& matrix_ld [[buffer(7)]],
    const constant int64_t& x_ld [[buffer(8)]],
    const constant int& batch_ndim [[buffer(9)]],
    const constant int* batch_shape [[buffer(10)]],
    const constant int64_t* x_batch_strides [[buffer(11)]],
    const constant int64_t* mat_batch_strides [[buffer(12)]],
    const constant int64_t* bias_batch_strides
    [[buffer(13), function_constant(gemv_rows_axpby)]],
    const constant int64_t& bias_ld
    [[buffer(14), function_constant(gemv_rows_axpby)]],
    const constant int& bias_stride
    [[buffer(15), function_constant(gemv_rows_axpby)]],
    const constant float& alpha
    [[buffer(16), function_constant(gemv_rows_axpby)]],
    const constant float& beta
    [[buffer(17), function_constant(gemv_rows_axpby)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  using one = GEMVKernel<T, BM, BN, SM, SN, TM, TN, false>;
  constexpr int tg_row = one::blockM + TM;
  threadgroup float tgp_memory[BN > 1 ? V * BN * tg_row : 1];
  const auto block = gemv_rows_block<T, V>(
      mat,
      x,
      bias,
      out,
      out_vec_size,
      rows,
      x_ld,
      bias_ld,
      batch_ndim,
      batch_shape,
      x_batch_strides,
      mat_batch_strides,
      bias_batch_strides,
      tid);

  const int lane_m = simd_lid / SN;
  const int lane_n = simd_lid % SN;
  const int group_m = simd_gid / BN;
  const int group_n = simd_gid % BN;
  const int block_row = (SM * group_m + lane_m) * TM;
  int column = tid.x * one::blockM + block_row;
  if (column >= out_vec_size) {
    return;
  }
  // The last threads shift back into the matrix, over outputs of others.
  column = min(column, out_vec_size - TM);
  const device T* weights = block.mat + size_t(column) * matrix_ld;

  float result[V][TM] = {{0}};
  T w[TM][TN];
  float coeff[TN];

  int k = (SN * group_n + lane_n) * TN;
  for (int i = in_vec_size / one::blockN; i > 0; i--) {
    MLX_MTL_PRAGMA_UNROLL
    for (int tm = 0; tm < TM; tm++) {
      one::load_unsafe(weights, w[tm], tm * matrix_ld + k);
    }
    MLX_MTL_PRAGMA_UNROLL
    for (int v = 0; v < V; v++) {
      one::template load_unsafe<float>(block.row(v), coeff, k);
      MLX_MTL_PRAGMA_UNROLL
      for (int tm = 0; tm < TM; tm++) {
        MLX_MTL_PRAGMA_UNROLL
        for (int tn = 0; tn < TN; tn++) {
          result[v][tm] += w[tm][tn] * coeff[tn];
        }
      }
    }
    k += one::blockN;
  }
  if (in_vec_size % one::blockN != 0) {
    MLX_MTL_PRAGMA_UNROLL
    for (int tm = 0; tm < TM; tm++) {
      one::load_safe(&weights[tm * matrix_ld], w[tm], k, in_vec_size);
    }
    MLX_MTL_PRAGMA_UNROLL
    for (int v = 0; v < V; v++) {
      one::template load_safe<float>(block.row(v), coeff, k, in_vec_size);
      MLX_MTL_PRAGMA_UNROLL
      for (int tm = 0; tm < TM; tm++) {
        MLX_MTL_PRAGMA_UNROLL
        for (int tn = 0; tn < TN; tn++) {
          result[v][tm] += w[tm][tn] * coeff[tn];
        }
      }
    }
  }

  MLX_MTL_PRAGMA_UNROLL
  for (int v = 0; v < V; v++) {
    MLX_MTL_PRAGMA_UNROLL
    for (int tm = 0; tm < TM; tm++) {
      MLX_MTL_PRAGMA_UNROLL
      for (ushort sn = SN / 2; sn >= 1; sn >>= 1) {
        result[v][tm] += simd_shuffle_down(result[v][tm], sn);
      }
    }
  }

  if (BN == 1) {
    if (lane_n == 0) {
      MLX_MTL_PRAGMA_UNROLL
      for (int v = 0; v < V; v++) {
        if (v < block.count) {
          MLX_MTL_PRAGMA_UNROLL
          for (int tm = 0; tm < TM; tm++) {
            block.write(
                v,
                column + tm,
                result[v][tm],
                alpha,
                beta,
                out_vec_size,
                bias_stride);
          }
        }
      }
    }
    return;
  }

  // All simdgroups of a threadgroup that shares K have the same outputs: either
  // all of them returned above, or none.
  threadgroup float* sums = tgp_memory + block_row;
  if (lane_n == 0) {
    MLX_MTL_PRAGMA_UNROLL
    for (int v = 0; v < V; v++) {
      MLX_MTL_PRAGMA_UNROLL
      for (int tm = 0; tm < TM; tm++) {
        sums[(v * BN + group_n) * tg_row + tm] = result[v][tm];
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane_n == 0 && group_n == 0) {
    // The sums of all rows are in memory; only a few values are in registers.
    for (int v = 0; v < block.count; v++) {
      for (int tm = 0; tm < TM; tm++) {
        float sum = sums[v * BN * tg_row + tm];
        for (int sg = 1; sg < BN; sg++) {
          sum += sums[(v * BN + sg) * tg_row + tm];
        }
        block.write(
            v, column + tm, sum, alpha, beta, out_vec_size, bias_stride);
      }
    }
  }
}

// Weights are (in_vec_size, out_vec_size). MLX has no tile with more than one
// simdgroup along K.
template <
    typename T,
    const int BM,
    const int BN,
    const int SM,
    const int SN,
    const int TM,
    const int TN,
    const int V>
[[kernel, max_total_threads_per_threadgroup(BM* BN * 32)]] void gemv_t_rows(
    const device T* mat [[buffer(0)]],
    const device T* x [[buffer(1)]],
    const device T* bias [[buffer(2), function_constant(gemv_rows_axpby)]],
    device T* out [[buffer(3)]],
    const constant int& in_vec_size [[buffer(4)]],
    const constant int& out_vec_size [[buffer(5)]],
    const constant int& rows [[buffer(6)]],
    const constant int& matrix_ld [[buffer(7)]],
    const constant int64_t& x_ld [[buffer(8)]],
    const constant int& batch_ndim [[buffer(9)]],
    const constant int* batch_shape [[buffer(10)]],
    const constant int64_t* x_batch_strides [[buffer(11)]],
    const constant int64_t* mat_batch_strides [[buffer(12)]],
    const constant int64_t* bias_batch_strides
    [[buffer(13), function_constant(gemv_rows_axpby)]],
    const constant int64_t& bias_ld
    [[buffer(14), function_constant(gemv_rows_axpby)]],
    const constant int& bias_stride
    [[buffer(15), function_constant(gemv_rows_axpby)]],
    const constant float& alpha
    [[buffer(16), function_constant(gemv_rows_axpby)]],
    const constant float& beta
    [[buffer(17), function_constant(gemv_rows_axpby)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint simd_gid [[simdgroup_index_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  static_assert(BM == 1, "a threadgroup does not share K among simdgroups");
  using one = GEMVTKernel<T, BM, BN, SM, SN, TM, TN, false>;
  const auto block = gemv_rows_block<T, V>(
      mat,
      x,
      bias,
      out,
      out_vec_size,
      rows,
      x_ld,
      bias_ld,
      batch_ndim,
      batch_shape,
      x_batch_strides,
      mat_batch_strides,
      bias_batch_strides,
      tid);

  const int lane_k = simd_lid / SN;
  const int lane_n = simd_lid % SN;
  int column = tid.x * one::blockN + (SN * simd_gid + lane_n) * TN;
  const bool inside = column < out_vec_size;
  // The last threads shift back into the matrix, over outputs of others.
  column = min(column, out_vec_size - TN);
  const device T* weights = block.mat + column;

  float result[V][TN] = {{0}};
  T w[TM][TN];

  if (inside) {
    int k = lane_k * TM;
    for (int i = in_vec_size / one::blockM; i > 0; i--) {
      MLX_MTL_PRAGMA_UNROLL
      for (int tm = 0; tm < TM; tm++) {
        MLX_MTL_PRAGMA_UNROLL
        for (int tn = 0; tn < TN; tn++) {
          w[tm][tn] = weights[size_t(k + tm) * matrix_ld + tn];
        }
      }
      MLX_MTL_PRAGMA_UNROLL
      for (int v = 0; v < V; v++) {
        const device T* x_v = block.row(v) + k;
        MLX_MTL_PRAGMA_UNROLL
        for (int tm = 0; tm < TM; tm++) {
          const float coeff = static_cast<float>(x_v[tm]);
          MLX_MTL_PRAGMA_UNROLL
          for (int tn = 0; tn < TN; tn++) {
            result[v][tn] += coeff * w[tm][tn];
          }
        }
      }
      k += one::blockM;
    }
    for (int end = min(k + TM, in_vec_size); k < end; k++) {
      MLX_MTL_PRAGMA_UNROLL
      for (int tn = 0; tn < TN; tn++) {
        w[0][tn] = weights[size_t(k) * matrix_ld + tn];
      }
      MLX_MTL_PRAGMA_UNROLL
      for (int v = 0; v < V; v++) {
        const float coeff = static_cast<float>(block.row(v)[k]);
        MLX_MTL_PRAGMA_UNROLL
        for (int tn = 0; tn < TN; tn++) {
          result[v][tn] += coeff * w[0][tn];
        }
      }
    }
  }

  MLX_MTL_PRAGMA_UNROLL
  for (int v = 0; v < V; v++) {
    MLX_MTL_PRAGMA_UNROLL
    for (int tn = 0; tn < TN; tn++) {
      MLX_MTL_PRAGMA_UNROLL
      for (ushort sm = SM / 2; sm >= 1; sm >>= 1) {
        result[v][tn] += simd_shuffle_down(result[v][tn], SN * sm);
      }
    }
  }

  if (lane_k == 0 && inside) {
    MLX_MTL_PRAGMA_UNROLL
    for (int v = 0; v < V; v++) {
      if (v < block.count) {
        MLX_MTL_PRAGMA_UNROLL
        for (int tn = 0; tn < TN; tn++) {
          block.write(
              v,
              column + tn,
              result[v][tn],
              alpha,
              beta,
              out_vec_size,
              bias_stride);
        }
      }
    }
  }
}
