// Examines a graph before it runs: which of its operations do not keep the bits
// of a row.

#pragma once

#include <string>
#include <vector>

#include "mlx/api.h"
#include "mlx/array.h"
#include "mlx/stream.h"

namespace mlx::core {

/// An operation whose rows would not keep their bits, or not all that a decoder
/// may expect.
struct RowFinding {
  std::string primitive; // Primitive::name
  Shape shape; // of its first output
  Stream stream; // where it would run
  std::string why;
  std::string remedy;
};

/// Examines what an evaluation of `outputs` would run, each operation once, and
/// evaluates nothing. Throws in a build for CUDA, whose kernels it does not
/// know.
///
/// It reports operations that policies cover if they are on another stream or
/// device than `s`, have no policy or more rows than its block, or were built
/// without a policy; attention that sees an array mask or is written by hand;
/// and operations that no policy covers, except those that are known to compute
/// each row independently on Metal.
///
/// The policy is that of `s`, else the process's; a hook is not called. What a
/// graph does not show is not found: the order and padding of a cache, a
/// softmax written by hand, and what was evaluated before.
MLX_API std::vector<RowFinding> check_rows(
    const std::vector<array>& outputs,
    Stream s);

} // namespace mlx::core
