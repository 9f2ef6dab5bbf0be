// 1.5.4: 'delete' is not supported
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  thread float* p = nullptr;
  delete p;
  y[i] = x[i];
}
