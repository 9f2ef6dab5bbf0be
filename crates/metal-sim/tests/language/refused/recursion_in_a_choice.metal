// 1.5.4: recursive call of
#include <metal_stdlib>
using namespace metal;
int f(int n) { return n > 0 ? 1 + f(n - 1) : 0; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = f(int(x[i]));
}
