// 5.8.1: scalar or a vector
#include <metal_stdlib>
using namespace metal;
struct S { int v; };
constant S n [[function_constant(0)]];
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
