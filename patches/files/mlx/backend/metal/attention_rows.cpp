#include "mlx/backend/metal/attention_rows.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <typeinfo>
#include <unordered_set>

#include "mlx/attention_rows.h"
#include "mlx/backend/common/compiled.h"
#include "mlx/backend/common/slicing.h"
#include "mlx/backend/gpu/copy.h"
#include "mlx/backend/metal/attention_plan.h"
#include "mlx/backend/metal/device.h"
#include "mlx/backend/metal/kernel_fingerprint.h"
#include "mlx/primitives.h"
#include "mlx/transforms_impl.h"
#include "mlx/utils.h"

namespace mlx::core::fast {

namespace {

// Whether this thread computes a group of rows.
thread_local bool in_group = false;

struct GroupScope {
  GroupScope() {
    in_group = true;
  }
  ~GroupScope() {
    in_group = false;
  }
};

// An array for queries of MLX's rules; it has no data.
array shaped(int batch, int heads, int length, int dim, Dtype type) {
  return array({batch, heads, length, dim}, type, nullptr, {});
}

// Whether MLX has no fused kernel for one row over that many keys. Throws if it
// must have one.
bool unfused_alone(
    const mlx_row_problem& p,
    Dtype type,
    int keys,
    bool mask,
    bool sinks,
    bool force_fused,
    Stream s) {
  return ScaledDotProductAttention::use_fallback(
      shaped(p.batch, p.heads, 1, p.k, type),
      shaped(p.batch, p.kv_heads, keys, p.k, type),
      shaped(p.batch, p.kv_heads, keys, p.n, type),
      mask,
      mask,
      false, // a row alone needs no causal mask
      sinks,
      false,
      false,
      force_fused,
      s);
}

// A view of [from, to) on one axis.
array cut(const array& x, int axis, int from, int to) {
  auto shape = x.shape();
  shape[axis] = to - from;
  array view(std::move(shape), x.dtype(), nullptr, {});
  Shape start(x.ndim(), 0);
  start[axis] = from;
  slice(x, view, start, Shape(x.ndim(), 1));
  view.set_status(array::Status::evaluated);
  return view;
}

// Whether MLX's kernels read keys and values where they are.
bool kept_in_place(const array& x) {
  return x.strides(3) == 1 &&
      (x.shape(0) == 1 || x.shape(1) == 1 ||
       x.strides(0) == x.strides(1) * x.shape(1));
}

array copied(const array& x, Stream s) {
  array copy = contiguous_copy_gpu(x, s);
  copy.set_status(array::Status::evaluated);
  metal::get_command_encoder(s).add_temporary(copy);
  return copy;
}

array temporary(Shape shape, Dtype type, Stream s) {
  array x(std::move(shape), type, nullptr, {});
  x.set_data(allocator::malloc(x.nbytes()));
  metal::get_command_encoder(s).add_temporary(x);
  return x;
}

// The most threads of a threadgroup of the two-pass kernel. Head dim 512 needs
// so many registers that the device must be asked.
int two_pass_threads(
    const std::vector<array>& inputs,
    bool causal,
    bool sinks,
    int blocks,
    metal::Device& d) {
  const auto& q = inputs[0];
  if (q.shape(3) != 512) {
    return 1024;
  }
  const bool mask = inputs.size() > 3 + sinks;
  const bool bool_mask = mask && inputs[3].dtype() == bool_;
  const bool float_mask = mask && !bool_mask;
  const bool transposed = true;
  const auto name = "sdpa_vector_2pass_1_" + get_type_string(q.dtype()) + "_" +
      std::to_string(q.shape(3)) + "_" + std::to_string(inputs[2].shape(3));
  std::string hash_name = name + "_rows";
  for (bool b : {bool_mask, float_mask, causal, sinks}) {
    hash_name += b ? "_1" : "_0";
  }
  hash_name += "_" + std::to_string(blocks);
  auto kernel = d.get_kernel(
      name,
      hash_name,
      {{&mask, MTL::DataType::DataTypeBool, 20},
       {&transposed, MTL::DataType::DataTypeBool, 21},
       {&causal, MTL::DataType::DataTypeBool, 22},
       {&bool_mask, MTL::DataType::DataTypeBool, 23},
       {&float_mask, MTL::DataType::DataTypeBool, 24},
       {&sinks, MTL::DataType::DataTypeBool, 25},
       {&blocks, MTL::DataType::DataTypeInt, 26}});
  return kernel->maxTotalThreadsPerThreadgroup();
}

// Several rows with the kernels for large groups of heads, each row over its
// own ranges of keys.
void two_pass_shared(
    const std::vector<array>& inputs,
    array& out,
    float scale,
    bool causal,
    int blocks,
    Stream s) {
  auto& d = metal::device(s.device);
  auto& encoder = metal::get_command_encoder(s);
  auto with_unit_stride = [&](const array& x) {
    return x.strides(3) == 1 ? x : copied(x, s);
  };
  const auto q = with_unit_stride(inputs[0]);
  const auto k = with_unit_stride(inputs[1]);
  const auto v = with_unit_stride(inputs[2]);
  const int batch = q.shape(0), heads = q.shape(1), rows = q.shape(2);
  const int kv_heads = k.shape(1), keys = k.shape(2), dim = v.shape(3);
  const auto type = get_type_string(q.dtype());

  out.set_data(allocator::malloc(out.nbytes()));
  auto partials = temporary({batch, heads, rows, blocks, dim}, q.dtype(), s);
  auto sums = temporary({batch, heads, rows, blocks}, float32, s);
  auto maxs = temporary({batch, heads, rows, blocks}, float32, s);
  std::array<int64_t, 9> strides;
  int at = 0;
  for (const auto& x : {q, k, v}) {
    for (int axis = 0; axis < 3; axis++) {
      strides[at++] = x.strides(axis);
    }
  }

  const auto dims = std::to_string(dim);
  encoder.set_compute_pipeline_state(d.get_kernel(
      "sdpa_vector_2pass_1_gqa_rows_" + std::to_string(heads / kv_heads) + "_" +
      type + "_" + dims + "_" + dims));
  encoder.set_input_array(q, 0);
  encoder.set_input_array(k, 1);
  encoder.set_input_array(v, 2);
  encoder.set_output_array(partials, 3);
  encoder.set_output_array(sums, 4);
  encoder.set_output_array(maxs, 5);
  encoder.set_bytes(rows, 6);
  encoder.set_bytes(keys, 7);
  encoder.set_bytes(strides.data(), strides.size(), 8);
  encoder.set_bytes(scale, 9);
  encoder.set_bytes(causal, 10);
  encoder.dispatch_threadgroups(
      MTL::Size(kv_heads, batch, blocks), MTL::Size(32, heads / kv_heads, 1));

  // The same end as sdpa_vector_2pass.
  encoder.set_compute_pipeline_state(
      d.get_kernel("sdpa_vector_2pass_2_" + type + "_" + dims));
  encoder.set_input_array(partials, 0);
  encoder.set_input_array(sums, 1);
  encoder.set_input_array(maxs, 2);
  encoder.set_output_array(out, 3);
  encoder.set_bytes(blocks, 4);
  encoder.dispatch_threadgroups(
      MTL::Size(batch * heads, rows, 1), MTL::Size(1024, 1, 1));
}

} // namespace

int rows_that_choose(int rows) {
  return in_group ? 1 : rows;
}

array make_attention_rows(
    std::vector<array> inputs,
    std::function<std::vector<array>(std::vector<array>)> fallback,
    float scale,
    bool do_causal,
    bool has_sinks,
    bool force_fused,
    mlx_row_policy policy,
    Stream s) {
  const auto type = inputs[0].dtype();
  if (force_fused && !detail::in_dynamic_tracing()) {
    const auto p = attention_problem(inputs, s);
    const bool mask = inputs.size() > 3 + has_sinks;
    for (int r = 0; r < p.m; r++) {
      const int keys = do_causal ? p.keys - (p.m - 1 - r) : p.keys;
      unfused_alone(p, type, keys, mask, has_sinks, true, s);
    }
  }
  auto shape = inputs[0].shape();
  shape.back() = inputs[2].shape(-1);
  return array(
      std::move(shape),
      type,
      std::make_shared<AttentionRows>(
          s,
          std::move(fallback),
          scale,
          do_causal,
          has_sinks,
          force_fused,
          policy),
      std::move(inputs));
}

bool AttentionRows::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const AttentionRows&>(other);
  return policy_.kind == o.policy_.kind && policy_.rows == o.policy_.rows &&
      ScaledDotProductAttention::is_equivalent(other);
}

std::vector<Shape> AttentionRows::output_shapes(
    const std::vector<array>& inputs) {
  auto shape = inputs[0].shape();
  shape.back() = inputs[2].shape(-1);
  return {std::move(shape)};
}

void AttentionRows::eval_gpu(
    const std::vector<array>& inputs,
    std::vector<array>& outputs) {
  const auto [_, scale, causal, sinks, logsumexp, force_fused] = state();
  const auto s = stream();
  auto& d = metal::device(s.device);
  auto& out = outputs[0];
  const auto p = attention_problem(inputs, s);
  const int kind =
      has_own_keys(p, causal) ? row_kind(policy_, p) : MLX_ROW_POLICY_DEFAULT;
  if (kind == MLX_ROW_POLICY_DEFAULT || out.size() == 0) {
    eval_upstream(inputs, outputs);
    return;
  }
  check_kernels_of_build();

  mlx_row_attention call{};
  call.causal = causal;
  call.mask = inputs.size() > 3 + sinks;
  call.sinks = sinks;
  call.size_class = d.get_architecture().back();
  call.threads = 1024;
  call.blocks = std::max(0, env::get_var("MLX_SDPA_BLOCKS", 0));
  std::vector<uint8_t> unfused(p.m);
  for (int r = 0; r < p.m; r++) {
    const int keys = attention_keys(p, call, r);
    // A row without a mask or causality sees the same keys as the row before
    // it.
    unfused[r] = r > 0 && !causal
        ? unfused[0]
        : unfused_alone(p, out.dtype(), keys, call.mask, sinks, force_fused, s);
  }
  auto rows = plan_attention(p, call, kind, unfused.data());
  for (const auto& row : rows) {
    if (row.path == MLX_ROW_ATTENTION_TWO_PASS) {
      call.threads = std::min(
          call.threads, two_pass_threads(inputs, causal, sinks, row.blocks, d));
    }
  }
  if (call.threads < 1024) {
    rows = plan_attention(p, call, kind, unfused.data());
  }
  if (rows[0].end == p.m) {
    eval_group(inputs, out, rows[0]);
    return;
  }

  // What MLX's fused kernels would copy for each group is copied once.
  auto k = inputs[1], v = inputs[2];
  const bool fused =
      std::find(unfused.begin(), unfused.end(), 0) != unfused.end();
  if (fused && !kept_in_place(k)) {
    k = copied(k, s);
  }
  if (fused && !kept_in_place(v)) {
    v = copied(v, s);
  }
  out.set_data(allocator::malloc(out.nbytes()));
  auto& encoder = metal::get_command_encoder(s);
  for (int first = 0; first < p.m;) {
    const int end = rows[first].end, keys = rows[end - 1].keys;
    // What is not fused gets keys and values in the caller's layout.
    const bool graph = rows[first].path == MLX_ROW_ATTENTION_UNFUSED;
    std::vector<array> parts = {
        cut(inputs[0], 2, first, end),
        cut(graph ? inputs[1] : k, 2, 0, keys),
        cut(graph ? inputs[2] : v, 2, 0, keys)};
    if (call.mask) {
      parts.push_back(cut(inputs[3], 2, first, end));
    }
    if (sinks) {
      parts.push_back(inputs.back());
    }
    array part({p.batch, p.heads, end - first, p.n}, out.dtype(), nullptr, {});
    eval_group(parts, part, rows[first]);
    copy_gpu_inplace(
        part,
        out,
        part.shape(),
        part.strides(),
        out.strides(),
        0,
        int64_t(first) * p.n,
        CopyType::GeneralGeneral,
        s);
    encoder.add_temporary(std::move(part));
    first = end;
  }
}

void AttentionRows::eval_group(
    const std::vector<array>& inputs,
    array& out,
    const mlx_row_attention_row& row) {
  if (row.path == MLX_ROW_ATTENTION_UNFUSED) {
    eval_unfused(inputs, out);
  } else if (
      row.path == MLX_ROW_ATTENTION_TWO_PASS_SHARED && out.shape(2) > 1) {
    two_pass_shared(
        inputs,
        out,
        std::get<1>(state()),
        std::get<2>(state()),
        row.blocks,
        stream());
  } else {
    GroupScope scope;
    std::vector<array> outputs = {out};
    ScaledDotProductAttention::eval_gpu(inputs, outputs);
  }
}

// The graph is evaluated here and not by gpu::eval, which may commit the
// command buffer that the surrounding evaluation still holds.
void AttentionRows::eval_unfused(const std::vector<array>& inputs, array& out) {
  const auto s = stream();
  auto& encoder = metal::get_command_encoder(s);
  array last = fallback_(inputs)[0];

  // One position sees every key: its causal mask selects all scores.
  const bool causal = std::get<2>(state()) && inputs[0].shape(2) == 1;
  auto is_causal_mask = [&](const array& x) {
    const auto& p = x.primitive();
    return causal && typeid(p) == typeid(Select);
  };
  std::vector<array> tape;
  std::unordered_set<std::uintptr_t> seen;
  auto visit = [&](auto&& visit, const array& x) -> void {
    if (x.status() != array::Status::unscheduled ||
        !seen.insert(x.id()).second) {
      return;
    }
    if (is_causal_mask(x)) {
      visit(visit, x.inputs()[1]);
    } else {
      for (const auto& in : x.inputs()) {
        visit(visit, in);
      }
    }
    tape.push_back(x);
  };
  visit(visit, last);

  // Only buffers that are made here are temporaries: the encoder does not order
  // work on those, and views share the buffers of inputs and output.
  std::unordered_set<const void*> others;
  for (const auto& in : inputs) {
    others.insert(in.data_shared_ptr().get());
  }
  std::vector<array> made;
  for (auto& x : tape) {
    if (x.primitive().stream() != s) {
      throw std::runtime_error(
          "[scaled_dot_product_attention] a row is computed on stream " +
          std::to_string(s.index) + ", but " + x.primitive().name() +
          " of it on stream " + std::to_string(x.primitive().stream().index));
    }
    auto outputs = x.outputs();
    if (is_causal_mask(x)) {
      x.copy_shared_buffer(x.inputs()[1]);
    } else {
      x.primitive().eval_gpu(x.inputs(), outputs);
    }
    for (auto& o : outputs) {
      o.set_status(array::Status::evaluated);
    }
    made.insert(made.end(), outputs.begin(), outputs.end());
    for (const auto& in : x.inputs()) {
      if (in.status() != array::Status::unscheduled) {
        made.push_back(in);
      }
    }
  }
  out.copy_shared_buffer(last);
  others.insert(out.data_shared_ptr().get());
  for (auto& x : tape) {
    x.detach();
  }
  for (auto& x : made) {
    if (others.find(x.data_shared_ptr().get()) == others.end()) {
      encoder.add_temporary(std::move(x));
    }
  }
}

void AttentionRows::eval_upstream(
    const std::vector<array>& inputs,
    std::vector<array>& outputs) {
  const auto [_, scale, causal, sinks, logsumexp, force_fused] = state();
  const bool mask = inputs.size() > 3 + sinks;
  if (use_fallback(
          inputs[0],
          inputs[1],
          inputs[2],
          mask || causal,
          mask,
          causal,
          sinks,
          false,
          false,
          force_fused,
          stream())) {
    eval_unfused(inputs, outputs[0]);
  } else {
    ScaledDotProductAttention::eval_gpu(inputs, outputs);
  }
}

} // namespace mlx::core::fast
