#include <metal_stdlib>
using namespace metal;
void add(thread float& v, int n) {
  v += n;
  if (n > 1) {
    int m = n - 1;
    if (m > 0) {
      add(v, m);
    }
  }
}
int gcd(int a, int b) {
  if (b == 0) {
    return a;
  }
  return gcd(b, a % b);
}
void subtract(thread float& v, int n) {
  v -= n;
  if (n > 9) subtract(v, n - 2);
  else if (n > 1) subtract(v, n - 1);
}
int gcd2(int a, int b) { return b == 0 ? a : gcd2(b, a % b); }
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v = x[i];
  add(v, 3);
  subtract(v, 3);
  y[i] = v + gcd(int(v), 6) + gcd2(int(v), 6);
}
