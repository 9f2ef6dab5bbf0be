#include <metal_stdlib>
using namespace metal;
constant int one = 1, two = one * 2;
using Elements = const device float*;
using Row = array<float, 2 * 2>;
typedef thread float (*Four)[4];
using Four2 = thread float (&)[4];
struct Pair { const device float *a, *b; };
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float q = x[i], r = q * 2;
  thread float *p = &q, *s = &r;
  device float *t = y + i, *u = t;
  auto f = [q, r](float v) { return q + r + v; };
  float four[4] = {q, q, q, q};
  Four g = &four;
  Four2 h = four;
  Row row = {{1, 2, 3, 4}};
  threadgroup float m[2], n = {0};
  m[0] = n = 1;
  Elements e = x;
  Pair pair = {x, x};
  for (int j = 0, w = one * two; j < w; ++j) {
    *u += *p + *s + m[0] + (*g)[j % 4] + h[0] + e[i] + f(1) + row[0] + pair.b[i];
  }
}
