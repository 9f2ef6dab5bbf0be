#include <metal_stdlib>
using namespace metal;
template <typename T> struct Box {
  T v;
  Box(T a) : v(a) {}
};
template <auto n> METAL_FUNC int get() { return n; }
struct P { float a, b; };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  Box b(x[i]);
  P p{1, 2};
  auto [c, d] = p;
  y[i] = b.v + get<3>() + c + d;
}
