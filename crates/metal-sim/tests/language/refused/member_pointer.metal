// 5.1.4: pointers to members
#include <metal_stdlib>
using namespace metal;
struct S { float a, b; };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float S::* m = i & 1 ? &S::a : &S::b;
  S s{1, 2};
  y[i] = s.*m;
}
