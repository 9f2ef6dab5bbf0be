// 1.5.4: 'new'
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { float* p = new float(x[i]); y[i] = *p; delete p; }
