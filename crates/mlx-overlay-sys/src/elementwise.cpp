#include "mlx-overlay-sys/src/elementwise.h"

#include <stdexcept>

#include "mlx-overlay-sys/src/check.h"
#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/ops.h"

namespace mlx_overlay {

namespace core = mlx::core;

std::unique_ptr<Array> add(const Array& a, const Array& b, RawStream stream) {
  return wrap(core::add(operand(a), operand(b), to_mlx(stream)));
}

std::unique_ptr<Array>
multiply(const Array& a, const Array& b, RawStream stream) {
  return wrap(core::multiply(operand(a), operand(b), to_mlx(stream)));
}

std::unique_ptr<Array> sigmoid(const Array& array, RawStream stream) {
  return wrap(core::sigmoid(operand(array), to_mlx(stream)));
}

std::unique_ptr<Array>
compare(const Array& a, const Array& b, Comparison how, RawStream stream) {
  const auto& left = operand(a);
  const auto& right = operand(b);
  auto s = to_mlx(stream);
  switch (how) {
    case Comparison::Equal:
      return wrap(core::equal(left, right, s));
    case Comparison::NotEqual:
      return wrap(core::not_equal(left, right, s));
    case Comparison::Less:
      return wrap(core::less(left, right, s));
    case Comparison::LessEqual:
      return wrap(core::less_equal(left, right, s));
    case Comparison::Greater:
      return wrap(core::greater(left, right, s));
    case Comparison::GreaterEqual:
      return wrap(core::greater_equal(left, right, s));
  }
  throw std::invalid_argument("mlx-overlay: unknown comparison");
}

std::unique_ptr<Array> select(
    const Array& condition,
    const Array& a,
    const Array& b,
    RawStream stream) {
  return wrap(
      core::where(operand(condition), operand(a), operand(b), to_mlx(stream)));
}

} // namespace mlx_overlay
