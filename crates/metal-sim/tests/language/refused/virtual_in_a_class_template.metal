// 1.5.4: virtual functions
#include <metal_stdlib>
using namespace metal;
template <typename T> struct B { virtual T f() { return T(0); } };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
