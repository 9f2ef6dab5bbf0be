// 5.1.3: return void
#include <metal_stdlib>
using namespace metal;
template <typename T> [[kernel]] T f(device T* y, uint i [[thread_position_in_grid]]) {
  y[i] = 1;
  return 0;
}
template [[host_name("k")]] [[kernel]] decltype(f<float>) f<float>;
