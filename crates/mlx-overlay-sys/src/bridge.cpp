#include "mlx-overlay-sys/src/bridge.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/allocator.h"
#include "mlx/backend/metal/metal.h"
#include "mlx/device.h"
#include "mlx/memory.h"
#include "mlx/stream.h"
#include "mlx/version.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

// The size of an array in bytes. Throws if it cannot be represented.
std::size_t checked_bytes(const core::Shape& shape, core::Dtype dtype) {
  std::size_t bytes = core::size_of(dtype);
  bool negative = false;
  bool overflow = false;
  bool empty = false;
  for (auto extent : shape) {
    negative |= extent < 0;
    empty |= extent == 0;
    overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
  }
  // If any extent is 0, so is the product, whatever the other extents.
  if (empty && !negative) {
    return 0;
  }
  if (negative || overflow) {
    throw std::length_error(
        "mlx-overlay: the array's size in bytes does not fit in 64 bits");
  }
  return bytes;
}

// A new array with uninitialized memory.
core::array allocate(core::Shape shape, core::Dtype dtype) {
  check_bytes(shape, dtype);
  auto bytes = checked_bytes(shape, dtype);
  auto data = core::allocator::malloc(bytes);
  if (bytes > 0 && data.buffer().raw_ptr() == nullptr) {
    throw std::runtime_error(no_memory(bytes));
  }
  return core::array(std::move(data), std::move(shape), dtype);
}

} // namespace

std::string no_memory(std::size_t bytes) {
  return std::string(out_of_memory()) + std::to_string(bytes);
}

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
    case ElementKind::I8:
      return core::int8;
    case ElementKind::I16:
      return core::int16;
    case ElementKind::I32:
      return core::int32;
    case ElementKind::I64:
      return core::int64;
    case ElementKind::U16:
      return core::uint16;
    case ElementKind::U64:
      return core::uint64;
    case ElementKind::Bool:
      return core::bool_;
  }
  throw std::invalid_argument("mlx-overlay: unknown element type");
}

core::Stream to_mlx(RawStream stream) {
  return core::Stream(stream.index, to_mlx(stream.device));
}

RawStream from_mlx(core::Stream stream) {
  auto device =
      stream.device == core::Device::cpu ? DeviceKind::Cpu : DeviceKind::Gpu;
  return RawStream{device, stream.index};
}

core::QuantizationMode mode_of(const WeightFormat& format) {
  return static_cast<core::QuantizationMode>(format.mode);
}

void check_bytes(const core::Shape& shape, core::Dtype dtype) {
  auto bytes = checked_bytes(shape, dtype);
  if (bytes > core::get_memory_limit()) {
    throw std::runtime_error(no_memory(bytes));
  }
}

std::unique_ptr<Array> wrap(core::array value) {
  check_bytes(value.shape(), value.dtype());
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
  auto array = allocate(std::move(extents), dtype);
  if (bytes.size() > 0) {
    std::memcpy(array.data<char>(), bytes.data(), bytes.size());
  }
  return wrap(std::move(array));
}

std::unique_ptr<Array> from_file(
    std::int32_t file,
    std::uint64_t offset,
    rust::Slice<const std::int32_t> shape,
    ElementKind kind) {
  auto array = allocate({shape.begin(), shape.end()}, to_mlx(kind));
  auto* target = array.data<char>();
  for (auto left = array.nbytes(); left > 0;) {
    // Linux reads at most 2^31 - 4096 bytes at once; macOS rejects more.
    auto most = std::min<std::size_t>(left, 1 << 30);
    auto got = ::pread(file, target, most, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw std::system_error(errno, std::generic_category(), "read");
    }
    if (got == 0) {
      throw std::runtime_error(
          "the file ends " + std::to_string(left) + " bytes too early");
    }
    target += got;
    offset += got;
    left -= got;
  }
  return wrap(std::move(array));
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
    case core::int8:
      return ElementKind::I8;
    case core::int16:
      return ElementKind::I16;
    case core::int32:
      return ElementKind::I32;
    case core::int64:
      return ElementKind::I64;
    case core::uint16:
      return ElementKind::U16;
    case core::uint64:
      return ElementKind::U64;
    case core::bool_:
      return ElementKind::Bool;
    default:
      throw std::invalid_argument(
          "mlx-overlay: the bridge does not support the array's element type");
  }
}

} // namespace mlx_overlay
