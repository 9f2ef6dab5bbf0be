// The C++ side of the bridge; lib.rs documents each function.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "mlx-overlay-sys/src/lifetime.h"
#include "mlx/array.h"
#include "rust/cxx.h"

namespace mlx_overlay {

enum class DeviceKind : std::uint8_t;
enum class ElementKind : std::uint8_t;
struct RawStream;
struct ArrayRef;
struct Quantized;
struct WeightFormat;

// An mlx::core::array. While the process exits it is leaked instead of
// destroyed.
class Array {
 public:
  explicit Array(mlx::core::array value, bool settled = false)
      : value_(std::move(value)), settled_(settled) {}
  ~Array();

  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  const mlx::core::array& get() const {
    return value_;
  }
  // Whether its memory exists and is never written to again.
  bool settled() const {
    return settled_;
  }

 private:
  union {
    mlx::core::array value_;
  };
  bool settled_;
};

rust::String version();
bool metal_is_available();
bool device_is_available(DeviceKind device);
rust::String device_property(DeviceKind device, rust::Str key);

RawStream default_stream(DeviceKind device);
RawStream new_stream(DeviceKind device);
void set_default_stream(RawStream stream);
void synchronize(RawStream stream);

std::unique_ptr<Array> from_bytes(
    rust::Slice<const std::uint8_t> bytes,
    rust::Slice<const std::int32_t> shape,
    ElementKind kind);
std::unique_ptr<Array> from_file(
    std::int32_t file,
    std::uint64_t offset,
    rust::Slice<const std::int32_t> shape,
    ElementKind kind);
rust::Vec<std::int32_t> shape(const Array& array);
ElementKind kind(const Array& array);

} // namespace mlx_overlay
