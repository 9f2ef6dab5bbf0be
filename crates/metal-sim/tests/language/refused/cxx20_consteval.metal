// 1.5: C++17
#include <metal_stdlib>
using namespace metal;
consteval int four() { return 4; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = four();
}
