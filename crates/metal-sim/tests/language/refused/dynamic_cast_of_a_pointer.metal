// 1.5.4: dynamic_cast
#include <metal_stdlib>
using namespace metal;
struct B { int v; };
struct D : B {};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  D d;
  thread B* b = &d;
  y[i] = dynamic_cast<thread D*>(b) ? 1 : 0;
}
