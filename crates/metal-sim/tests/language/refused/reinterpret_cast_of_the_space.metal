// 4: reinterpret_cast
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  thread float* p = reinterpret_cast<thread float*>(y);
  y[i] = p[0];
}
