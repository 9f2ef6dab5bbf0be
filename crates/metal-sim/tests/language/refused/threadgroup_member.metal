// 4.4: member
#include <metal_stdlib>
using namespace metal;
struct S {
  threadgroup float t[32];
};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = sizeof(S);
}
