#include <metal_stdlib>
using namespace metal;
METAL_FUNC float get(const device float* p) { return *p; }
METAL_FUNC float get(const thread float* p) { return *p; }
METAL_FUNC float get(constant float* p) { return *p; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], constant float* c [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  float v = x[i];
  y[i] = get(x) + get(&v) + get(c);
}
