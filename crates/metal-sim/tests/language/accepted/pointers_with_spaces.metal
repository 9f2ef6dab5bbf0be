#include <metal_stdlib>
using namespace metal;
struct S { device float* p; const threadgroup float* t; constant float* c; };
METAL_FUNC void bump(thread float& v) { v += 1; }
METAL_FUNC void bump(device float& v) { v += 1; }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v = x[i];
  thread float* p = &v;
  const device char* bytes = (const device char*)x;
  device float& out = y[i];
  bump(*p);
  bump(y[i]);
  auto q = y + i;
  const auto& w = v;
  out = *p + bytes[0] + *q + w;
}
