// 4: constant address space
#include <metal_stdlib>
using namespace metal;
int counter = 0;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { counter++; y[i] = counter; }
