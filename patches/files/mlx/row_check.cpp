#include "mlx/row_check.h"

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <typeinfo>
#include <unordered_set>

#include "mlx/backend/cuda/cuda.h"
#include "mlx/backend/metal/attention_rows.h"
#include "mlx/primitives.h"
#include "mlx/row_policy.h"

namespace mlx::core {

namespace {

// Primitives, by Primitive::name, whose Metal kernels compute each row or each
// number independently, or only move data. Those that depend on a type or a
// shape are handled below.
const std::set<std::string_view>& by_row() {
  static const auto* names = new std::set<std::string_view>{
      "Abs",
      "Add",
      "AllGather",
      "Arange",
      "ArcCos",
      "ArcCosh",
      "ArcSin",
      "ArcSinh",
      "ArcTan",
      "ArcTan2",
      "ArcTanh",
      "ArgPartition",
      "ArgReduce",
      "ArgSort",
      "AsStrided",
      "AsType",
      "BitwiseAnd",
      "BitwiseInvert",
      "BitwiseOr",
      "BitwiseXor",
      "Broadcast",
      "BroadcastAxes",
      "Ceil",
      "Concatenate",
      "Conjugate",
      "Contiguous",
      "Copy",
      "Cos",
      "Cosh",
      "CustomTransforms",
      "Depends",
      "DivMod",
      "Divide",
      "DynamicSlice",
      "DynamicSliceUpdate",
      "Equal",
      "Erf",
      "ErfInv",
      "Exp",
      "ExpandDims",
      "Expm1",
      "Flatten",
      "Floor",
      "FloorDivide",
      "FromFP8",
      "Full",
      "Gather",
      "GatherAxis",
      "Greater",
      "GreaterEqual",
      "Hadamard",
      "Imag",
      "LayerNorm",
      "LeftShift",
      "Less",
      "LessEqual",
      "Load",
      "Log",
      "Log10",
      "Log1p",
      "Log2",
      "LogAddExp",
      "LogSumExp",
      "LogicalAnd",
      "LogicalNot",
      "LogicalOr",
      "MaskedScatter",
      "Maximum",
      "Minimum",
      "Multiply",
      "NaNEqual",
      "Negative",
      "NotEqual",
      "NumberOfElements",
      "Pad",
      "Partition",
      "Power",
      "Quantize",
      "RMSNorm",
      "Real",
      "Recv",
      "Remainder",
      "Reshape",
      "RightShift",
      "RoPE",
      "Round",
      "Rsqrt",
      "Scatter",
      "ScatterAxis",
      "SearchSorted",
      "SegmentedMM",
      "Select",
      "Send",
      "Sigmoid",
      "Sign",
      "Sin",
      "Sinh",
      "Slice",
      "SliceUpdate",
      "Softmax",
      "Sort",
      "Split",
      "Sqrt",
      "Square",
      "Squeeze",
      "StopGradient",
      "Subtract",
      "Tan",
      "Tanh",
      "ToFP8",
      "Transpose",
      "Unflatten"};
  return *names;
}

bool begins(std::string_view name, std::string_view with) {
  return name.substr(0, with.size()) == with;
}

bool is_float(const array& x) {
  return issubdtype(x.dtype(), inexact);
}

// The inputs through which the numbers of a softmax may reach x one for one.
std::vector<array> carriers(const array& x) {
  static const std::set<std::string_view> moves{
      "AsType",
      "Broadcast",
      "Concatenate",
      "Contiguous",
      "Copy",
      "ExpandDims",
      "Flatten",
      "Reshape",
      "Slice",
      "Squeeze",
      "StopGradient",
      "Transpose",
      "Unflatten"};
  static const std::set<std::string_view> computes{
      "Divide", "Multiply", "Select"};
  const std::string_view name = x.primitive().name();
  if (moves.count(name)) {
    return {x.inputs()[0]};
  }
  std::vector<array> out;
  // A number that is used for many others is not a weight of attention: a
  // router's factor is broadcast.
  if (computes.count(name)) {
    for (const auto& in : x.inputs()) {
      const bool broadcast = in.has_primitive() &&
          std::string_view(in.primitive().name()) == "Broadcast";
      if (in.shape() == x.shape() && !broadcast) {
        out.push_back(in);
      }
    }
  }
  return out;
}

bool comes_from_softmax(const array& x) {
  std::vector<array> left{x};
  // Far more operations than attention has between its softmax and its product.
  for (int looked = 0; !left.empty() && looked < 64; looked++) {
    const array at = left.back();
    left.pop_back();
    if (!at.has_primitive()) {
      continue;
    }
    if (std::string_view(at.primitive().name()) == "Softmax") {
      return true;
    }
    const auto next = carriers(at);
    left.insert(left.end(), next.begin(), next.end());
  }
  return false;
}

// Whether a matrix is the same for all rows of a batch, as broadcast in a
// trace.
bool is_one_matrix(const array& w) {
  if (w.ndim() == 2) {
    return true;
  }
  if (w.ndim() != 3 || !w.has_primitive() ||
      std::string_view(w.primitive().name()) != "Broadcast") {
    return false;
  }
  const auto& in = w.inputs()[0];
  return in.ndim() < 3 || in.shape(0) == 1;
}

int64_t rows_of_matrix(const array& x, const array& w) {
  return is_one_matrix(w) ? x.size() / std::max<int64_t>(x.shape(-1), 1)
                          : x.shape(-2);
}

// A covered operation.
struct Covered {
  mlx_row_problem problem;
  int64_t rows; // as counted by policies, including sequences or picks
  bool sorted; // a gather of sorted picks
};

std::optional<Covered> covered(const array& x) {
  const Primitive& primitive = x.primitive();
  const std::string_view name = primitive.name();
  const auto& in = x.inputs();
  mlx_row_problem p{};
  p.batch = 1;
  p.experts = 1;
  p.stream = x.primitive().stream().index;
  auto picks = [&](int op, bool sorted) {
    p.op = op;
    p.m = x.ndim() > 1 ? x.shape(-2) : 1;
    const int64_t rows = x.size() / std::max<int64_t>(x.shape(-1), 1);
    p.batch = rows / std::max(p.m, 1);
    return Covered{p, rows, sorted};
  };
  if (name == "QuantizedMatmul" || name == "QQMatmul") {
    p.op =
        name == "QQMatmul" ? MLX_ROW_OP_QQ_MATMUL : MLX_ROW_OP_QUANTIZED_MATMUL;
    p.m = rows_of_matrix(in[0], in[1]);
  } else if (name == "Matmul" || name == "AddMM") {
    if (x.dtype() == complex64) {
      return std::nullopt;
    }
    p.op = name == "AddMM" ? MLX_ROW_OP_ADDMM : MLX_ROW_OP_MATMUL;
    p.m = rows_of_matrix(in[0], in[1]);
  } else if (name == "GatherQMM") {
    const auto state = static_cast<const GatherQMM&>(primitive).state();
    return picks(MLX_ROW_OP_GATHER_QMM, std::get<5>(state));
  } else if (name == "GatherQQMM") {
    const auto state = static_cast<const GatherQQMM&>(primitive).state();
    return picks(MLX_ROW_OP_GATHER_QQMM, std::get<4>(state));
  } else if (name == "GatherMM") {
    if (x.dtype() == complex64) {
      return std::nullopt;
    }
    const auto state = static_cast<const GatherMM&>(primitive).state();
    return picks(MLX_ROW_OP_GATHER_MM, state.second);
  } else if (name == "GatedDeltaUpdate") {
    p.op = MLX_ROW_OP_GATED_DELTA;
    p.m = in[0].shape(1);
  } else if (name == "ScaledDotProductAttention") {
    p.op = MLX_ROW_OP_ATTENTION;
    p.m = in[0].shape(2);
  } else {
    return std::nullopt;
  }
  return Covered{p, p.m, false};
}

// What MLX always computes row by row: one row, picks of one row in any order
// except sorted, and as many tokens as gated delta computes at once.
bool keeps_its_rows(const Covered& c) {
  constexpr int chunk = 8;
  switch (c.problem.op) {
    case MLX_ROW_OP_GATHER_QMM:
    case MLX_ROW_OP_GATHER_QQMM:
    case MLX_ROW_OP_GATHER_MM:
      return c.rows <= 1 || (c.problem.m <= 1 && !c.sorted);
    case MLX_ROW_OP_GATED_DELTA:
      return c.rows <= chunk;
    default:
      return c.rows <= 1;
  }
}

// Attention under a policy, or null. It has the name of MLX's own, with which
// it is exported; the type distinguishes them, also if a build has none.
const fast::AttentionRows* attention_rows(const Primitive& primitive) {
  const std::string_view type = typeid(primitive).name();
  return type.find("AttentionRows") != type.npos
      ? static_cast<const fast::AttentionRows*>(&primitive)
      : nullptr;
}

class Check {
 public:
  explicit Check(Stream s) : stream_(s) {
    policy_ = row_stream_policy(s.index);
    if (policy_.kind == MLX_ROW_DECLINE &&
        mlx_row_process_policy(&policy_) != 0) {
      throw std::invalid_argument(mlx_row_last_error());
    }
  }

  // Without recursion: a graph may be deeper than a stack.
  void visit(const std::vector<array>& outputs) {
    std::vector<array> left(outputs.rbegin(), outputs.rend());
    while (!left.empty()) {
      const array x = left.back();
      left.pop_back();
      // Arrays that are already evaluated will not run again.
      if (x.status() != array::Status::unscheduled || !x.has_primitive() ||
          !seen_.insert(x.primitive_id()).second) {
        continue;
      }
      look_at(x);
      left.insert(left.end(), x.inputs().rbegin(), x.inputs().rend());
    }
  }

  std::vector<RowFinding> findings;

 private:
  void find(const array& x, std::string why, std::string remedy) {
    findings.push_back(
        {x.primitive().name(),
         x.shape(),
         x.primitive().stream(),
         std::move(why),
         std::move(remedy)});
  }

  void look_at(const array& x) {
    const auto operation = covered(x);
    if (!operation) {
      look_at_uncovered(x, x.primitive().name());
      return;
    }
    const auto where = x.primitive().stream();
    if (where.device != Device::gpu) {
      find(
          x,
          "runs on the CPU, which keeps no policy",
          "build it on a GPU stream with a policy");
    } else if (where != stream_) {
      find(
          x,
          "runs on stream " + std::to_string(where.index) +
              ", whose policy decides",
          "build it on stream " + std::to_string(stream_.index));
    } else if (!keeps_its_rows(*operation)) {
      look_at_covered(x, *operation);
    }
  }

  void look_at_covered(const array& x, const Covered& c) {
    const bool attention = c.problem.op == MLX_ROW_OP_ATTENTION;
    const auto* by_rows = attention ? attention_rows(x.primitive()) : nullptr;
    const auto policy = by_rows ? by_rows->policy() : policy_;
    const std::string rows = std::to_string(c.rows);
    if (policy.kind == MLX_ROW_POLICY_DEFAULT) {
      find(
          x,
          "has the policy default, which computes several rows as MLX does",
          "give the stream another policy before its first work, or set "
          "MLX_ROW_POLICY (a hook is not asked here)");
    } else if (row_kind(policy, c.problem) == MLX_ROW_POLICY_DEFAULT) {
      char text[MLX_ROW_TEXT_SIZE];
      mlx_row_policy_text(policy, text);
      find(
          x,
          "has " + rows + " rows or picks, more than a block of the policy " +
              text,
          "give the policy more rows (\":R\" or \":all\"), or compute fewer at "
          "once");
    } else if (attention && !by_rows) {
      find(
          x,
          "did not ask the policy when it was built: before the stream had "
          "one, in the trace of a gradient or an export, or by an imported "
          "function",
          "build it anew on this stream, outside of a trace");
    } else if (attention && has_array_mask(x)) {
      find(
          x,
          "sees an array mask: each row is computed over all keys, also those "
          "that its mask hides",
          "use the mask \"causal\" if it says the same");
    } else if (!attention && comes_from_softmax(x.inputs()[0])) {
      find(
          x,
          "multiplies the weights of attention that is not one operation "
          "(written by hand, with a quantized cache, traced by a gradient or "
          "vmap, or with more positions than keys), and does not see how many "
          "keys a row has",
          "use scaled_dot_product_attention, and a cache that is not quantized");
    }
  }

  void look_at_uncovered(const array& x, std::string_view name) {
    const bool rounds = is_float(x) && x.dtype() != float32;
    if (by_row().count(name) || begins(name, "Compiled") ||
        begins(name, "View ") || begins(name, "SliceUpdate ") ||
        name == "And" || name == "Or" || name == "Min" || name == "Max" ||
        name == "CumMin" || name == "CumMax") {
      return;
    }
    if (name == "Sum" || name == "Prod") {
      look_at_sum(x);
    } else if (
        name == "CumSum" || name == "CumProd" || name == "CumLogAddExp") {
      if (rounds) {
        find(
            x,
            "rounds once what single steps round each time",
            "compute it in float32");
      }
    } else if (name == "Convolution") {
      // In one dimension all kinds were measured: full, depthwise and grouped.
      if (x.ndim() != 3) {
        find(
            x,
            "is a convolution of several dimensions, which no policy covers",
            "compute it for one row at a time");
      }
    } else if (name == "RandomBits") {
      find(
          x,
          "draws numbers that depend on how many are drawn at once",
          "draw for each row with a key of its own");
    } else if (name == "CustomKernel") {
      find(
          x,
          "is a kernel of the program's own, which no policy sees",
          "make sure that it computes each row by itself");
    } else {
      find(
          x,
          "is an operation that no policy covers and that is not known to "
          "compute each row by itself",
          "compute it for one row at a time if its bits matter");
    }
  }

  // Above 256 terms a column is added in one or two passes, depending on the
  // number of sums. Rows are added in the same order by every kernel.
  void look_at_sum(const array& x) {
    constexpr size_t most = 256;
    const auto& in = x.inputs()[0];
    const auto axes = static_cast<const Reduce&>(x.primitive()).state().second;
    const int last = int(in.ndim()) - 1;
    const bool row = std::find(axes.begin(), axes.end(), last) != axes.end();
    const auto terms = in.size() / std::max<size_t>(x.size(), 1);
    if (is_float(x) && !row && terms > most) {
      find(
          x,
          "adds columns of " + std::to_string(terms) +
              " values in an order that depends on how many sums there are",
          "sum along the last axis");
    }
  }

  static bool has_array_mask(const array& x) {
    // Queries, keys, values, a mask, sinks of one axis.
    const auto& in = x.inputs();
    return in.size() > 3 && in[3].ndim() > 1;
  }

  Stream stream_;
  mlx_row_policy policy_;
  std::unordered_set<std::uintptr_t> seen_;
};

} // namespace

std::vector<RowFinding> check_rows(
    const std::vector<array>& outputs,
    Stream s) {
  if (cu::is_available()) {
    throw std::runtime_error(
        "[check_rows] The check knows the kernels of Metal only; this build "
        "runs on CUDA. docs/guide/policies.md says what CUDA's keep.");
  }
  Check check(s);
  check.visit(outputs);
  return std::move(check.findings);
}

} // namespace mlx::core
