// Read before the text of an unpatched fft.cpp, which returns a tuple of two
// arrays where a pair is declared: fine with the standard library of a Mac,
// an error with GCC 12's. The patch bluestein-pair mends the text itself.
#pragma once

#include <tuple>
#include <utility>

#include "mlx/array.h"

namespace std {

inline pair<mlx::core::array, mlx::core::array> make_tuple(
    mlx::core::array& a,
    mlx::core::array& b) {
  return {a, b};
}

} // namespace std
