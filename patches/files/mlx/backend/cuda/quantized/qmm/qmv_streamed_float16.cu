#include "mlx/backend/cuda/quantized/qmm/qmv_streamed_launch.cuh"

namespace mlx::core {

void qmv_streamed_float16(
    const QmvStreamed& call,
    cu::CommandEncoder& encoder) {
  launch_qmv_streamed<cutlass::half_t>(call, encoder);
}

} // namespace mlx::core
