// 1.5.4: recursive call
#include <metal_stdlib>
using namespace metal;
struct F {
  float operator()(float v) const thread { return v < 1 ? v : (*this)(v - 1); }
};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  F f;
  y[i] = f(x[i]);
}
