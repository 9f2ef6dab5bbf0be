// 5.11: derived class
#include <metal_stdlib>
using namespace metal;
struct B { int n; };
struct D : B { int m; };
[[kernel]] void k(device float* y, constant D& d, uint i [[thread_position_in_grid]]) { y[i] = d.n + d.m; }
