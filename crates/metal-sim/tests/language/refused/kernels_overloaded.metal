// 5.1.10: host name 'k'
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y) { y[0] = 1; }
[[kernel]] void k(device half* y) { y[0] = 1; }
