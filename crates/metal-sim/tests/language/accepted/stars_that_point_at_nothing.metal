#include <metal_stdlib>
using namespace metal;
constexpr constant int BM = 2;
template <typename T, int n> struct Tile { T v[n]; };
template <int n> struct Table { int v[n]; };
constant Table<2 * 2> table = {{1, 2, 3, 4}};
template <typename T, int BN> T first(T a) {
  Tile<T, BM * BN> acc;
  acc.v[0] = a;
  const thread Tile<T, BM & BN>& other = *(const thread Tile<T, BM & BN>*)(&acc);
  return acc.v[0] + other.v[0];
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  vec<float, 2 * 2> v(x[i]);
  float a = x[i], b = a * 2;
  decltype(a * b) c = a * b;
  alignas(2 * 8) float d[4] = {a, b, c, a};
  bool e = a > b, f = a < b;
  y[i] = v.x + c + d[i % 4] + first<float, 2>(a) + table.v[i % 4] + e + f;
}
