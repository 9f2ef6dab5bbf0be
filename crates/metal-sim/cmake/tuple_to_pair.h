// Included before an unpatched fft.cpp, which returns a tuple of two arrays
// from a function declared to return a pair: accepted by a Mac's standard
// library, an error with GCC 12's. The patch bluestein-pair fixes the file
// itself.
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
