// Metal 3.0
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  if constexpr (sizeof(float) == 4) y[i] = x[i];
  [[maybe_unused]] int n = 0;
}
