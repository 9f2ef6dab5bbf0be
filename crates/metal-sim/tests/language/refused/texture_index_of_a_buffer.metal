// 5.2.1: not valid for attribute 'texture'
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[texture(0)]]) { y[0] = 1; }
