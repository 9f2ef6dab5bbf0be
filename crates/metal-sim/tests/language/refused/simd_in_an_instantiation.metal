// 6.9.2: simdgroup take
#include <metal_stdlib>
using namespace metal;
template <typename T> [[kernel]] void f(device T* y, uint i [[thread_position_in_grid]]) { y[i] = simd_sum(y[i]); }
template [[host_name("a")]] [[kernel]] decltype(f<float>) f<float>;
template [[host_name("k")]] [[kernel]] decltype(f<long>) f<long>;
