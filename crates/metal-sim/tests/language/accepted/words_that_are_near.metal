#include <metal_stdlib>
using namespace metal;
// goto, double, new and virtual in a comment
struct double_buffer { float new_value, go_to; };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  double_buffer b{x[i], 1};
  y[i] = b.new_value + b.go_to;
}
