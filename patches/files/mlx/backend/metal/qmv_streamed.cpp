#include "mlx/backend/metal/qmv_streamed.h"

#include "mlx/backend/common/compiled.h"
#include "mlx/backend/gpu/copy.h"
#include "mlx/backend/metal/kernels.h"
#include "mlx/backend/metal/utils.h"

namespace mlx::core {

namespace {

// The kernels load four values of x at once: x itself, or a copy if its rows do
// not start at a multiple of four values.
array aligned(const array& x, const Stream& s) {
  bool fits = x.offset() % (4 * static_cast<int64_t>(x.itemsize())) == 0;
  for (int i = 0; i + 2 < static_cast<int>(x.ndim()); i++) {
    fits = fits && x.strides()[i] % 4 == 0;
  }
  if (fits) {
    return x;
  }
  array copy = contiguous_copy_gpu(x, s);
  metal::get_command_encoder(s).add_temporary(copy);
  return copy;
}

} // namespace

void qmv_streamed(
    const QmvCall& call,
    const array& x_as_given,
    const array& w,
    const array& scales,
    const std::optional<array>& biases,
    const std::optional<array>& global_scale,
    array& out,
    const Stream& s) {
  const array x = aligned(x_as_given, s);
  const auto& problem = call.problem;
  const auto& plan = call.plan;
  const bool batched = problem.batch > 1;
  const bool affine = problem.mode == MLX_ROW_MODE_AFFINE;
  const auto mode = static_cast<QuantizationMode>(problem.mode);
  const auto type = get_type_string(x.dtype());

  std::string name;
  concatenate(
      name,
      quantization_mode_to_string(mode),
      plan.fast ? "_qmv_streamed_fast_" : "_qmv_streamed_",
      type,
      "_gs_",
      problem.group_size,
      "_b_",
      problem.bits,
      "_nv_",
      plan.tile,
      "_r_",
      plan.outputs,
      "_s_",
      plan.sharing,
      batched ? "_batch_1" : "_batch_0",
      global_scale ? "_hgs" : "");
  auto define = [&](const char* function, auto... more) {
    return get_template_definition(
        name,
        function,
        type,
        problem.group_size,
        problem.bits,
        plan.tile,
        plan.outputs,
        plan.sharing,
        plan.fast,
        batched,
        more...);
  };
  const auto template_def = affine
      ? define("affine_qmv_streamed")
      : define("fp_qmv_streamed", global_scale.has_value());
  auto& d = metal::device(s.device);
  auto kernel = get_qmv_streamed_kernel(d, name, template_def, affine);

  auto& compute_encoder = metal::get_command_encoder(s);
  compute_encoder.set_compute_pipeline_state(kernel);
  compute_encoder.set_input_array(w, 0);
  compute_encoder.set_input_array(scales, 1);
  if (affine) {
    compute_encoder.set_input_array(*biases, 2);
  } else if (global_scale) {
    compute_encoder.set_input_array(*global_scale, 2);
  }
  int c = 3;
  compute_encoder.set_input_array(x, c++);
  compute_encoder.set_output_array(out, c++);
  compute_encoder.set_bytes(problem.k, c++);
  compute_encoder.set_bytes(problem.n, c++);
  compute_encoder.set_bytes(problem.m, c++);
  // As many rows per tile as the smallest number of tiles requires.
  const int tiles = (problem.m + plan.tile - 1) / plan.tile;
  const int tile_rows = (problem.m + tiles - 1) / tiles;
  compute_encoder.set_bytes(tile_rows, c++);
  if (batched) {
    const int x_batch_ndims = x.ndim() - 2;
    const int w_batch_ndims = w.ndim() - 2;
    compute_encoder.set_bytes(x_batch_ndims, c++);
    compute_encoder.set_vector_bytes(x.shape(), c++);
    compute_encoder.set_vector_bytes(x.strides(), c++);
    compute_encoder.set_bytes(w_batch_ndims, c++);
    compute_encoder.set_vector_bytes(w.shape(), c++);
    compute_encoder.set_vector_bytes(w.strides(), c++);
    compute_encoder.set_vector_bytes(scales.strides(), c++);
    if (affine) {
      compute_encoder.set_vector_bytes(biases->strides(), c++);
    }
  }
  const int simdgroups = plan.sharing > 0 ? plan.sharing : 2;
  const int outputs_a_group = plan.outputs * simdgroups;
  const MTL::Size grid(
      tiles,
      (problem.n + outputs_a_group - 1) / outputs_a_group,
      problem.batch);
  compute_encoder.dispatch_threadgroups(grid, MTL::Size(32, simdgroups, 1));
}

} // namespace mlx::core
