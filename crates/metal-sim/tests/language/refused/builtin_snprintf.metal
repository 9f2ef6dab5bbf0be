// 1.5.4: __builtin_snprintf
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  char c[8];
  y[i] = __builtin_snprintf(c, 8, "a");
}
