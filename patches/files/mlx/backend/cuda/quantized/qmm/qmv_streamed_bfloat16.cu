#include "mlx/backend/cuda/quantized/qmm/qmv_streamed_launch.cuh"

namespace mlx::core {

void qmv_streamed_bfloat16(
    const QmvStreamed& call,
    cu::CommandEncoder& encoder) {
  launch_qmv_streamed<cutlass::bfloat16_t>(call, encoder);
}

} // namespace mlx::core
