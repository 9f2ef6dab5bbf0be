// 6.19: needs Metal 3.2
// Metal 3.1
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  os_log_default.log("here");
  y[i] = x[i];
}
