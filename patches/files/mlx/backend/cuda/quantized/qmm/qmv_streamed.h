// Chooses and launches order-preserving kernels for several rows.

#pragma once

#include <optional>

#include "mlx/backend/cuda/device.h"
#include "mlx/primitives.h"

namespace mlx::core {

/// The most rows that one pass over the weights computes.
constexpr int qmv_streamed_rows = 8;

/// The arguments of a kernel: `batch` products of m contiguous rows of k values
/// with weights for n outputs, or with the same weights for all.
struct QmvStreamed {
  const void* x;
  const void* w;
  const void* scales;
  const void* biases; // null for fp modes
  const float* global_scale; // nvfp4 only, or null
  void* out;
  int m, n, k, batch;
  bool broadcast_w;
  int bits, group_size;
  QuantizationMode mode;
};

/// Computes what qmv would, with the same bits, reading the weights once for
/// up to qmv_streamed_rows rows. Returns false, and does nothing, if there is
/// no kernel for these arrays.
bool qmv_streamed(
    const array& x,
    const array& w,
    const array& scales,
    const std::optional<array>& biases,
    const std::optional<array>& global_scale,
    array& out,
    int m,
    int bits,
    int group_size,
    QuantizationMode mode,
    cu::CommandEncoder& encoder);

// One file compiles the kernels of each type of x.
void qmv_streamed_float32(const QmvStreamed&, cu::CommandEncoder&);
void qmv_streamed_float16(const QmvStreamed&, cu::CommandEncoder&);
void qmv_streamed_bfloat16(const QmvStreamed&, cu::CommandEncoder&);

} // namespace mlx::core
