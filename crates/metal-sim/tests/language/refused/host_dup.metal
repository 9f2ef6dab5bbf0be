// 5.1.10: host name 'k'
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { y[i] = 1; }
template <typename T> [[kernel]] void kk(device T* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = 2; }
template [[host_name("k")]] [[kernel]] decltype(kk<float>) kk<float>;
