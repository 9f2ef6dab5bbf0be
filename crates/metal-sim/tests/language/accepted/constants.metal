#include <metal_stdlib>
using namespace metal;
constant int n = 3;
constexpr constant float table[2] = {1, 2};
static constant constexpr const int m = 4;
struct S { static constant constexpr int size = 8; };
template <typename T> constexpr constant bool is_small = sizeof(T) < 4;
namespace a {
constant uint mask = 0xffu;
}
[[kernel]] void k(device float* y [[buffer(0)]], const device float* x [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = n + table[i & 1] + m + S::size + is_small<half> + (a::mask & i);
}
