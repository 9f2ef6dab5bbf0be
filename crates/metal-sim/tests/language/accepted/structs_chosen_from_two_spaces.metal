#include <metal_stdlib>
using namespace metal;
template <typename T>
struct two {
  T a, b;
  constexpr two(T x) thread : a(x), b(0) {}
  constexpr two() thread : a(0), b(0) {}
  constexpr two() threadgroup : a(0), b(0) {}
};
template <typename U>
struct add {
  static constexpr constant U init = U(0);
};
template <typename U, typename Op>
U chosen(threadgroup U* shared, uint i) {
  Op op;
  return i < 16 ? shared[i] : op.init;
}
[[kernel]] void k(device two<float>* y [[buffer(0)]], const device two<float>* x [[buffer(1)]], uint i [[thread_position_in_threadgroup]]) {
  threadgroup two<float> shared[32];
  shared[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = chosen<two<float>, add<two<float>>>(shared, i);
}
