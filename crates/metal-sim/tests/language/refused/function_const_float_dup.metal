// 5.8.1: function constant 'm'
#include <metal_stdlib>
using namespace metal;
constant int n [[function_constant(0)]]; constant int m [[function_constant(0)]];
[[kernel]] void k(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = n + m; }
