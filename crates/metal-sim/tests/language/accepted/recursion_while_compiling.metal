#include <metal_stdlib>
using namespace metal;
constexpr int log2_of(int n) { return n < 2 ? 0 : 1 + log2_of(n / 2); }
template <int n> struct Sum { static METAL_FUNC float of(float v) { return v + Sum<n - 1>::of(v); } };
template <> struct Sum<0> { static METAL_FUNC float of(float) { return 0; } };
template <int n> METAL_FUNC float power(float v) {
  if constexpr (n == 0) return 1;
  else return v * power<n - 1>(v);
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float a[log2_of(8)] = {};
  y[i] = Sum<4>::of(x[i]) + a[0] + power<3>(x[i]);
}
