// The primitive of attention whose rows keep their bits.

#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "mlx/fast_primitives.h"
#include "mlx/row_policy.h"

namespace mlx::core::fast {

/// Attention under a row policy. The shapes at evaluation decide what is a
/// block, so that a graph compiled without shapes keeps the promise too.
/// Everything else is inherited: it is differentiated, vectorized and exported
/// as MLX's own primitive.
class AttentionRows : public ScaledDotProductAttention {
 public:
  AttentionRows(
      Stream stream,
      std::function<std::vector<array>(std::vector<array>)> fallback,
      float scale,
      bool do_causal,
      bool has_sinks,
      bool force_fused,
      mlx_row_policy policy)
      : ScaledDotProductAttention(
            stream,
            std::move(fallback),
            scale,
            do_causal,
            has_sinks,
            false,
            force_fused),
        policy_(policy) {}

  void eval_gpu(const std::vector<array>& inputs, std::vector<array>& outputs)
      override;

  bool is_equivalent(const Primitive& other) const override;

  std::vector<Shape> output_shapes(const std::vector<array>& inputs) override;

  mlx_row_policy policy() const {
    return policy_;
  }

 private:
  // Computes consecutive rows that use the same kernels, together.
  void eval_group(
      const std::vector<array>& inputs,
      array& out,
      const mlx_row_attention_row& row);

  // Evaluates MLX's own graph of what no fused kernel computes.
  void eval_unfused(const std::vector<array>& inputs, array& out);

  // Computes all rows as MLX does.
  void eval_upstream(
      const std::vector<array>& inputs,
      std::vector<array>& outputs);

  mlx_row_policy policy_;
};

} // namespace mlx::core::fast
