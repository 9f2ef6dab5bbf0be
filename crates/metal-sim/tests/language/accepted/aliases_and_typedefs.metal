#include <metal_stdlib>
using namespace metal;
typedef vec<float, 2> pair;
using row = metal::vec<half, 4>;
template <typename T> using ptr = device T*;
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  pair p = pair(x[i], 1);
  row r = row(1);
  ptr<float> q = y;
  q[i] = p.x + r.x;
}
