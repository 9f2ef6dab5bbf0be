// 4: constant address space
#include <metal_stdlib>
using namespace metal;
namespace a {
int n = 3;
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = a::n;
}
