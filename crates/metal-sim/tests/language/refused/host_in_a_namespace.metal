// 1.5.4: not defined
#include <metal_stdlib>
using namespace metal;
namespace host {
extern "C" float erff(float);
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = host::erff(x[i]);
}
