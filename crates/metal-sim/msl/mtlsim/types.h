// Scalars, vectors, traits and limits of the Metal Shading Language. The parts
// included by check.h are C++17, the language of Metal 4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lane.h"

// Refuses a call for which Metal's library has no function. metal-simc reports
// the section as that of the specification.
#define MTLSIM_REFUSE(condition, section, text) \
  __attribute__((diagnose_if(condition, "[MSL " section "] " text, "error")))

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
// The compiler's 16-bit types: expressions become the half and bfloat
// operations that Apple's front end emits, including llvm.fmuladd.f16 and
// .bf16.
using half = _Float16;
using bfloat = __bf16;

namespace metal {

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

using ::int8_t, ::int16_t, ::int32_t, ::int64_t;
using ::size_t, ::ptrdiff_t;
using ::uint8_t, ::uint16_t, ::uint32_t, ::uint64_t;

// ---- traits
using std::bool_constant, std::integral_constant, std::true_type,
    std::false_type;
using std::conditional, std::conditional_t, std::enable_if, std::enable_if_t;
using std::declval, std::decay_t, std::make_unsigned_t, std::make_signed_t;
using std::is_const_v, std::is_reference_v, std::is_constructible_v;
using std::is_enum_v, std::is_void_v, std::is_array_v, std::is_base_of_v,
    std::is_trivially_copyable_v;
using std::is_integral, std::is_integral_v, std::is_pointer, std::is_pointer_v;
using std::is_same, std::is_same_v, std::is_convertible, std::is_convertible_v;
using std::remove_const_t, std::remove_reference, std::remove_reference_t,
    std::remove_cv, std::remove_cv_t;

template <class T>
inline constexpr bool is_floating_point_v =
    std::is_same_v<std::remove_cv_t<T>, float> ||
    std::is_same_v<std::remove_cv_t<T>, half> ||
    std::is_same_v<std::remove_cv_t<T>, bfloat>;
template <class T>
struct is_floating_point : std::bool_constant<is_floating_point_v<T>> {};
template <class T>
inline constexpr bool is_arithmetic_v =
    std::is_integral_v<T> || is_floating_point_v<T>;
template <class T>
struct is_arithmetic : std::bool_constant<is_arithmetic_v<T>> {};
template <class T>
inline constexpr bool is_signed_v =
    std::is_signed_v<T> || is_floating_point_v<T>;
template <class T>
inline constexpr bool is_unsigned_v = std::is_unsigned_v<T>;
template <class... T>
using _disjunction = std::disjunction<T...>;
template <class... T>
inline constexpr bool _disjunction_v = std::disjunction_v<T...>;
// Address spaces are part of a type only in checks.
template <class T>
struct remove_addrspace {
  using type = std::remove_cv_t<T>;
};
#ifdef MTLSIM_CHECK
template <class T>
struct remove_addrspace<mtlsim_space_device T> : remove_addrspace<T> {};
template <class T>
struct remove_addrspace<mtlsim_space_constant T> : remove_addrspace<T> {};
template <class T>
struct remove_addrspace<mtlsim_space_threadgroup T> : remove_addrspace<T> {};
template <class T>
struct remove_addrspace<const mtlsim_space_device T> : remove_addrspace<T> {};
template <class T>
struct remove_addrspace<const mtlsim_space_constant T> : remove_addrspace<T> {};
template <class T>
struct remove_addrspace<const mtlsim_space_threadgroup T>
    : remove_addrspace<T> {};
#endif
template <class T>
using remove_addrspace_t = typename remove_addrspace<T>::type;

// ---- limits
template <class T>
struct numeric_limits : std::numeric_limits<T> {};

} // namespace metal

namespace mtlsim {
// A 16-bit float's limits from its bits: the greatest finite value, the
// smallest normal and subnormal, the distance from 1 to the next value.
template <
    class T,
    uint16_t Max,
    uint16_t Min,
    uint16_t Denormal,
    uint16_t Epsilon,
    uint16_t Infinity,
    uint16_t NaN,
    int Digits>
struct Limits16 {
  static constexpr bool is_specialized = true, is_signed = true,
                        is_integer = false;
  static constexpr bool has_infinity = true, has_quiet_NaN = true;
  static constexpr int digits = Digits, radix = 2;
  static constexpr T max() {
    return __builtin_bit_cast(T, Max);
  }
  static constexpr T min() {
    return __builtin_bit_cast(T, Min);
  }
  static constexpr T lowest() {
    return -max();
  }
  static constexpr T denorm_min() {
    return __builtin_bit_cast(T, Denormal);
  }
  static constexpr T epsilon() {
    return __builtin_bit_cast(T, Epsilon);
  }
  static constexpr T infinity() {
    return __builtin_bit_cast(T, Infinity);
  }
  static constexpr T quiet_NaN() {
    return __builtin_bit_cast(T, NaN);
  }
};
} // namespace mtlsim

namespace metal {
template <>
struct numeric_limits<half>
    : mtlsim::Limits16<half, 0x7bff, 0x0400, 1, 0x1400, 0x7c00, 0x7e00, 11> {};
template <>
struct numeric_limits<bfloat>
    : mtlsim::Limits16<bfloat, 0x7f7f, 0x0080, 1, 0x3c00, 0x7f80, 0x7fc0, 8> {};

template <class T, size_t N>
struct array {
  T elements[N];
  constexpr T& operator[](size_t i) {
    return elements[i];
  }
  constexpr const T& operator[](size_t i) const {
    return elements[i];
  }
  constexpr size_t size() const {
    return N;
  }
  constexpr T* data() {
    return elements;
  }
  constexpr const T* data() const {
    return elements;
  }
  constexpr T* begin() {
    return elements;
  }
  constexpr T* end() {
    return elements + N;
  }
  constexpr const T* begin() const {
    return elements;
  }
  constexpr const T* end() const {
    return elements + N;
  }
};

template <class T>
using uniform = T;
template <class T>
constexpr T make_uniform(T x) {
  return x;
}

struct os_log {
  constexpr os_log(const char*, const char*) {}
  template <class... A>
  void log(A...) const {}
  template <class... A>
  void log_debug(A...) const {}
  template <class... A>
  void log_info(A...) const {}
  template <class... A>
  void log_error(A...) const {}
  template <class... A>
  void log_fault(A...) const {}
};
inline constexpr os_log os_log_default{"", ""};

} // namespace metal

namespace mtlsim {

template <class T>
struct VectorOf {
  static constexpr int size = 1;
  using element = T;
};
template <class T, int N>
struct VectorOf<T __attribute__((ext_vector_type(N)))> {
  static constexpr int size = N;
  using element = T;
};
template <class T>
inline constexpr bool is_packed = false;
template <class T>
using Identity = typename std::common_type<T>::type;

// static_cast, and conversions that MSL allows but C++ refuses: between half
// and bfloat, and between vectors of one length and different element types.
template <class To, class From>
[[gnu::always_inline]] constexpr To cast(From from) {
  using F = std::decay_t<From>;
  using T = std::decay_t<To>;
  if constexpr (
      (std::is_same_v<F, half> && std::is_same_v<T, bfloat>) ||
      (std::is_same_v<F, bfloat> && std::is_same_v<T, half>))
    return static_cast<To>(static_cast<float>(from));
  else if constexpr (
      VectorOf<F>::size > 1 && VectorOf<T>::size == VectorOf<F>::size &&
      !std::is_same_v<F, T>)
    return __builtin_convertvector(from, T);
  else
    return static_cast<To>(from);
}

template <class V, class A>
[[gnu::always_inline]] constexpr void put(V& v, int& i, A a) {
  if constexpr (VectorOf<A>::size == 1)
    v[i++] = cast<typename VectorOf<V>::element>(a);
  else
    for (int k = 0; k < VectorOf<A>::size; ++k)
      v[i++] = cast<typename VectorOf<V>::element>(a[k]);
}

template <class A>
[[gnu::always_inline]] constexpr auto unpack(A a) {
  if constexpr (is_packed<A>)
    return a.unpacked();
  else
    return a;
}

// The meaning of `float4(...)` in MSL: a splat, a conversion, or parts in
// order.
template <class V, class... A>
[[gnu::always_inline]] constexpr V make(A... a) {
  if constexpr (VectorOf<V>::size == 1) {
    return V(a...);
  } else if constexpr ((is_packed<A> || ...)) {
    return make<V>(unpack(a)...);
  } else if constexpr (sizeof...(A) == 0) {
    return V{};
  } else if constexpr (sizeof...(A) == 1) {
    if constexpr (((VectorOf<A>::size == 1) && ...))
      return (V(static_cast<typename VectorOf<V>::element>(a)), ...);
    else
      return (cast<V>(a), ...);
  } else if constexpr (
      ((VectorOf<A>::size == 1) && ...) && sizeof...(A) == VectorOf<V>::size) {
    return V{cast<typename VectorOf<V>::element>(a)...};
  } else {
    static_assert(
        (VectorOf<A>::size + ...) == VectorOf<V>::size,
        "too few or too many components");
    V v{};
    int i = 0;
    (put(v, i, a), ...);
    return v;
  }
}

// An argument `{a, b, ...}`: becomes a vector with as many components, or the
// class that braces would initialise.
template <class... A>
struct List {
  std::tuple<A...> parts;
  template <
      class T,
      class = std::enable_if_t<
          VectorOf<T>::size == int(sizeof...(A)) || std::is_class_v<T>>>
  constexpr operator T() const {
    return std::apply(
        [](auto... a) {
          if constexpr (VectorOf<T>::size > 1)
            return make<T>(a...);
          else
            return T{a...};
        },
        parts);
  }
};
template <class... A>
constexpr List<A...> list(A... a) {
  return {{a...}};
}

} // namespace mtlsim

template <class To, class From>
[[gnu::always_inline]] constexpr To as_type(From from) {
  return mtlsim::bits<To>(from);
}
namespace metal {
using ::as_type;
}

#define MTLSIM_VECTORS(T)        \
  using T##2 = metal::vec<T, 2>; \
  using T##3 = metal::vec<T, 3>; \
  using T##4 = metal::vec<T, 4>;
MTLSIM_VECTORS(char)
MTLSIM_VECTORS(uchar)
MTLSIM_VECTORS(short)
MTLSIM_VECTORS(ushort)
MTLSIM_VECTORS(int)
MTLSIM_VECTORS(uint)
MTLSIM_VECTORS(long)
MTLSIM_VECTORS(ulong)
MTLSIM_VECTORS(half)
MTLSIM_VECTORS(float)
MTLSIM_VECTORS(bfloat)
MTLSIM_VECTORS(bool)
#undef MTLSIM_VECTORS

// ---- packed vectors: aligned like one element, without padding
namespace metal {
template <class T, int N>
struct packed_vec;
}
namespace mtlsim {
template <class T, int N>
struct Components;
template <class T>
struct Components<T, 2> {
  union {
    T elements[2];
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
  };
};
template <class T>
struct Components<T, 3> {
  union {
    T elements[3];
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
    metal::packed_vec<T, 2> xy, rg;
  };
};
template <class T>
struct Components<T, 4> {
  union {
    T elements[4];
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
    metal::packed_vec<T, 2> xy, rg;
    metal::packed_vec<T, 3> xyz, rgb;
  };
};
} // namespace mtlsim
namespace metal {
template <class T, int N>
struct packed_vec : mtlsim::Components<T, N> {
  using V = vec<T, N>;
  packed_vec() = default;
  constexpr packed_vec(V v) {
    for (int i = 0; i < N; ++i)
      this->elements[i] = v[i];
  }
  explicit constexpr packed_vec(T x) : packed_vec(V(x)) {}
  template <class A, class B, class... More>
  constexpr packed_vec(A a, B b, More... more)
      : packed_vec(mtlsim::make<V>(a, b, more...)) {}
  constexpr V unpacked() const {
    V v;
    for (int i = 0; i < N; ++i)
      v[i] = this->elements[i];
    return v;
  }
  constexpr operator V() const {
    return unpacked();
  }
  constexpr T& operator[](int i) {
    return this->elements[i];
  }
  constexpr const T& operator[](int i) const {
    return this->elements[i];
  }
};
#define MTLSIM_PACKED(op)                                                 \
  template <class T, int N>                                               \
  constexpr auto operator op(packed_vec<T, N> a, packed_vec<T, N> b) {    \
    return a.unpacked() op b.unpacked();                                  \
  }                                                                       \
  template <class T, int N>                                               \
  constexpr auto operator op(packed_vec<T, N> a, vec<T, N> b) {           \
    return a.unpacked() op b;                                             \
  }                                                                       \
  template <class T, int N>                                               \
  constexpr auto operator op(vec<T, N> a, packed_vec<T, N> b) {           \
    return a op b.unpacked();                                             \
  }                                                                       \
  template <class T, int N>                                               \
  constexpr auto operator op(packed_vec<T, N> a, mtlsim::Identity<T> b) { \
    return a.unpacked() op b;                                             \
  }                                                                       \
  template <class T, int N>                                               \
  constexpr auto operator op(mtlsim::Identity<T> a, packed_vec<T, N> b) { \
    return a op b.unpacked();                                             \
  }
// clang-format off: one operation per line
MTLSIM_PACKED(+)
MTLSIM_PACKED(-)
MTLSIM_PACKED(*)
MTLSIM_PACKED(/)
MTLSIM_PACKED(==)
MTLSIM_PACKED(!=)
MTLSIM_PACKED(<)
MTLSIM_PACKED(>)
#undef MTLSIM_PACKED
#define MTLSIM_PACKED(op)                                                \
  template <class T, int N, class B>                                     \
  constexpr packed_vec<T, N>& operator op##=(packed_vec<T, N>& a, B b) { \
    return a = a op b;                                                   \
  }
MTLSIM_PACKED(+)
MTLSIM_PACKED(-)
MTLSIM_PACKED(*)
MTLSIM_PACKED(/)
#undef MTLSIM_PACKED
// clang-format on
#ifdef MTLSIM_CHECK
// C++ binds an object of a class in an address space only to a reference to
// that space.
#define MTLSIM_PACKED(space, op)                                       \
  template <class T, int N, class B>                                   \
  __attribute__((address_space(space))) packed_vec<T, N>& operator op( \
      __attribute__((address_space(space))) packed_vec<T, N>&, B);     \
  template <class T, int N>                                            \
  vec<T, N>& operator op(                                              \
      vec<T, N>&,                                                      \
      const __attribute__((address_space(space))) packed_vec<T, N>&);
#define MTLSIM_PACKED_IN(space) \
  MTLSIM_PACKED(space, +=)      \
  MTLSIM_PACKED(space, -=)      \
  MTLSIM_PACKED(space, *=)      \
  MTLSIM_PACKED(space, /=)
MTLSIM_PACKED_IN(1)
MTLSIM_PACKED_IN(2)
MTLSIM_PACKED_IN(3)
#undef MTLSIM_PACKED_IN
#undef MTLSIM_PACKED
#endif
template <class T, int N>
constexpr auto operator-(packed_vec<T, N> a) {
  return -a.unpacked();
}
} // namespace metal
namespace mtlsim {
template <class T, int N>
inline constexpr bool is_packed<metal::packed_vec<T, N>> = true;
template <class T, int N>
struct VectorOf<metal::packed_vec<T, N>> : VectorOf<metal::vec<T, N>> {};
} // namespace mtlsim
#define MTLSIM_PACKED(T)                         \
  using packed_##T##2 = metal::packed_vec<T, 2>; \
  using packed_##T##3 = metal::packed_vec<T, 3>; \
  using packed_##T##4 = metal::packed_vec<T, 4>;
MTLSIM_PACKED(char)
MTLSIM_PACKED(uchar)
MTLSIM_PACKED(short)
MTLSIM_PACKED(ushort)
MTLSIM_PACKED(int)
MTLSIM_PACKED(uint)
MTLSIM_PACKED(long)
MTLSIM_PACKED(half)
MTLSIM_PACKED(float)
MTLSIM_PACKED(bfloat)
#undef MTLSIM_PACKED

namespace mtlsim {
// The types that functions of simdgroups and quads accept: numbers and vectors
// of them. Functions of simdgroups exclude 64 bits; for quads the specification
// excludes size_t but not ulong, which is the same type.
template <class T, class E = typename VectorOf<T>::element>
inline constexpr bool quad_type =
    metal::is_arithmetic_v<E> && !std::is_same_v<E, bool> && !is_packed<T>;
template <class T>
inline constexpr bool simd_type = quad_type<T> &&
    sizeof(typename VectorOf<T>::element) < 8;
} // namespace mtlsim

#define METAL_FUNC inline __attribute__((always_inline))
#define METAL_CONST const
#define MAXFLOAT 3.4028234663852886e38f
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.434294481903251827651f
#define M_LN2_F 0.693147180559945309417f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.785398163397448309616f
#define M_1_PI_F 0.318309886183790671538f
#define M_2_PI_F 0.636619772367581343076f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.707106781186547524401f
