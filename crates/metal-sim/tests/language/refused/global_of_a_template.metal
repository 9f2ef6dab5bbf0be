// 4: constant address space
#include <metal_stdlib>
using namespace metal;
template <typename T> constexpr int n = sizeof(T);
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = n<float>;
}
