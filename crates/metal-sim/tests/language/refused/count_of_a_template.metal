// 5.2.3.6: not valid for attribute
#include <metal_stdlib>
using namespace metal;
template <typename I> [[kernel]] void f(device float* y, I i [[simdgroup_index_in_threadgroup]]) { y[i] = 1; }
template [[host_name("k")]] [[kernel]] decltype(f<long>) f<long>;
