// 1.5.4: recursive call
#include <metal_stdlib>
using namespace metal;
struct S {
  int sum(int n) const thread { return n == 0 ? 0 : n + sum(n - 1); }
};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  S s;
  y[i] = s.sum(int(x[i]));
}
