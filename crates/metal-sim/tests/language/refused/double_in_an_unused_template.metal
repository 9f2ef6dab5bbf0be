// 2.1: 'double'
#include <metal_stdlib>
using namespace metal;
template <typename T> T id(T v) { return T(double(v)); }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
