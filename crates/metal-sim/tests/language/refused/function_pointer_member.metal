// 5.1.4: pointers to functions
#include <metal_stdlib>
using namespace metal;
struct S { float (*f)(float); };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = sizeof(S);
}
