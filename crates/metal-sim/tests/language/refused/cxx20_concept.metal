// 1.5: C++17
#include <metal_stdlib>
using namespace metal;
template <typename T> concept Small = sizeof(T) == 4;
template <Small T> T id(T v) { return v; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = id(x[i]);
}
