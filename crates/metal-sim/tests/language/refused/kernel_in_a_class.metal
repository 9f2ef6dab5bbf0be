// 5.1: member function
#include <metal_stdlib>
using namespace metal;
struct S {
  [[kernel]] void f(device float* y) { y[0] = 1; }
};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
