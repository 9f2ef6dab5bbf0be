// 1.5: 'auto' not allowed in function prototype
#include <metal_stdlib>
using namespace metal;
float twice(auto v) { return v + v; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = twice(x[i]);
}
