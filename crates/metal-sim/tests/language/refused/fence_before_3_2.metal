// 6.15.3: needs Metal 3.2
// Metal 3.1
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);
  y[i] = x[i];
}
