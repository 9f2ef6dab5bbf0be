// 2.6: an atomic is one of
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], device atomic<long>* a [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = sizeof(*a);
}
