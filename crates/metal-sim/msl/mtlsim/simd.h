// Simdgroup and quad functions, barriers.
//
// The order in which simd_sum and simd_product combine lanes is an assumption
// (engine.h: mtlsim_reduction); so is the order of the prefix functions, which
// start at lane 0 here.
#pragma once

#include "math.h"

namespace mtlsim {

// The value that a lane gets from one that does not take part: Metal does not
// define it. In tracked kernels these are inlined into the caller, because its
// values are tracked.
#ifdef MTLSIM_TRACKED
#define MTLSIM_FOLLOWED [[gnu::always_inline]] inline
#else
#define MTLSIM_FOLLOWED
#endif
template <class T>
MTLSIM_FOLLOWED void no_value(
    [[maybe_unused]] T& x,
    [[maybe_unused]] uint32_t from,
    [[maybe_unused]] const mtlsim_site& site) {
#if defined(MTLSIM_CHECKED)
  inactive(from, site);
#elif defined(MTLSIM_TRACKED)
  poison(&x, sizeof x);
#endif
}

// The values of the lanes that take part, combined in the engine's order. Lanes
// that have returned are not in the tree.
template <class T, class F>
T combine(T* v, uint32_t part, F op, uint32_t order) {
  auto merge = [&](uint32_t to, uint32_t from) {
    bool a = part >> to & 1, b = part >> from & 1;
    if (a && b)
      v[to] = op(v[to], v[from]);
    else if (b) {
      v[to] = v[from];
      part |= 1u << to;
    }
  };
  switch (order) {
    case 1:
      for (uint32_t step = 1; step < 32; step *= 2)
        for (uint32_t i = 0; i < 32; i += 2 * step)
          merge(i, i + step);
      break;
    case 2:
      for (uint32_t i = 1; i < 32; ++i)
        merge(0, i);
      break;
    default:
      for (uint32_t step = 16; step; step /= 2)
        for (uint32_t i = 0; i < step; ++i)
          merge(i, i + step);
  }
  return v[0];
}

template <class T, class F>
T simd_reduce(T x, F op, const mtlsim_site& site) {
  Exchange<T, MTLSIM_SIMD> all(x, site);
  uint32_t order = here->reduction;
  return all.template once<T>(
      [&](T* v, uint32_t part) { return combine(v, part, op, order); });
}

// Two steps of a butterfly. For a quad no other order is offered.
template <class T, class F>
T quad_reduce(T x, F op, const mtlsim_site& site) {
  Exchange<T, MTLSIM_QUAD> all(x, site);
  T v[4];
  uint32_t part = 0;
  for (uint32_t i = 0; i < 4; ++i)
    if (all.has(i)) {
      v[i] = all.at(i);
      part |= 1u << i;
    }
  for (uint32_t step = 2; step; step /= 2)
    for (uint32_t i = 0; i < step; ++i) {
      bool a = part >> i & 1, b = part >> (i + step) & 1;
      if (a && b)
        v[i] = op(v[i], v[i + step]);
      else if (b) {
        v[i] = v[i + step];
        part |= 1u << i;
      }
    }
  return v[0];
}

template <class T, class F>
T simd_scan(T x, F op, bool inclusive, T start, const mtlsim_site& site) {
  Exchange<T, MTLSIM_SIMD> all(x, site);
  T sum = start;
  bool any = false;
  for (uint32_t i = 0; i < all.lane() + (inclusive ? 1 : 0); ++i)
    if (all.has(i)) {
      sum = any ? op(sum, all.at(i)) : all.at(i);
      any = true;
    }
  return sum;
}

// Reads another lane's value; for a lane that does not exist, returns the own
// value.
template <mtlsim_scope Scope, class T, class F>
MTLSIM_FOLLOWED T gather(T x, F source, const mtlsim_site& site) {
  Exchange<T, Scope> all(x, site);
  uint32_t from = source(all.lane());
  if (all.has(from))
    return all.at(from);
  // Past the end, shuffle_up and shuffle_down return the value unchanged.
  if (from < all.kWidth || !is_shift(site.call))
    no_value(x, from, site);
  return x;
}

template <class T, class F>
MTLSIM_FOLLOWED T
gather_filled(T x, T fill, F source, const mtlsim_site& site) {
  struct Pair {
    T value, fill;
  };
  Exchange<Pair, MTLSIM_SIMD> all({x, fill}, site);
  auto [from, filled] = source(all.lane());
  if (!all.has(from)) {
    no_value(x, from, site);
    return x;
  }
  return filled ? all.at(from).fill : all.at(from).value;
}

#undef MTLSIM_FOLLOWED

inline constexpr auto add = [](auto a, auto b) { return decltype(a)(a + b); };
inline constexpr auto multiply = [](auto a, auto b) {
  return decltype(a)(a * b);
};
inline constexpr auto least = [](auto a, auto b) {
  if constexpr (std::is_same_v<decltype(a), bfloat>)
    return a < b || b != b ? a : b;
  else
    return metal::min(a, b);
};
inline constexpr auto greatest = [](auto a, auto b) {
  if constexpr (std::is_same_v<decltype(a), bfloat>)
    return a > b || b != b ? a : b;
  else
    return metal::max(a, b);
};
inline constexpr auto bit_and = [](auto a, auto b) {
  return decltype(a)(a & b);
};
inline constexpr auto bit_or = [](auto a, auto b) {
  return decltype(a)(a | b);
};
inline constexpr auto bit_xor = [](auto a, auto b) {
  return decltype(a)(a ^ b);
};

} // namespace mtlsim

#define MTLSIM_AT(name) mtlsim::Site site = mtlsim::Site::of(name)
// The types that functions of simdgroups and quads accept.
#define MTLSIM_LANES_simd                                                      \
  MTLSIM_REFUSE(                                                               \
      !mtlsim::simd_type<T>,                                                   \
      "6.9.2",                                                                 \
      "the functions of a simdgroup take numbers of 8 to 32 bits and vectors " \
      "of them, not bool, long, ulong or a class")
#define MTLSIM_LANES_quad                                                   \
  MTLSIM_REFUSE(                                                            \
      !mtlsim::quad_type<T>,                                                \
      "6.9.3",                                                              \
      "the functions of a quad take numbers and vectors of them, not bool " \
      "or a class")
#define MTLSIM_LANES_ONLY(prefix) MTLSIM_LANES_##prefix
#define MTLSIM_SHUFFLES(prefix, scope, width)                         \
  template <class T>                                                  \
  MTLSIM_LANES_ONLY(prefix)                                           \
  METAL_FUNC T prefix##_broadcast(                                    \
      T x, ushort lane, MTLSIM_AT(#prefix "_broadcast")) {            \
    return mtlsim::gather<scope>(                                     \
        x, [=](uint32_t) { return uint32_t(lane); }, site);           \
  }                                                                   \
  template <class T>                                                  \
  MTLSIM_LANES_ONLY(prefix)                                           \
  METAL_FUNC T prefix##_shuffle(                                      \
      T x, ushort lane, MTLSIM_AT(#prefix "_shuffle")) {              \
    return mtlsim::gather<scope>(                                     \
        x, [=](uint32_t) { return uint32_t(lane); }, site);           \
  }                                                                   \
  template <class T>                                                  \
  MTLSIM_LANES_ONLY(prefix)                                           \
  METAL_FUNC T prefix##_shuffle_down(                                 \
      T x, ushort by, MTLSIM_AT(#prefix "_shuffle_down")) {           \
    return mtlsim::gather<scope>(                                     \
        x, [=](uint32_t i) { return i + by; }, site);                 \
  }                                                                   \
  template <class T>                                                  \
  MTLSIM_LANES_ONLY(prefix)                                           \
  METAL_FUNC T prefix##_shuffle_up(                                   \
      T x, ushort by, MTLSIM_AT(#prefix "_shuffle_up")) {             \
    return mtlsim::gather<scope>(                                     \
        x, [=](uint32_t i) { return i - by; }, site);                 \
  }                                                                   \
  template <class T>                                                  \
  MTLSIM_LANES_ONLY(prefix)                                           \
  METAL_FUNC T prefix##_shuffle_xor(                                  \
      T x, ushort mask, MTLSIM_AT(#prefix "_shuffle_xor")) {          \
    return mtlsim::gather<scope>(                                     \
        x, [=](uint32_t i) { return i ^ mask; }, site);               \
  }                                                                   \
  template <class T>                                                  \
  MTLSIM_LANES_ONLY(prefix)                                           \
  METAL_FUNC T prefix##_shuffle_rotate_down(                          \
      T x, ushort by, MTLSIM_AT(#prefix "_shuffle_rotate_down")) {    \
    return mtlsim::gather<scope>(                                     \
        x, [=](uint32_t i) { return (i + by) % width; }, site);       \
  }                                                                   \
  template <class T>                                                  \
  MTLSIM_LANES_ONLY(prefix)                                           \
  METAL_FUNC T prefix##_shuffle_rotate_up(                            \
      T x, ushort by, MTLSIM_AT(#prefix "_shuffle_rotate_up")) {      \
    return mtlsim::gather<scope>(                                     \
        x,                                                            \
        [=](uint32_t i) { return (i + width - by % width) % width; }, \
        site);                                                        \
  }
#define MTLSIM_FILLS(name, suffix)                                            \
  template <class T>                                                          \
  MTLSIM_LANES_ONLY(simd)                                                     \
  METAL_FUNC T name##_and_fill_down(                                          \
      T x,                                                                    \
      T fill,                                                                 \
      ushort by,                                                              \
      ushort modulo,                                                          \
      MTLSIM_AT("simd_shuffle_and_fill_down")) {                              \
    return mtlsim::gather_filled(                                             \
        x,                                                                    \
        fill,                                                                 \
        [=](uint32_t i) {                                                     \
          uint32_t at = i % modulo + by, base = i - i % modulo;               \
          return std::pair<uint32_t, bool>(base + at % modulo, at >= modulo); \
        },                                                                    \
        site);                                                                \
  }                                                                           \
  template <class T>                                                          \
  MTLSIM_LANES_ONLY(simd)                                                     \
  METAL_FUNC T name##_and_fill_up(                                            \
      T x,                                                                    \
      T fill,                                                                 \
      ushort by,                                                              \
      ushort modulo,                                                          \
      MTLSIM_AT("simd_shuffle_and_fill_up")) {                                \
    return mtlsim::gather_filled(                                             \
        x,                                                                    \
        fill,                                                                 \
        [=](uint32_t i) {                                                     \
          uint32_t at = i % modulo, base = i - at;                            \
          return std::pair<uint32_t, bool>(                                   \
              base + (at + modulo - by % modulo) % modulo, at < by);          \
        },                                                                    \
        site);                                                                \
  }

// clang-format off: one operation per line
#define MTLSIM_REDUCTIONS(M)   \
  M(sum, mtlsim::add)          \
  M(product, mtlsim::multiply) \
  M(min, mtlsim::least)        \
  M(max, mtlsim::greatest)     \
  M(and, mtlsim::bit_and)      \
  M(or, mtlsim::bit_or)        \
  M(xor, mtlsim::bit_xor)
// clang-format on
#define MTLSIM_REDUCE(name, op)                             \
  template <class T>                                        \
  MTLSIM_LANES_ONLY(simd)                                   \
  METAL_FUNC T simd_##name(T x, MTLSIM_AT("simd_" #name)) { \
    return mtlsim::simd_reduce(x, op, site);                \
  }                                                         \
  template <class T>                                        \
  MTLSIM_LANES_ONLY(quad)                                   \
  METAL_FUNC T quad_##name(T x, MTLSIM_AT("quad_" #name)) { \
    return mtlsim::quad_reduce(x, op, site);                \
  }
#define MTLSIM_SCANS(name, op, start)                       \
  template <class T>                                        \
  MTLSIM_LANES_ONLY(simd)                                   \
  METAL_FUNC T simd_prefix_inclusive_##name(                \
      T x, MTLSIM_AT("simd_prefix_inclusive_" #name)) {     \
    return mtlsim::simd_scan(x, op, true, T(start), site);  \
  }                                                         \
  template <class T>                                        \
  MTLSIM_LANES_ONLY(simd)                                   \
  METAL_FUNC T simd_prefix_exclusive_##name(                \
      T x, MTLSIM_AT("simd_prefix_exclusive_" #name)) {     \
    return mtlsim::simd_scan(x, op, false, T(start), site); \
  }

namespace metal {

MTLSIM_SHUFFLES(simd, MTLSIM_SIMD, 32)
MTLSIM_SHUFFLES(quad, MTLSIM_QUAD, 4)
MTLSIM_FILLS(simd_shuffle, simd)
template <class T>
METAL_FUNC T simd_shuffle_and_fill_down(
    T x,
    T fill,
    ushort by,
    MTLSIM_AT("simd_shuffle_and_fill_down")) {
  return simd_shuffle_and_fill_down(x, fill, by, ushort(32), site);
}
template <class T>
METAL_FUNC T simd_shuffle_and_fill_up(
    T x,
    T fill,
    ushort by,
    MTLSIM_AT("simd_shuffle_and_fill_up")) {
  return simd_shuffle_and_fill_up(x, fill, by, ushort(32), site);
}
MTLSIM_REDUCTIONS(MTLSIM_REDUCE)
MTLSIM_SCANS(sum, mtlsim::add, 0)
MTLSIM_SCANS(product, mtlsim::multiply, 1)

METAL_FUNC bool simd_all(bool x, MTLSIM_AT("simd_all")) {
  return mtlsim::simd_reduce(x, mtlsim::bit_and, site);
}
METAL_FUNC bool simd_any(bool x, MTLSIM_AT("simd_any")) {
  return mtlsim::simd_reduce(x, mtlsim::bit_or, site);
}
METAL_FUNC bool quad_all(bool x, MTLSIM_AT("quad_all")) {
  return mtlsim::quad_reduce(x, mtlsim::bit_and, site);
}
METAL_FUNC bool quad_any(bool x, MTLSIM_AT("quad_any")) {
  return mtlsim::quad_reduce(x, mtlsim::bit_or, site);
}

struct simd_vote {
  using vote_t = uint64_t;
  vote_t votes;
  explicit constexpr simd_vote(vote_t v = 0) : votes(v) {}
  explicit constexpr operator vote_t() const {
    return votes;
  }
  constexpr bool all() const {
    return votes == 0xffffffffu;
  }
  constexpr bool any() const {
    return votes != 0;
  }
};
METAL_FUNC simd_vote simd_ballot(bool x, MTLSIM_AT("simd_ballot")) {
  uint32_t mine = x ? 1u << (mtlsim::here->lane % 32) : 0;
  return simd_vote(mtlsim::simd_reduce(mine, mtlsim::bit_or, site));
}
template <class T>
MTLSIM_LANES_ONLY(simd)
METAL_FUNC T simd_broadcast_first(T x, MTLSIM_AT("simd_broadcast_first")) {
  return mtlsim::simd_reduce(
      x, [](T a, T) { return a; }, site);
}
METAL_FUNC bool simd_is_first(MTLSIM_AT("simd_is_first")) {
  uint32_t lane = mtlsim::here->lane;
  return mtlsim::simd_reduce(lane, mtlsim::least, site) == lane;
}

enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return mem_flags(uint(a) | uint(b));
}

METAL_FUNC void threadgroup_barrier(
    mem_flags ordered,
    MTLSIM_AT("threadgroup_barrier")) {
  auto scope =
      ordered == mem_flags::mem_none ? MTLSIM_GROUP_LOOSE : MTLSIM_GROUP;
  mtlsim::before_meeting();
  mtlsim::here->meet(mtlsim::here, scope, &site);
  mtlsim::pass(mtlsim::here->passed, uint(ordered));
}
METAL_FUNC void simdgroup_barrier(
    mem_flags ordered,
    MTLSIM_AT("simdgroup_barrier")) {
  mtlsim::before_meeting();
  mtlsim::here->meet(mtlsim::here, MTLSIM_SIMD, &site);
  mtlsim::pass(mtlsim::here->simd_passed, uint(ordered));
}

} // namespace metal

METAL_FUNC ushort __metal_get_simdgroup_size(ushort) {
  return 32;
}
METAL_FUNC ushort __metal_get_thread_index_in_simdgroup(ushort) {
  return ushort(mtlsim::here->lane % 32);
}
#define MTLSIM_FORWARD_LANE(name)                                             \
  template <class T>                                                          \
  METAL_FUNC T __metal_simd_##name(T x, ushort n, MTLSIM_AT("simd_" #name)) { \
    return metal::simd_##name(x, n, site);                                    \
  }
MTLSIM_FORWARD_LANE(broadcast)
MTLSIM_FORWARD_LANE(shuffle)
MTLSIM_FORWARD_LANE(shuffle_down)
MTLSIM_FORWARD_LANE(shuffle_up)
MTLSIM_FORWARD_LANE(shuffle_xor)
MTLSIM_FORWARD_LANE(shuffle_rotate_down)
MTLSIM_FORWARD_LANE(shuffle_rotate_up)
#undef MTLSIM_FORWARD_LANE
MTLSIM_FILLS(__metal_simd_shuffle, simd)
#define MTLSIM_FORWARD(name)                                        \
  template <class T>                                                \
  METAL_FUNC T __metal_simd_##name(T x, MTLSIM_AT("simd_" #name)) { \
    return metal::simd_##name(x, site);                             \
  }
MTLSIM_FORWARD(sum)
MTLSIM_FORWARD(product)
MTLSIM_FORWARD(min)
MTLSIM_FORWARD(max)
MTLSIM_FORWARD(and)
MTLSIM_FORWARD(or)
METAL_FUNC float __metal_simd_xor(float x, MTLSIM_AT("simd_xor")) {
  return mtlsim::bits<float>(metal::simd_xor(mtlsim::bits<uint>(x), site));
}
MTLSIM_FORWARD(prefix_inclusive_sum)
MTLSIM_FORWARD(prefix_exclusive_sum)
MTLSIM_FORWARD(prefix_inclusive_product)
MTLSIM_FORWARD(prefix_exclusive_product)
#undef MTLSIM_FORWARD
