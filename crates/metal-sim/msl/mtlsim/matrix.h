// 8x8 simdgroup matrices. Each lane holds two neighbours of one row; which ones
// follows from the layout that MLX's steel kernels rely on (steel/gemm/mma.h,
// get_coord). A product adds its eight terms to the accumulator in order of k;
// Apple does not document the order.
#pragma once

#include "simd.h"

namespace mtlsim {

struct Cell {
  uint32_t row, column;
};
constexpr Cell matrix_cell(uint32_t lane) {
  uint32_t quad = lane / 4;
  return {(quad & 4) + lane / 2 % 4, (quad & 2) * 2 + lane % 2 * 2};
}

} // namespace mtlsim

namespace metal {

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup matrices are 8 by 8");
  using storage_type = vec<T, 2>;

  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    auto c = mtlsim::matrix_cell(mtlsim::here->lane % 32);
    for (uint32_t i = 0; i < 2; ++i)
      elements_[i] = c.row == c.column + i ? diagonal : T(0);
  }
  storage_type& thread_elements() {
    return elements_;
  }
  const storage_type& thread_elements() const {
    return elements_;
  }

 private:
  storage_type elements_;
};

using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int C, int R = C>
METAL_FUNC simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> m;
  m.thread_elements() = vec<T, 2>{value, value};
  return m;
}

template <class D, class A, class B, class C>
METAL_FUNC void simdgroup_multiply_accumulate(
    simdgroup_matrix<D, 8, 8>& d,
    const simdgroup_matrix<A, 8, 8>& a,
    const simdgroup_matrix<B, 8, 8>& b,
    const simdgroup_matrix<C, 8, 8>& c,
    MTLSIM_AT("simdgroup_multiply_accumulate")) {
  struct Parts {
    float a[2], b[2], c[2];
  };
  auto& x = a.thread_elements();
  auto& y = b.thread_elements();
  auto& z = c.thread_elements();
  mtlsim::Exchange<Parts, MTLSIM_SIMD> all(
      {{float(x[0]), float(x[1])},
       {float(y[0]), float(y[1])},
       {float(z[0]), float(z[1])}},
      site);
  all.once_in_place([](unsigned char(*slot)[mtlsim_exchange::kSlotBytes]) {
    float l[8][8], r[8][8], s[8][8];
    for (uint32_t lane = 0; lane < 32; ++lane) {
      Parts p;
      __builtin_memcpy(&p, slot[lane], sizeof p);
      auto at = mtlsim::matrix_cell(lane);
      for (uint32_t i = 0; i < 2; ++i) {
        l[at.row][at.column + i] = p.a[i];
        r[at.row][at.column + i] = p.b[i];
        s[at.row][at.column + i] = p.c[i];
      }
    }
    for (int i = 0; i < 8; ++i)
      for (int k = 0; k < 8; ++k)
        for (int j = 0; j < 8; ++j)
          s[i][j] = l[i][k] * r[k][j] + s[i][j];
    for (uint32_t lane = 0; lane < 32; ++lane) {
      auto at = mtlsim::matrix_cell(lane);
      __builtin_memcpy(slot[lane], &s[at.row][at.column], 2 * sizeof(float));
    }
  });
  struct Result {
    float v[2];
  };
  auto sum = all.template mine<Result>();
  d.thread_elements() = vec<D, 2>{D(sum.v[0]), D(sum.v[1])};
}

template <class D, class A, class B>
METAL_FUNC void simdgroup_multiply(
    simdgroup_matrix<D, 8, 8>& d,
    const simdgroup_matrix<A, 8, 8>& a,
    const simdgroup_matrix<B, 8, 8>& b,
    MTLSIM_AT("simdgroup_multiply")) {
  simdgroup_multiply_accumulate(
      d, a, b, make_filled_simdgroup_matrix<float, 8, 8>(0.0f), site);
}

template <class T>
METAL_FUNC simdgroup_matrix<T, 8, 8> operator*(
    const simdgroup_matrix<T, 8, 8>& a,
    const simdgroup_matrix<T, 8, 8>& b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}

template <class T, class U>
METAL_FUNC void simdgroup_load(
    simdgroup_matrix<T, 8, 8>& m,
    const U* source,
    ulong elements_per_row = 8,
    ulong2 origin = ulong2{0, 0},
    bool transpose = false) {
  auto c = mtlsim::matrix_cell(mtlsim::here->lane % 32);
  for (uint32_t i = 0; i < 2; ++i) {
    ulong row = transpose ? c.column + i : c.row,
          column = transpose ? c.row : c.column + i;
    m.thread_elements()[i] =
        T(source[(row + origin[1]) * elements_per_row + column + origin[0]]);
  }
}

template <class T, class U>
METAL_FUNC void simdgroup_store(
    const simdgroup_matrix<T, 8, 8>& m,
    U* target,
    ulong elements_per_row = 8,
    ulong2 origin = ulong2{0, 0},
    bool transpose = false) {
  auto c = mtlsim::matrix_cell(mtlsim::here->lane % 32);
  for (uint32_t i = 0; i < 2; ++i) {
    ulong row = transpose ? c.column + i : c.row,
          column = transpose ? c.row : c.column + i;
    target[(row + origin[1]) * elements_per_row + column + origin[0]] =
        U(m.thread_elements()[i]);
  }
}

} // namespace metal
