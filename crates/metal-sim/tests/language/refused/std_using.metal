// 1.5.4: standard library
#include <metal_stdlib>
using namespace metal;
using namespace std;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
