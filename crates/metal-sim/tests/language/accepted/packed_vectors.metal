#include <metal_stdlib>
using namespace metal;
struct V { packed_float3 p; float w; };
static_assert(sizeof(packed_half2) == 4, "");
static_assert(sizeof(packed_float3) == 12 && alignof(packed_float3) == 4 && sizeof(V) == 16, "");
static_assert(sizeof(packed_half3) == 6 && sizeof(packed_uchar4) == 4 && sizeof(packed_long2) == 16, "");
float of(float3 v) { return v.x; }
float of(packed_float3 v) { return v.x; }
[[kernel]] void k(device packed_float3* y [[buffer(0)]], const device packed_float3* x [[buffer(1)]], device V* v [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  float3 a = x[i];
  packed_float3 b(a);
  packed_float3 c = packed_float3(1, 2, 3);
  b[0] = 2;
  b.y = c.z;
  v[i].p = float3(b) + a;
  y[i] = float3(x[i]) * 2 + c;
  y[i] = x[i] * 2 + x[i + 1] - v[i].p;
  y[i].x = of(b) + of(a) + x[i].y + x[i][2] + of(x[i]);
  y[i] = v[i].p;
  y[i] += a;
  y[i][1] = dot(float3(x[i]), a);
  v[i].p = packed_float3(x[i].xy, 9.0);
  thread packed_float3& r = b;
  device packed_float3& s = y[i];
  s = r;
  threadgroup packed_float3 t[4];
  t[0] = x[i];
  y[i] = t[1] * a;
  const device packed_float3* p = x + i;
  a = *p;
  a += *p;
  y[i] += x[i];
  t[0] *= 2;
  y[i] = -*p;
  half3 h = half3(float3(*p));
  y[i] = float3(h);
  y[i] = i > 2 ? *p : b;
}
