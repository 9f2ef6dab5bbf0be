// 1.5.4: recursive call
#include <metal_stdlib>
using namespace metal;
struct S {
  static int f(int n) { return n < 2 ? 1 : 1 + S::f(n - 1); }
};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = S::f(int(x[i]));
}
