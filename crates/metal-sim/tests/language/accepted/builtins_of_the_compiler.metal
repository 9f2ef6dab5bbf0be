#include <metal_stdlib>
using namespace metal;
extern constant float half_of;
constant float half_of = 0.5;
namespace n {
constant float third = 0.3;
extern constant float third;
}
template <typename T> T doubled(T v) {
  extern constant float half_of;
  return v / half_of * n::third;
}
struct S { static float f(float v); float g(); };
float S::f(float v) { return v; }
float undefined(float);
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  extern constant float half_of;
  y[i] = __builtin_popcount(i) + __builtin_ctzll(i | 1) + __builtin_bswap32(i) + __builtin_inff() + INFINITY + NAN;
  if (__builtin_expect(i > 2, 1)) {
    y[i] = doubled(S::f(half_of)) * sizeof(undefined(1)) + __builtin_isnan(y[i]);
  }
}
