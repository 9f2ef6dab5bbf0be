// 1.5.4: 'new' and 'delete'
#include <metal_stdlib>
using namespace metal;
struct S {
  float v;
  thread void* operator new(size_t);
};
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
