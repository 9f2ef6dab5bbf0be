// 1.5.4: virtual functions
#include <metal_stdlib>
using namespace metal;
struct B { virtual float f(float v) const { return v; } }; struct D : B { float f(float v) const override { return -v; } };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { D d; const thread B& b = d; y[i] = b.f(x[i]); }
