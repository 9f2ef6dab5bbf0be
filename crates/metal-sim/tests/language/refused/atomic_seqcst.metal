// 6.15.1: memory_order_relaxed
#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device atomic_uint* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { atomic_fetch_add_explicit(y, 1u, memory_order_seq_cst); }
