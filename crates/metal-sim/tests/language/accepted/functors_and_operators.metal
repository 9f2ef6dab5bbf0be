#include <metal_stdlib>
using namespace metal;
struct Add { METAL_FUNC float operator()(float a, float b) const thread { return a + b; } };
template <typename Op> METAL_FUNC float apply(float a, float b, Op op) { return op(a, b); }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = apply(x[i], 1, Add());
}
