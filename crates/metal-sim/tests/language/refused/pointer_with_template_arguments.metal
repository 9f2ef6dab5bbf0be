// 4: explicit address space
#include <metal_stdlib>
using namespace metal;
template <typename T, int n> struct Tile { T v[n]; };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  Tile<float, 2 * 2> t;
  Tile<float, 2 * 2>* p = &t;
  y[i] = p->v[0];
}
