#include <metal_stdlib>
using namespace metal;
constexpr constant memory_order order = memory_order_seq_cst;
void fence(memory_order o = memory_order_seq_cst) { atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst); }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  atomic_thread_fence(mem_flags::mem_device, order);
  fence();
  fence(memory_order_seq_cst);
  y[i] = x[i];
}
