// : undeclared identifier
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v;
  memcpy(&v, &i, 4);
  y[i] = v;
}
