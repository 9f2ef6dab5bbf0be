#include "mlx/row_check.h"

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <typeinfo>
#include <unordered_set>

#include "mlx/primitives.h"
#include "mlx/row_policy.h"

namespace mlx::core {

namespace {

// Primitives whose kernels compute each row, or each number, by itself,
// whatever is beside it; or that only move data.
const std::set<std::string_view>& by_row() {
  static const auto* names = new std::set<std::string_view>{
      "Abs",
      "Add",
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
      "BitwiseBinary",
      "BitwiseInvert",
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
      "Divide",
      "DivMod",
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
      "Full",
      "Gather",
      "GatherAxis",
      "Greater",
      "GreaterEqual",
      "Imag",
      "LayerNorm",
      "Less",
      "LessEqual",
      "Load",
      "Log",
      "Log1p",
      "LogAddExp",
      "LogSumExp",
      "LogicalAnd",
      "LogicalNot",
      "LogicalOr",
      "Maximum",
      "Minimum",
      "Multiply",
      "Negative",
      "NotEqual",
      "NumberOfElements",
      "Pad",
      "Partition",
      "Power",
      "Quantize",
      "RMSNorm",
      "RandomBits",
      "Real",
      "Reduce",
      "Remainder",
      "Reshape",
      "RoPE",
      "Round",
      "Select",
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
      "Transpose",
      "Unflatten",
      "View"};
  return *names;
}

// What carries a row from a softmax to a product, unchanged or scaled.
bool carries(std::string_view name) {
  return name == "AsType" || name == "Reshape" || name == "Slice" ||
      name == "Flatten" || name == "Unflatten" || name == "Contiguous" ||
      name == "Copy" || name == "Transpose" || name == "ExpandDims" ||
      name == "Squeeze";
}

bool comes_from_softmax(array x) {
  while (x.has_primitive()) {
    const std::string_view name = x.primitive().name();
    if (name == "Softmax") {
      return true;
    }
    if (!carries(name)) {
      return false;
    }
    x = x.inputs()[0];
  }
  return false;
}

int64_t rows_of_matrix(const array& x, const array& w) {
  const bool folded = w.ndim() == 2;
  return folded ? x.size() / std::max<int64_t>(x.shape(-1), 1) : x.shape(-2);
}

// The operation as the policies count it, or nothing for one that none covers.
std::optional<mlx_row_problem> problem_of(const array& x) {
  const std::string_view name = x.primitive().name();
  const auto& in = x.inputs();
  mlx_row_problem p{};
  p.batch = 1;
  p.stream = -1;
  if (name == "QuantizedMatmul" || name == "QQMatmul") {
    p.op =
        name == "QQMatmul" ? MLX_ROW_OP_QQ_MATMUL : MLX_ROW_OP_QUANTIZED_MATMUL;
    p.m = rows_of_matrix(in[0], in[1]);
  } else if (name == "Matmul" || name == "AddMM") {
    p.op = name == "AddMM" ? MLX_ROW_OP_ADDMM : MLX_ROW_OP_MATMUL;
    p.m = rows_of_matrix(in[0], in[1]);
  } else if (
      name == "GatherQMM" || name == "GatherQQMM" || name == "GatherMM") {
    p.op = name == "GatherQMM" ? MLX_ROW_OP_GATHER_QMM
        : name == "GatherMM"   ? MLX_ROW_OP_GATHER_MM
                               : MLX_ROW_OP_GATHER_QQMM;
    p.m = x.ndim() > 1 ? x.shape(-2) : 1;
    p.batch = x.size() / std::max<int64_t>(x.shape(-1), 1) / std::max(p.m, 1);
  } else if (name == "GatedDeltaUpdate") {
    p.op = MLX_ROW_OP_GATED_DELTA;
    p.m = in[0].shape(1);
  } else if (name == "ScaledDotProductAttention") {
    p.op = MLX_ROW_OP_ATTENTION;
    p.m = in[0].shape(2);
  } else {
    return std::nullopt;
  }
  return p;
}

// Whether attention goes by rows. Its primitive is exported as MLX's own and
// has that name; the class tells them apart, also where no such class is
// linked.
bool goes_by_rows(const Primitive& primitive) {
  const std::string_view type = typeid(primitive).name();
  return type.find("AttentionRows") != type.npos;
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
      // What has been evaluated will not run again.
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
    const std::string name = x.primitive().name();
    const auto problem = problem_of(x);
    if (!problem) {
      look_at_uncovered(x, name);
      return;
    }
    const auto where = x.primitive().stream();
    if (where.device != Device::gpu) {
      find(
          x,
          "runs on the CPU, which keeps no policy",
          "build it on a GPU stream");
    } else if (where != stream_) {
      find(
          x,
          "runs on another stream, whose policy decides",
          "build it with this stream as the default, or name the stream");
    } else {
      look_at_covered(x, *problem);
    }
  }

  void look_at_covered(const array& x, const mlx_row_problem& p) {
    const bool attention = p.op == MLX_ROW_OP_ATTENTION;
    if (policy_.kind == MLX_ROW_POLICY_DEFAULT || p.m <= 1) {
      return;
    }
    if (row_kind(policy_, p) == MLX_ROW_POLICY_DEFAULT) {
      find(
          x,
          "has more rows than a block of the policy",
          "give the policy more rows (\":R\" or \":all\"), or compute it in parts");
    } else if (attention && !goes_by_rows(x.primitive())) {
      find(
          x,
          "was built without asking the policy: by a trace of a gradient, by "
          "vmap or by an imported function",
          "build it with scaled_dot_product_attention on this stream");
    } else if (attention && has_array_mask(x)) {
      find(
          x,
          "sees an array mask: each row is computed over all keys, also those "
          "that its mask hides",
          "use the mask \"causal\" where it says the same");
    } else if (comes_from_softmax(x.inputs()[0])) {
      find(
          x,
          "multiplies the weights of attention that is written by hand, or "
          "whose cache is quantized: a product does not see how many keys a "
          "row has",
          "use scaled_dot_product_attention, and a cache that is not quantized");
    }
  }

  void look_at_uncovered(const array& x, const std::string& name) {
    if (name == "CustomKernel") {
      find(
          x,
          "is a kernel of the program's own, which no policy sees",
          "make sure that it computes each row by itself");
    } else if (name == "Scan" && x.dtype() != float32) {
      find(
          x,
          "adds up in float32 what single steps round in between",
          "scan float32 values");
    } else if (
        name != "Scan" && name.rfind("Compiled", 0) != 0 &&
        !by_row().count(name)) {
      find(
          x,
          "is an operation that no policy covers",
          "compute it row by row if its result must not depend on what is "
          "beside a row");
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
  Check check(s);
  check.visit(outputs);
  return std::move(check.findings);
}

} // namespace mlx::core
