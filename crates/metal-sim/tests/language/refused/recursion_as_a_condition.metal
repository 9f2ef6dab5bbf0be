// 1.5.4: recursive call of
#include <metal_stdlib>
using namespace metal;
bool f(int n) { if (n > 9) return true; if (f(n + 1)) return false; return true; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = f(int(x[i]));
}
