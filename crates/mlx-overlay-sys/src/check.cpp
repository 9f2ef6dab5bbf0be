#include "mlx-overlay-sys/src/check.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/ops.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument("mlx-overlay: " + why);
}

constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max();

// Values per row of a quantized matrix.
std::int64_t columns(const core::array& scales, const WeightFormat& format) {
  return std::int64_t{scales.shape(-1)} * format.group_size;
}

// MLX also counts the bits of a row in 32 bits.
void check_extents(std::int64_t n, std::int64_t k, const WeightFormat& format) {
  check_indexable(1, n, k);
  if (k * format.bits > limit) {
    refuse("a row has 2^31 bits or more");
  }
}

bool is_float(core::Dtype dtype) {
  return core::issubdtype(dtype, core::floating);
}

} // namespace

const core::array& operand(const Array& array) {
  if (array.get().size() == 0) {
    refuse("the array has no elements");
  }
  return array.get();
}

void check_format(const WeightFormat& format) {
  if (!is_format(format)) {
    refuse(
        "no kernels for the format: mode " + std::to_string(format.mode) +
        ", " + std::to_string(format.bits) + " bits in groups of " +
        std::to_string(format.group_size));
  }
}

void check_unquantized(const core::array& w, const WeightFormat& format) {
  check_format(format);
  if (w.ndim() < 2 || w.ndim() > 3 || !is_float(w.dtype()) ||
      w.shape(-1) % format.group_size != 0) {
    refuse(
        "a matrix to quantize must be floating-point, with rows of a multiple of " +
        std::to_string(format.group_size));
  }
  check_extents(w.shape(-2), w.shape(-1), format);
}

namespace {

// Stacked matrices have one more dimension than a matrix.
void check_parts(
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format,
    std::size_t dimensions) {
  check_format(format);
  const bool affine = mode_of(format) == core::QuantizationMode::Affine;
  if (parts.size() != (affine ? 3 : 2)) {
    refuse("a quantized matrix has three parts if affine, otherwise two");
  }
  const auto& packed = operand(parts[0].array);
  const auto& scales = operand(parts[1].array);
  const auto& last = operand(parts[parts.size() - 1].array);
  if (packed.dtype() != core::uint32 || is_float(scales.dtype()) != affine ||
      is_float(last.dtype()) != affine) {
    refuse(
        "a quantized matrix must be u32, its scales floats if affine, otherwise u8");
  }
  if (packed.ndim() != dimensions || scales.ndim() != dimensions ||
      !std::equal(
          packed.shape().begin(),
          packed.shape().end() - 1,
          scales.shape().begin()) ||
      scales.shape() != last.shape() ||
      std::int64_t{packed.shape(-1)} * 32 !=
          columns(scales, format) * format.bits) {
    refuse(
        "a quantized matrix and its scales have shapes that do not fit together");
  }
  check_extents(packed.shape(-2), columns(scales, format), format);
}

} // namespace

void check_quantized(
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format) {
  check_parts(parts, format, 2);
}

void check_factor(
    const core::array& x,
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format) {
  check_quantized(parts, format);
  const auto k = columns(parts[1].array.get(), format);
  if (x.ndim() == 0 || x.shape(-1) != k) {
    refuse("a factor must have rows of " + std::to_string(k) + " values");
  }
  check_indexable(x.size() / k, parts[0].array.get().shape(0), k);
}

void check_picked(
    const core::array& x,
    rust::Slice<const ArrayRef> parts,
    const WeightFormat& format) {
  check_parts(parts, format, 3);
  const auto k = columns(parts[1].array.get(), format);
  if (x.ndim() < 2 || x.shape(-1) != k) {
    refuse(
        "the factors of a gather must be matrices with rows of " +
        std::to_string(k) + " values");
  }
  check_indexable(x.shape(-2), parts[0].array.get().shape(-2), k);
}

core::array
within(const core::array& indices, std::int64_t entries, core::Stream stream) {
  auto dtype = indices.dtype();
  if (!core::issubdtype(dtype, core::integer)) {
    refuse("indices must be integers");
  }
  // A limit that the type cannot represent is never reached.
  const bool is_signed = core::issubdtype(dtype, core::signedinteger);
  const int bits = 8 * core::size_of(dtype) - (is_signed ? 1 : 0);
  auto fits = [bits](std::int64_t value) {
    return bits >= 63 || value < (std::int64_t{1} << bits);
  };
  auto scalar = [dtype](std::int64_t value) {
    return core::array(value, dtype);
  };
  auto bounded = indices;
  if (fits(entries - 1)) {
    bounded = core::minimum(bounded, scalar(entries - 1), stream);
  }
  if (is_signed && fits(entries - 1)) {
    bounded = core::maximum(bounded, scalar(-entries), stream);
  }
  return bounded;
}

void check_indexable(std::int64_t m, std::int64_t n, std::int64_t k) {
  auto exceeds = [](std::int64_t a, std::int64_t b) {
    return a > 0 && b > limit / a;
  };
  if (exceeds(m, n) || exceeds(m, k) || exceeds(n, k)) {
    refuse("a matrix or its product has 2^31 elements or more");
  }
}

} // namespace mlx_overlay
