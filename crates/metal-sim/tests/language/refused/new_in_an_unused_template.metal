// 1.5.4: 'new' is not supported
#include <metal_stdlib>
using namespace metal;
template <typename T> void f() { auto p = new T(); }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
