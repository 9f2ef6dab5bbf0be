// 1.5: deduction guides
// Metal 3.1
#include <metal_stdlib>
using namespace metal;
template <typename T> struct Box {
  T v;
};
template <typename T> Box(T) -> Box<T>;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
