#include "mlx/backend/cuda/quantized/qmm/qmv_streamed.h"

#include <cstdint>

#include "mlx/row_problem.h"

namespace mlx::core {

namespace {

// The kernels read 16 bytes of x at once, and up to 8 of the weights.
bool is_aligned(const void* p, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

bool has_kernels(int bits, int group_size, QuantizationMode mode) {
  const bool affine = mode == QuantizationMode::Affine;
  return !affine ||
      ((bits == 8 || (bits >= 2 && bits <= 6)) &&
       (group_size == 32 || group_size == 64 || group_size == 128));
}

} // namespace

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
    cu::CommandEncoder& encoder) {
  QmvStreamed call{
      gpu_ptr<void>(x),
      gpu_ptr<void>(w),
      gpu_ptr<void>(scales),
      biases ? gpu_ptr<void>(*biases) : nullptr,
      global_scale ? gpu_ptr<float>(*global_scale) : nullptr,
      nullptr,
      m,
      out.shape(-1),
      x.shape(-1),
      0,
      w.ndim() <= 2 || w.size() != w.data_size(),
      bits,
      group_size,
      mode};
  if (!is_row_dtype(out.dtype()) || !has_kernels(bits, group_size, mode) ||
      !is_aligned(call.x, 16) || !is_aligned(call.w, 8) || call.k % 16 != 0) {
    return false;
  }
  out.set_data(cu::malloc_async(out.nbytes(), encoder));
  call.out = gpu_ptr<void>(out);
  call.batch = out.size() / m / call.n;

  encoder.set_input_array(x);
  encoder.set_input_array(w);
  encoder.set_input_array(scales);
  if (biases) {
    encoder.set_input_array(*biases);
  }
  if (global_scale) {
    encoder.set_input_array(*global_scale);
  }
  encoder.set_output_array(out);
  if (out.dtype() == float32) {
    qmv_streamed_float32(call, encoder);
  } else if (out.dtype() == float16) {
    qmv_streamed_float16(call, encoder);
  } else {
    qmv_streamed_bfloat16(call, encoder);
  }
  return true;
}

} // namespace mlx::core
