// 1.5: C++17
#include <metal_stdlib>
using namespace metal;
struct P {
  int v;
  int operator<=>(int o) const { return v - o; }
};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  P p{int(i)};
  y[i] = p.v;
}
