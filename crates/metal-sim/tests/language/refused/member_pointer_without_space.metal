// 4: explicit address space
#include <metal_stdlib>
using namespace metal;
struct S { const float* p; };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = sizeof(S);
}
