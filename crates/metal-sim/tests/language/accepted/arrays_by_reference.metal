#include <metal_stdlib>
using namespace metal;
template <typename T, int n> METAL_FUNC T sum(const thread T (&v)[n]) {
  T s = 0;
  for (int i = 0; i < n; i++) s += v[i];
  return s;
}
METAL_FUNC float first(thread float (*rows)[2]) { return rows[0][0]; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v[2] = {x[i], 1};
  y[i] = sum(v) + first(&v);
}
