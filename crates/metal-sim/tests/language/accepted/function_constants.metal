#include <metal_stdlib>
using namespace metal;
constant int n [[function_constant(0)]];
constant bool flag [[function_constant(1)]];
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1), function_constant(flag)]],
    const device float* z [[buffer(1), function_constant(flag)]], uint i [[thread_position_in_grid]]) {
  y[i] = flag ? x[i] + z[i] : n;
}
