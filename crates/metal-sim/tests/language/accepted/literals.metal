#include <metal_stdlib>
using namespace metal;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  half h = 1.5h;
  bfloat b = 1.5bf;
  long l = 3l;
  ulong u = 0xfful;
  y[i] = x[i] * 1e-3 + h + float(b) + l + u + 0x1p-2f;
}
