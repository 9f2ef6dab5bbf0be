// 4.8: needs Metal 3.2
// Metal 3.1
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], coherent(device) device float* c [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  c[i] = x[i];
  y[i] = c[i];
}
