#include <metal_stdlib>
using namespace metal;
template <typename T, int n> [[kernel]] void f(device T* y, uint i [[thread_position_in_grid]]) { y[i] = T(n); }
template [[host_name("k")]] [[kernel]] decltype(f<float, 1>) f<float, 1>;
template [[host_name("k2")]] [[kernel]] decltype(f<half, 2>) f<half, 2>;
