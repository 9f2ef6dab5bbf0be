#include "mlx/backend/cuda/quantized/qmm/qmv_streamed_launch.cuh"

namespace mlx::core {

void qmv_streamed_float32(
    const QmvStreamed& call,
    cu::CommandEncoder& encoder) {
  launch_qmv_streamed<float>(call, encoder);
}

} // namespace mlx::core
