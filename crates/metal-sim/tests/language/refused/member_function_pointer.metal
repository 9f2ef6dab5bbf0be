// 5.1.4: pointers to
#include <metal_stdlib>
using namespace metal;
struct S { float f() { return 1; } };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float (S::* m)() = &S::f;
  S s;
  y[i] = (s.*m)();
}
