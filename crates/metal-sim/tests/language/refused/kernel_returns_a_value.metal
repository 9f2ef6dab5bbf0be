// 5.1.3: return void
#include <metal_stdlib>
using namespace metal;
[[kernel]] int k(device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = 1;
  return 0;
}
