// 1.5: 'auto' as a template parameter
// Metal 3.2
#include <metal_stdlib>
using namespace metal;
template <auto n> int get() { return n; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = get<3>();
}
