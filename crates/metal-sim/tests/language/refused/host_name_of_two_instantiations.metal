// 5.1.10: host name 'k'
#include <metal_stdlib>
using namespace metal;
template <typename T> [[kernel]] void f(device T* y, uint i [[thread_position_in_grid]]) { y[i] = 1; }
template [[host_name("k")]] [[kernel]] decltype(f<float>) f<float>;
template [[host_name("k")]] [[kernel]] decltype(f<half>) f<half>;
