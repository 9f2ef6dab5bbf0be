// 6.9.2: simdgroup take
#include <metal_stdlib>
using namespace metal;
struct S { float a; };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  S s{x[i]};
  y[i] = simd_shuffle_down(s, 1).a;
}
