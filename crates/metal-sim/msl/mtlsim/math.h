// Math functions. Float uses the host's library; half is computed in float and
// rounded once. The precision of Apple's transcendental functions is not
// reproduced (metal::fast and metal::precise are the same here).
#pragma once

#include "types.h"

#define __METAL_MAYBE_FAST_MATH__ false
#define __METAL_FAST_MATH__ true
#define __METAL_PRECISE_MATH__ false

namespace mtlsim {

inline float exp10(float x) {
  return __builtin_powf(10.0f, x);
}
inline float cospi(float x) {
  return float(__builtin_cos(double(x) * 3.14159265358979323846));
}
inline float sinpi(float x) {
  return float(__builtin_sin(double(x) * 3.14159265358979323846));
}
inline float tanpi(float x) {
  return float(__builtin_tan(double(x) * 3.14159265358979323846));
}
inline float rsqrt(float x) {
  return 1.0f / __builtin_sqrtf(x);
}
inline float fract(float x) {
  float f = x - __builtin_floorf(x);
  return f < 1.0f ? f : 0x1.fffffep-1f;
}
inline float saturate(float x) {
  return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f);
}
inline float sign(float x) {
  return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f;
}
inline float divide(float x, float y) {
  return x / y;
}
inline float fmax3(float x, float y, float z) {
  return __builtin_fmaxf(__builtin_fmaxf(x, y), z);
}
inline float fmin3(float x, float y, float z) {
  return __builtin_fminf(__builtin_fminf(x, y), z);
}
inline float fmedian3(float x, float y, float z) {
  return __builtin_fmaxf(
      __builtin_fminf(x, y), __builtin_fminf(__builtin_fmaxf(x, y), z));
}
inline float mix(float x, float y, float a) {
  return x + (y - x) * a;
}
inline float step(float edge, float x) {
  return x < edge ? 0.0f : 1.0f;
}
inline float smoothstep(float a, float b, float x) {
  float t = saturate((x - a) / (b - a));
  return t * t * (3.0f - 2.0f * t);
}
inline float clamp(float x, float low, float high) {
  return __builtin_fminf(__builtin_fmaxf(x, low), high);
}

constexpr bool sign_bit(float x) {
  return bits<uint32_t>(x) >> 31;
}

// Applies a float function to each component of a vector.
template <class V, class F, class... A>
[[gnu::always_inline]] inline V each(F f, A... a) {
  V r;
  for (int i = 0; i < VectorOf<V>::size; ++i)
    r[i] = f(a[i]...);
  return r;
}

} // namespace mtlsim

// clang-format off: one function per line
// Name in MSL, name of its intrinsic, the host's function.
#define MTLSIM_MATH_1(M)                  \
  M(fabs, fabs, __builtin_fabsf)          \
  M(acos, acos, __builtin_acosf)          \
  M(acosh, acosh, __builtin_acoshf)       \
  M(asin, asin, __builtin_asinf)          \
  M(asinh, asinh, __builtin_asinhf)       \
  M(atan, atan, __builtin_atanf)          \
  M(atanh, atanh, __builtin_atanhf)       \
  M(ceil, ceil, __builtin_ceilf)          \
  M(floor, floor, __builtin_floorf)       \
  M(cos, cos, __builtin_cosf)             \
  M(cosh, cosh, __builtin_coshf)          \
  M(cospi, cospi, mtlsim::cospi)          \
  M(exp, exp, __builtin_expf)             \
  M(exp2, exp2, __builtin_exp2f)          \
  M(exp10, exp10, mtlsim::exp10)          \
  M(log, log, __builtin_logf)             \
  M(log2, log2, __builtin_log2f)          \
  M(log10, log10, __builtin_log10f)       \
  M(rint, rint, __builtin_rintf)          \
  M(round, round, __builtin_roundf)       \
  M(rsqrt, rsqrt, mtlsim::rsqrt)          \
  M(sqrt, sqrt, __builtin_sqrtf)          \
  M(sin, sin, __builtin_sinf)             \
  M(sinh, sinh, __builtin_sinhf)          \
  M(sinpi, sinpi, mtlsim::sinpi)          \
  M(tan, tan, __builtin_tanf)             \
  M(tanh, tanh, __builtin_tanhf)          \
  M(tanpi, tanpi, mtlsim::tanpi)          \
  M(trunc, trunc, __builtin_truncf)       \
  M(fract, fract, mtlsim::fract)          \
  M(saturate, saturate, mtlsim::saturate) \
  M(sign, sign, mtlsim::sign)
#define MTLSIM_MATH_2(M)                     \
  M(atan2, atan2, __builtin_atan2f)          \
  M(pow, pow, __builtin_powf)                \
  M(powr, powr, __builtin_powf)              \
  M(copysign, copysign, __builtin_copysignf) \
  M(fdim, fdim, __builtin_fdimf)             \
  M(fmod, fmod, __builtin_fmodf)             \
  M(fmax, fmax, __builtin_fmaxf)             \
  M(fmin, fmin, __builtin_fminf)             \
  M(max, fmax, __builtin_fmaxf)              \
  M(min, fmin, __builtin_fminf)              \
  M(divide, divide, mtlsim::divide)          \
  M(step, step, mtlsim::step)
#define MTLSIM_MATH_3(M)                        \
  M(fma, fma, __builtin_fmaf)                   \
  M(mix, mix, mtlsim::mix)                      \
  M(clamp, clamp, mtlsim::clamp)                \
  M(fmax3, fmax3, mtlsim::fmax3)                \
  M(fmin3, fmin3, mtlsim::fmin3)                \
  M(fmedian3, fmedian3, mtlsim::fmedian3)       \
  M(smoothstep, smoothstep, mtlsim::smoothstep) \
  M(max3, fmax3, mtlsim::fmax3)                 \
  M(min3, fmin3, mtlsim::fmin3)                 \
  M(median3, fmedian3, mtlsim::fmedian3)
// clang-format on

#define MTLSIM_DEFINE_1(name, intrinsic, host)                              \
  METAL_FUNC float name(float x) {                                          \
    return host(x);                                                         \
  }                                                                         \
  METAL_FUNC half name(half x) {                                            \
    return half(host(float(x)));                                            \
  }                                                                         \
  template <int N>                                                          \
  METAL_FUNC vec<float, N> name(vec<float, N> x) {                          \
    return mtlsim::each<vec<float, N>>([](float a) { return host(a); }, x); \
  }                                                                         \
  template <int N>                                                          \
  METAL_FUNC vec<half, N> name(vec<half, N> x) {                            \
    return mtlsim::each<vec<half, N>>(                                      \
        [](float a) { return half(host(a)); }, x);                          \
  }
#define MTLSIM_DEFINE_2(name, intrinsic, host)                      \
  METAL_FUNC float name(float x, float y) {                         \
    return host(x, y);                                              \
  }                                                                 \
  METAL_FUNC half name(half x, half y) {                            \
    return half(host(float(x), float(y)));                          \
  }                                                                 \
  template <int N>                                                  \
  METAL_FUNC vec<float, N> name(vec<float, N> x, vec<float, N> y) { \
    return mtlsim::each<vec<float, N>>(                             \
        [](float a, float b) { return host(a, b); }, x, y);         \
  }                                                                 \
  template <int N>                                                  \
  METAL_FUNC vec<half, N> name(vec<half, N> x, vec<half, N> y) {    \
    return mtlsim::each<vec<half, N>>(                              \
        [](float a, float b) { return half(host(a, b)); }, x, y);   \
  }
#define MTLSIM_DEFINE_3(name, intrinsic, host)                             \
  METAL_FUNC float name(float x, float y, float z) {                       \
    return host(x, y, z);                                                  \
  }                                                                        \
  METAL_FUNC half name(half x, half y, half z) {                           \
    return half(host(float(x), float(y), float(z)));                       \
  }                                                                        \
  template <int N>                                                         \
  METAL_FUNC vec<float, N> name(                                           \
      vec<float, N> x, vec<float, N> y, vec<float, N> z) {                 \
    return mtlsim::each<vec<float, N>>(                                    \
        [](float a, float b, float c) { return host(a, b, c); }, x, y, z); \
  }                                                                        \
  template <int N>                                                         \
  METAL_FUNC vec<half, N> name(                                            \
      vec<half, N> x, vec<half, N> y, vec<half, N> z) {                    \
    return mtlsim::each<vec<half, N>>(                                     \
        [](float a, float b, float c) { return half(host(a, b, c)); },     \
        x,                                                                 \
        y,                                                                 \
        z);                                                                \
  }

namespace metal {

MTLSIM_MATH_1(MTLSIM_DEFINE_1)
MTLSIM_MATH_2(MTLSIM_DEFINE_2)
MTLSIM_MATH_3(MTLSIM_DEFINE_3)
namespace fast {
MTLSIM_MATH_1(MTLSIM_DEFINE_1)
MTLSIM_MATH_2(MTLSIM_DEFINE_2)
MTLSIM_MATH_3(MTLSIM_DEFINE_3)
} // namespace fast
namespace precise {
MTLSIM_MATH_1(MTLSIM_DEFINE_1)
MTLSIM_MATH_2(MTLSIM_DEFINE_2)
MTLSIM_MATH_3(MTLSIM_DEFINE_3)
} // namespace precise

METAL_FUNC float abs(float x) {
  return __builtin_fabsf(x);
}
METAL_FUNC half abs(half x) {
  return half(__builtin_fabsf(float(x)));
}
template <int N>
METAL_FUNC vec<float, N> abs(vec<float, N> x) {
  return fabs(x);
}
namespace fast {
using metal::abs;
}
namespace precise {
using metal::abs;
}

#define MTLSIM_INTEGER                                      \
  template <class T, class = enable_if_t<is_integral_v<T>>> \
  METAL_FUNC constexpr
MTLSIM_INTEGER T abs(T x) {
  if constexpr (std::is_signed_v<T>)
    return x < 0 ? T(-x) : x;
  else
    return x;
}
MTLSIM_INTEGER T min(T x, T y) {
  return y < x ? y : x;
}
MTLSIM_INTEGER T max(T x, T y) {
  return x < y ? y : x;
}
MTLSIM_INTEGER T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}
MTLSIM_INTEGER T min3(T x, T y, T z) {
  return min(min(x, y), z);
}
MTLSIM_INTEGER T max3(T x, T y, T z) {
  return max(max(x, y), z);
}
MTLSIM_INTEGER T absdiff(T x, T y) {
  return x < y ? T(y - x) : T(x - y);
}
MTLSIM_INTEGER T popcount(T x) {
  return T(__builtin_popcountll(std::make_unsigned_t<T>(x)));
}
MTLSIM_INTEGER T clz(T x) {
  constexpr int width = 8 * sizeof(T);
  return x == 0 ? T(width)
                : T(__builtin_clzll(std::make_unsigned_t<T>(x)) - (64 - width));
}
MTLSIM_INTEGER T ctz(T x) {
  return x == 0 ? T(8 * sizeof(T))
                : T(__builtin_ctzll(std::make_unsigned_t<T>(x)));
}
MTLSIM_INTEGER T mulhi(T x, T y) {
  if constexpr (sizeof(T) == 8) {
    using Wide =
        std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return T((Wide(x) * Wide(y)) >> 64);
  } else {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    return T((Wide(x) * Wide(y)) >> (8 * sizeof(T)));
  }
}
MTLSIM_INTEGER T rotate(T x, T by) {
  using U = std::make_unsigned_t<T>;
  constexpr unsigned width = 8 * sizeof(T);
  unsigned n = unsigned(by) % width;
  return n == 0 ? x : T(U(U(x) << n) | U(U(x) >> (width - n)));
}
MTLSIM_INTEGER T reverse_bits(T x) {
  T r = 0;
  for (unsigned i = 0; i < 8 * sizeof(T); ++i)
    r = T(r << 1) | T((x >> i) & 1);
  return r;
}
MTLSIM_INTEGER T extract_bits(T x, uint offset, uint count) {
  if (count == 0)
    return 0;
  constexpr unsigned width = 8 * sizeof(T);
  return T(T(x << (width - offset - count)) >> (width - count));
}
#undef MTLSIM_INTEGER
// Mixed integer types use the usual arithmetic conversions.
template <
    class T,
    class U,
    class =
        enable_if_t<is_integral_v<T> && is_integral_v<U> && !is_same_v<T, U>>>
METAL_FUNC constexpr auto min(T x, U y) {
  return metal::min<std::common_type_t<T, U>>(x, y);
}
template <
    class T,
    class U,
    class =
        enable_if_t<is_integral_v<T> && is_integral_v<U> && !is_same_v<T, U>>>
METAL_FUNC constexpr auto max(T x, U y) {
  return metal::max<std::common_type_t<T, U>>(x, y);
}
template <class T, int N, class = enable_if_t<is_integral_v<T>>>
METAL_FUNC vec<T, N> min(vec<T, N> x, vec<T, N> y) {
  return mtlsim::each<vec<T, N>>(
      [](T a, T b) { return metal::min(a, b); }, x, y);
}
template <class T, int N, class = enable_if_t<is_integral_v<T>>>
METAL_FUNC vec<T, N> max(vec<T, N> x, vec<T, N> y) {
  return mtlsim::each<vec<T, N>>(
      [](T a, T b) { return metal::max(a, b); }, x, y);
}

METAL_FUNC float ldexp(float x, int k) {
  return __builtin_ldexpf(x, k);
}
METAL_FUNC half ldexp(half x, int k) {
  return half(__builtin_ldexpf(float(x), k));
}
METAL_FUNC int ilogb(float x) {
  return __builtin_ilogbf(x);
}
METAL_FUNC float nextafter(float x, float y) {
  return __builtin_nextafterf(x, y);
}
METAL_FUNC float frexp(float x, int& e) {
  return __builtin_frexpf(x, &e);
}
METAL_FUNC float modf(float x, float& whole) {
  return __builtin_modff(x, &whole);
}
METAL_FUNC float sincos(float x, float& cosine) {
  cosine = __builtin_cosf(x);
  return __builtin_sinf(x);
}

// Not for integers: MLX declares its own.
#define MTLSIM_CLASSIFY(name, test)          \
  METAL_FUNC constexpr bool name(float x) {  \
    return test(x);                          \
  }                                          \
  METAL_FUNC constexpr bool name(half x) {   \
    return test(float(x));                   \
  }                                          \
  METAL_FUNC constexpr bool name(bfloat x) { \
    return test(float(x));                   \
  }
MTLSIM_CLASSIFY(isnan, __builtin_isnan)
MTLSIM_CLASSIFY(isinf, __builtin_isinf)
MTLSIM_CLASSIFY(isfinite, __builtin_isfinite)
MTLSIM_CLASSIFY(isnormal, __builtin_isnormal)
MTLSIM_CLASSIFY(signbit, mtlsim::sign_bit)
#undef MTLSIM_CLASSIFY

template <class T>
METAL_FUNC constexpr T select(T a, T b, bool c) {
  return c ? b : a;
}
template <class T, int N, class M>
METAL_FUNC vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<M, N> c) {
  for (int i = 0; i < N; ++i)
    a[i] = c[i] ? b[i] : a[i];
  return a;
}
METAL_FUNC constexpr bool any(bool x) {
  return x;
}
METAL_FUNC constexpr bool all(bool x) {
  return x;
}
template <class T, int N>
METAL_FUNC bool any(vec<T, N> x) {
  bool r = false;
  for (int i = 0; i < N; ++i)
    r |= bool(x[i]);
  return r;
}
template <class T, int N>
METAL_FUNC bool all(vec<T, N> x) {
  bool r = true;
  for (int i = 0; i < N; ++i)
    r &= bool(x[i]);
  return r;
}

// Apple does not document the order in which dot adds. Here it starts with the
// first component, and contracts each term with the sum so far.
template <class T, int N>
METAL_FUNC T dot(vec<T, N> a, vec<T, N> b) {
  T r = a[0] * b[0];
  for (int i = 1; i < N; ++i)
    r = a[i] * b[i] + r;
  return r;
}
template <int N>
METAL_FUNC float length(vec<float, N> a) {
  return __builtin_sqrtf(dot(a, a));
}

} // namespace metal

// The intrinsics of the library's functions, which MLX calls for bfloat.
#define MTLSIM_INTRINSIC_1(name, intrinsic, host)       \
  METAL_FUNC float __metal_##intrinsic(float x, bool) { \
    return host(x);                                     \
  }
#define MTLSIM_INTRINSIC_2(name, intrinsic, host)           \
  METAL_FUNC float __metal_##name(float x, float y, bool) { \
    return host(x, y);                                      \
  }
#define MTLSIM_INTRINSIC_3(name, intrinsic, host)                    \
  METAL_FUNC float __metal_##name(float x, float y, float z, bool) { \
    return host(x, y, z);                                            \
  }
MTLSIM_MATH_1(MTLSIM_INTRINSIC_1)
MTLSIM_MATH_2(MTLSIM_INTRINSIC_2)
MTLSIM_MATH_3(MTLSIM_INTRINSIC_3)
METAL_FUNC float __metal_fma(float x, float y, float z) {
  return __builtin_fmaf(x, y, z);
}
METAL_FUNC float __metal_nextafter(float x, float y) {
  return __builtin_nextafterf(x, y);
}
METAL_FUNC float __metal_ldexp(float x, int k, bool) {
  return __builtin_ldexpf(x, k);
}
METAL_FUNC int __metal_ilogb(float x, bool) {
  return __builtin_ilogbf(x);
}
METAL_FUNC float __metal_frexp(float x, int* e) {
  return __builtin_frexpf(x, e);
}
