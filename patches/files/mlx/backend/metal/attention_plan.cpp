#include "mlx/backend/metal/attention_plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace mlx::core {

namespace {

// The number of lanes of a simdgroup.
constexpr int lanes = 32;

// The same choice as sdpa_vector_2pass for one row, `heads` query heads per key
// head.
int blocks_alone(const mlx_row_attention& call, int heads, int keys) {
  if (call.blocks > 0) {
    return (call.blocks + lanes - 1) / lanes * lanes;
  }
  switch (call.size_class) {
    case 's':
      if (keys <= 1024 || heads <= 4) {
        return 64;
      }
      return keys <= 8192 ? 128
          : keys <= 32768 ? 256
          : keys <= 65536 ? 512
                          : 1024;
    case 'd':
      if (heads <= 2) {
        return keys > 8192 ? 256 : 128;
      }
      return heads < 6 || keys < 16384 ? 128 : keys < 65536 ? 512 : 1024;
    default:
      return heads >= 4 ? 64 : 32;
  }
}

// The same choice as ScaledDotProductAttention::eval_gpu and sdpa_vector_2pass.
mlx_row_attention_row row_alone(
    const mlx_row_problem& p,
    const mlx_row_attention& call,
    int keys,
    bool unfused) {
  if (unfused) {
    return {keys, MLX_ROW_ATTENTION_UNFUSED, 0, 0};
  }
  const bool large = call.size_class == 'd' || call.size_class == 's';
  const bool two_pass =
      (large && keys >= 1024) || (p.kv_heads < p.heads && keys >= 4096);
  if (!two_pass) {
    return {keys, MLX_ROW_ATTENTION_ONE_PASS, 0, 0};
  }
  const int heads = p.heads / p.kv_heads;
  const bool dims = p.k == p.n &&
      ((heads == 8 && (p.k == 64 || p.k == 128)) ||
       ((heads == 12 || heads == 16) && p.k == 128));
  const bool shared = dims && !call.mask && !call.sinks && keys >= 8192;
  return {
      keys,
      shared ? MLX_ROW_ATTENTION_TWO_PASS_SHARED : MLX_ROW_ATTENTION_TWO_PASS,
      blocks_alone(call, heads, keys),
      0};
}

// The most rows of a group.
int most_rows(
    const mlx_row_problem& p,
    const mlx_row_attention& call,
    int kind,
    int path) {
  // The other kinds go row by row, only with MLX's kernels.
  if (kind != MLX_ROW_POLICY_EXACT || path == MLX_ROW_ATTENTION_UNFUSED) {
    return 1;
  }
  if (path == MLX_ROW_ATTENTION_TWO_PASS) {
    // One simdgroup per row and query head.
    const int simdgroups = call.threads / lanes;
    return std::clamp(
        simdgroups / (p.heads / p.kv_heads), 1, attention_group_rows);
  }
  return attention_group_rows;
}

void check(const char* name, bool holds) {
  if (!holds) {
    throw std::invalid_argument(
        std::string("[mlx_row_plan_attention] ") + name);
  }
}

} // namespace

int attention_keys(
    const mlx_row_problem& p,
    const mlx_row_attention& call,
    int row) {
  return call.causal ? p.keys - (p.m - 1 - row) : p.keys;
}

std::vector<mlx_row_attention_row> plan_attention(
    const mlx_row_problem& p,
    const mlx_row_attention& call,
    int kind,
    const uint8_t* unfused) {
  check("the problem is not one of attention", p.op == MLX_ROW_OP_ATTENTION);
  check("rows and keys must be positive", p.m > 0 && p.keys > 0);
  check(
      "the heads of the queries must be a multiple of those of the keys",
      p.kv_heads > 0 && p.heads > 0 && p.heads % p.kv_heads == 0);
  check(
      "a causal block must not have more rows than keys",
      !call.causal || p.m <= p.keys);
  check("the most threads of a threadgroup must be positive", call.threads > 0);
  std::vector<mlx_row_attention_row> rows;
  rows.reserve(p.m);
  for (int r = 0; r < p.m; r++) {
    rows.push_back(
        row_alone(p, call, attention_keys(p, call, r), unfused[r] != 0));
  }
  for (int first = 0; first < p.m;) {
    const auto& one = rows[first];
    const int limit = std::min(p.m, first + most_rows(p, call, kind, one.path));
    int end = first + 1;
    while (end < limit && rows[end].path == one.path &&
           rows[end].blocks == one.blocks) {
      end++;
    }
    for (int r = first; r < end; r++) {
      rows[r].end = end;
    }
    first = end;
  }
  return rows;
}

} // namespace mlx::core

using namespace mlx::core;

extern "C" {

int mlx_row_plan_attention(
    const mlx_row_problem* problem,
    const mlx_row_attention* call,
    int32_t kind,
    const uint8_t* unfused,
    mlx_row_attention_row* rows) {
  return row_guarded([&] {
    const auto planned = plan_attention(*problem, *call, kind, unfused);
    std::copy(planned.begin(), planned.end(), rows);
  });
}

const char* mlx_row_attention_name(int32_t path) {
  switch (path) {
    case MLX_ROW_ATTENTION_UNFUSED:
      return "unfused";
    case MLX_ROW_ATTENTION_ONE_PASS:
      return "one-pass";
    case MLX_ROW_ATTENTION_TWO_PASS:
      return "two-pass";
    case MLX_ROW_ATTENTION_TWO_PASS_SHARED:
      return "two-pass-shared";
    default:
      return nullptr;
  }
}

} // extern "C"
