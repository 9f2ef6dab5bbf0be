#include <metal_stdlib>
using namespace metal;
union U { float f; uint u; };
enum class Mode : uint { a, b };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  U u;
  u.f = x[i];
  Mode m = i & 1 ? Mode::a : Mode::b;
  switch (m) {
    case Mode::a: y[i] = u.u; break;
    default: y[i] = 1;
  }
}
