// sdpa_vector_2pass_1_gqa for several query rows, each over its own keys and
// added in the same order as alone.

#pragma once

#include <metal_simdgroup>

using namespace metal;

// A threadgroup computes the G query heads of a key head, with one simdgroup
// each. The keys of the block are divided into HPT parts; a simdgroup sums HPT
// heads over one part. Row r sees `keys` keys, fewer under a causal mask, and a
// block of it has ceil(keys / blocks) of them. Rows whose blocks have the same
// length begin at the same key: up to P of them share each load. Registers
// limit P: a lane needs 2 P HPT D / 32 of them for queries and sums, 64 of 128.
template <typename T, int D, int G, int HPT, int P>
[[kernel, max_total_threads_per_threadgroup(G * 32)]] void
sdpa_vector_2pass_1_gqa_rows(
    const device T* queries [[buffer(0)]],
    const device T* keys [[buffer(1)]],
    const device T* values [[buffer(2)]],
    device T* out [[buffer(3)]],
    device float* sums [[buffer(4)]],
    device float* maxs [[buffer(5)]],
    const constant int& rows [[buffer(6)]],
    const constant int& N [[buffer(7)]],
    // For each of q, k and v: of a sequence, a head and a position.
    const constant int64_t* strides [[buffer(8)]],
    const constant float& scale [[buffer(9)]],
    const constant bool& causal [[buffer(10)]],
    uint3 tid [[threadgroup_position_in_grid]],
    uint3 tpg [[threadgroups_per_grid]],
    uint3 tidtg [[thread_position_in_threadgroup]],
    uint simd_lid [[thread_index_in_simdgroup]]) {
  constexpr int per_lane = D / 32;
  constexpr int parts = HPT;
  typedef float U;

  threadgroup U o_sh[G * parts * D];
  threadgroup U sum_sh[G * parts];
  threadgroup U max_sh[G * parts];

  const int blocks = tpg.z;
  const int block = tid.z;
  const int g = tidtg.y;
  const int part = g / (G / HPT);
  const int h0 = (g % (G / HPT)) * HPT;
  const int head0 = tid.x * G;
  const int lane0 = simd_lid * per_lane;
  queries += tid.y * strides[0] + lane0;
  keys += tid.y * strides[3] + tid.x * strides[4] + lane0;
  values += tid.y * strides[6] + tid.x * strides[7] + lane0;

  for (int row0 = 0; row0 < rows;) {
    // The rows that share loads, and their keys.
    const int n0 = causal ? N - (rows - 1 - row0) : N;
    const int chunk = (n0 + blocks - 1) / blocks;
    const int begin = block * chunk;
    const int sub = (chunk + parts - 1) / parts;
    const int s0 = begin + part * sub;
    int s1[P];
    int count = 0;
    int last = s0;
    MLX_MTL_PRAGMA_UNROLL
    for (int p = 0; p < P; p++) {
      const int n = causal ? n0 + p : n0;
      const bool joins =
          count == p && row0 + p < rows && (n + blocks - 1) / blocks == chunk;
      count += joins;
      s1[p] = joins ? min(min(n, begin + chunk), s0 + sub) : s0;
      last = max(last, s1[p]);
    }

    U q[P][HPT][per_lane];
    U max_score[P][HPT];
    U sum_exp_score[P][HPT];
    U o[P][HPT][per_lane];
    MLX_MTL_PRAGMA_UNROLL
    for (int p = 0; p < P; p++) {
      const int row = min(row0 + p, rows - 1);
      MLX_MTL_PRAGMA_UNROLL
      for (int j = 0; j < HPT; j++) {
        const device T* qp =
            queries + (head0 + h0 + j) * strides[1] + row * strides[2];
        for (int i = 0; i < per_lane; i++) {
          q[p][j][i] = static_cast<U>(scale) * qp[i];
          o[p][j][i] = 0;
        }
        max_score[p][j] = Limits<U>::finite_min;
        sum_exp_score[p][j] = 0;
      }
    }

    const device T* kp = keys + s0 * strides[5];
    const device T* vp = values + s0 * strides[8];
    for (int t = s0; t < last; t++) {
      U k[per_lane];
      U v[per_lane];
      for (int i = 0; i < per_lane; i++) {
        k[i] = kp[i];
        v[i] = vp[i];
      }
      kp += strides[5];
      vp += strides[8];
      MLX_MTL_PRAGMA_UNROLL
      for (int p = 0; p < P; p++) {
        if (t >= s1[p]) {
          continue;
        }
        MLX_MTL_PRAGMA_UNROLL
        for (int j = 0; j < HPT; j++) {
          U score = 0;
          for (int i = 0; i < per_lane; i++) {
            score += q[p][j][i] * k[i];
          }
          score = simd_sum(score);
          U new_max = max(max_score[p][j], score);
          U factor = fast::exp(max_score[p][j] - new_max);
          U exp_score = fast::exp(score - new_max);
          max_score[p][j] = new_max;
          sum_exp_score[p][j] = sum_exp_score[p][j] * factor + exp_score;
          for (int i = 0; i < per_lane; i++) {
            o[p][j][i] = o[p][j][i] * factor + exp_score * v[i];
          }
        }
      }
    }

    // Combines the parts of a block, one row after the other.
    MLX_MTL_PRAGMA_UNROLL
    for (int p = 0; p < P; p++) {
      if (p >= count) {
        break;
      }
      MLX_MTL_PRAGMA_UNROLL
      for (int j = 0; j < HPT; j++) {
        const int slot = (h0 + j) * parts + part;
        U inv = sum_exp_score[p][j] > 0 ? 1 / sum_exp_score[p][j] : 0;
        for (int i = 0; i < per_lane; i++) {
          o_sh[slot * D + lane0 + i] = o[p][j][i] * inv;
        }
        if (simd_lid == 0) {
          sum_sh[slot] = sum_exp_score[p][j];
          max_sh[slot] = max_score[p][j];
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);

      U total_max = Limits<U>::finite_min;
      for (int s = 0; s < parts; s++) {
        total_max = max(total_max, max_sh[g * parts + s]);
      }
      U total = 0;
      U acc[per_lane] = {0};
      for (int s = 0; s < parts; s++) {
        const int slot = g * parts + s;
        U w = sum_sh[slot] * fast::exp(max_sh[slot] - total_max);
        total += w;
        for (int i = 0; i < per_lane; i++) {
          acc[i] += w * o_sh[slot * D + lane0 + i];
        }
      }

      const int64_t at =
          (int64_t(tid.y * tpg.x * G + head0 + g) * rows + row0 + p) * blocks +
          block;
      for (int i = 0; i < per_lane; i++) {
        out[at * D + lane0 + i] = static_cast<T>(acc[i]);
      }
      if (simd_lid == 0) {
        sums[at] = total;
        maxs[at] = total_max;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    row0 += count;
  }
}
