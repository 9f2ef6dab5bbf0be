#include "mlx-overlay-sys/src/bridge.h"

#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/allocator.h"
#include "mlx/backend/metal/metal.h"
#include "mlx/device.h"
#include "mlx/memory.h"
#include "mlx/ops.h"
#include "mlx/stream.h"
#include "mlx/transforms.h"
#include "mlx/version.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

RawStream from_mlx(core::Stream stream) {
  auto device =
      stream.device == core::Device::cpu ? DeviceKind::Cpu : DeviceKind::Gpu;
  return RawStream{device, stream.index};
}

// Bytes of an array, or an exception if that number cannot be represented.
std::size_t checked_bytes(const core::Shape& shape, core::Dtype dtype) {
  std::size_t bytes = core::size_of(dtype);
  bool overflow = false;
  for (auto extent : shape) {
    overflow |= extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes);
  }
  if (overflow) {
    throw std::length_error(
        "mlx-overlay: the array's size in bytes does not fit in 64 bits");
  }
  return bytes;
}

// A new array over memory that `keep` owns. MLX reuses the memory of an
// array's inputs only where it owns that memory; this view does not, so nothing
// writes to it.
core::array view(
    std::shared_ptr<core::array::Data> keep,
    const core::array& like) {
  auto buffer = keep->buffer();
  // The deleter frees nothing; it holds on to the owner.
  core::allocator::Data data(
      buffer, [keep = std::move(keep)](core::allocator::Buffer) {});
  core::array out(std::move(data), like.shape(), like.dtype());
  out.copy_shared_buffer(
      out,
      like.strides(),
      like.flags(),
      like.data_size(),
      like.offset() / static_cast<std::int64_t>(like.itemsize()));
  return out;
}

std::optional<core::array> biases(rust::Slice<const ArrayRef> parts) {
  return parts.size() > 2 ? std::optional(parts[2].array.get()) : std::nullopt;
}

const core::array& settled_value(const Array& array) {
  if (!array.settled()) {
    throw std::logic_error("mlx-overlay: the array is not settled");
  }
  return array.get();
}

// A settled array over the memory of an evaluated one.
std::unique_ptr<Array> settled_view(const core::array& value) {
  auto memory = value.data_shared_ptr();
  if (!memory) {
    throw std::logic_error("mlx-overlay: the array has no memory");
  }
  return std::make_unique<Array>(view(std::move(memory), value), true);
}

} // namespace

core::Device to_mlx(DeviceKind device) {
  switch (device) {
    case DeviceKind::Cpu:
      return core::Device::cpu;
    case DeviceKind::Gpu:
      return core::Device::gpu;
  }
  throw std::invalid_argument("mlx-overlay: unknown device");
}

core::Dtype to_mlx(ElementKind kind) {
  switch (kind) {
    case ElementKind::F32:
      return core::float32;
    case ElementKind::F16:
      return core::float16;
    case ElementKind::Bf16:
      return core::bfloat16;
    case ElementKind::U32:
      return core::uint32;
    case ElementKind::U8:
      return core::uint8;
  }
  throw std::invalid_argument("mlx-overlay: unknown element type");
}

core::Stream to_mlx(RawStream stream) {
  return core::Stream(stream.index, to_mlx(stream.device));
}

core::QuantizationMode mode_of(const WeightFormat& format) {
  return static_cast<core::QuantizationMode>(format.mode);
}

std::unique_ptr<Array> wrap(core::array value) {
  auto bytes = checked_bytes(value.shape(), value.dtype());
  auto limit = core::get_memory_limit();
  if (bytes > limit) {
    throw std::length_error(
        "mlx-overlay: an array of " + std::to_string(bytes) +
        " bytes is larger than MLX's memory limit of " + std::to_string(limit));
  }
  return std::make_unique<Array>(std::move(value));
}

Array::~Array() {
  Release release;
  if (release.allowed()) {
    value_.~array();
  }
}

rust::String version() {
  return core::version();
}

bool metal_is_available() {
  return core::metal::is_available();
}

bool device_is_available(DeviceKind device) {
  return core::is_available(to_mlx(device));
}

rust::String device_property(DeviceKind device, rust::Str key) {
  if (!core::is_available(to_mlx(device))) {
    return {};
  }
  const auto& info = core::device_info(to_mlx(device));
  auto property = info.find(std::string(key));
  if (property == info.end()) {
    return {};
  }
  if (auto text = std::get_if<std::string>(&property->second)) {
    return *text;
  }
  return std::to_string(std::get<std::size_t>(property->second));
}

RawStream default_stream(DeviceKind device) {
  return from_mlx(core::default_stream(to_mlx(device)));
}

RawStream new_stream(DeviceKind device) {
  return from_mlx(core::new_stream(to_mlx(device)));
}

void set_default_stream(RawStream stream) {
  core::set_default_stream(to_mlx(stream));
}

void synchronize(RawStream stream) {
  core::synchronize(to_mlx(stream));
}

std::unique_ptr<Array> from_bytes(
    rust::Slice<const std::uint8_t> bytes,
    rust::Slice<const std::int32_t> shape,
    ElementKind kind) {
  core::Shape extents(shape.begin(), shape.end());
  auto dtype = to_mlx(kind);
  if (checked_bytes(extents, dtype) != bytes.size()) {
    throw std::length_error(
        "mlx-overlay: " + std::to_string(bytes.size()) +
        " bytes do not fill the shape");
  }
  auto data = core::allocator::malloc(bytes.size());
  if (bytes.size() > 0) {
    auto target = data.buffer().raw_ptr();
    if (target == nullptr) {
      throw std::bad_alloc();
    }
    std::memcpy(target, bytes.data(), bytes.size());
  }
  return wrap(core::array(std::move(data), std::move(extents), dtype));
}

rust::Vec<std::int32_t> shape(const Array& array) {
  rust::Vec<std::int32_t> out;
  for (auto extent : array.get().shape()) {
    out.push_back(extent);
  }
  return out;
}

ElementKind kind(const Array& array) {
  switch (array.get().dtype()) {
    case core::float32:
      return ElementKind::F32;
    case core::float16:
      return ElementKind::F16;
    case core::bfloat16:
      return ElementKind::Bf16;
    case core::uint32:
      return ElementKind::U32;
    case core::uint8:
      return ElementKind::U8;
    default:
      throw std::invalid_argument(
          "mlx-overlay: the array's element type does not cross the bridge");
  }
}

void eval(rust::Slice<const ArrayRef> arrays) {
  std::vector<core::array> outputs;
  outputs.reserve(arrays.size());
  for (const auto& reference : arrays) {
    outputs.push_back(reference.array.get());
  }
  core::eval(outputs);
  for (auto& output : outputs) {
    output.wait();
  }
}

std::unique_ptr<Array> settle(const Array& array, RawStream stream) {
  auto value = array.get();
  value.eval();
  value.wait();
  if (!value.flags().row_contiguous) {
    value = core::contiguous(value, false, to_mlx(stream));
    value.eval();
    value.wait();
  }
  return settled_view(value);
}

std::unique_ptr<Array> share(const Array& settled) {
  return settled_view(settled_value(settled));
}

rust::Slice<const std::uint8_t> bytes(const Array& settled) {
  const auto& value = settled_value(settled);
  if (value.size() == 0) {
    return {};
  }
  return {value.data<std::uint8_t>(), value.nbytes()};
}

std::unique_ptr<Array> transpose(const Array& array, RawStream stream) {
  return wrap(core::transpose(array.get(), to_mlx(stream)));
}

std::unique_ptr<Array>
matmul(const Array& a, const Array& b, RawStream stream) {
  return wrap(core::matmul(operand(a), operand(b), to_mlx(stream)));
}

Quantized
quantize(const Array& w, const WeightFormat& format, RawStream stream) {
  check_unquantized(operand(w), format);
  auto parts = core::quantize(
      w.get(),
      format.group_size,
      format.bits,
      core::quantization_mode_to_string(mode_of(format)),
      std::nullopt,
      to_mlx(stream));
  return Quantized{
      wrap(std::move(parts.at(0))),
      wrap(std::move(parts.at(1))),
      parts.size() > 2 ? wrap(std::move(parts[2])) : nullptr};
}

std::unique_ptr<Array> dequantize(
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format,
    RawStream stream) {
  check_quantized(parts, format);
  return wrap(core::dequantize(
      parts[0].array.get(),
      parts[1].array.get(),
      biases(parts),
      format.group_size,
      format.bits,
      core::quantization_mode_to_string(mode_of(format)),
      std::nullopt,
      std::nullopt,
      to_mlx(stream)));
}

std::unique_ptr<Array> quantized_matmul(
    const Array& x,
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format,
    RawStream stream) {
  check_factor(operand(x), parts, format);
  // MLX's own casts of these inputs ignore the stream they are given and run on
  // the default one; cast here, and it finds nothing to do.
  auto s = to_mlx(stream);
  auto scales = parts[1].array.get();
  auto offsets = biases(parts);
  auto dtype = x.get().dtype();
  if (offsets) {
    dtype = core::result_type({x.get(), scales, *offsets});
    scales = core::astype(scales, dtype, s);
    offsets = core::astype(*offsets, dtype, s);
  }
  return wrap(core::quantized_matmul(
      core::astype(x.get(), dtype, s),
      parts[0].array.get(),
      scales,
      offsets,
      /* transpose= */ true,
      format.group_size,
      format.bits,
      core::quantization_mode_to_string(mode_of(format)),
      s));
}

} // namespace mlx_overlay
