#include <metal_stdlib>
using namespace metal;
struct V { packed_float3 p; float w; };
static_assert(sizeof(packed_half2) == 4, "");
[[kernel]] void k(device packed_float3* y [[buffer(0)]], const device packed_float3* x [[buffer(1)]], device V* v [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  float3 a = x[i];
  packed_float3 b(a);
  packed_float3 c = packed_float3(1, 2, 3);
  b[0] = 2;
  b.y = c.z;
  v[i].p = float3(b) + a;
  y[i] = float3(x[i]) * 2 + c;
}
