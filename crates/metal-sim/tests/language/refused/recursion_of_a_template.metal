// 1.5.4: recursive call
#include <metal_stdlib>
using namespace metal;
template <typename T> T f(T n) { return n < 2 ? T(1) : n * f<T>(n - 1); }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = f<float>(x[i]);
}
