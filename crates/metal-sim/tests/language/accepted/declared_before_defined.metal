#include <metal_stdlib>
using namespace metal;
float f(float v);
namespace a {
float g(float v);
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = f(x[i]) + a::g(x[i]);
}
float f(float v) { return v; }
namespace a {
float g(float v) { return -v; }
}
