// The Metal Shading Language for an NVIDIA GPU: the declarations with which
// NVRTC or clang's CUDA front end compiles quantized.h, fp_quantized.h and the
// streamed kernels unchanged. A warp has 32 lanes, like a simdgroup. Kernels
// with threadgroup memory compile but must not be run unchanged: `threadgroup`
// has no meaning here. bench/nvidia declares the threadgroup memory of the
// streamed kernels for CUDA.
//
// Metal functions have no execution space. NVRTC takes them as device code
// under -default-device; clang does so after its force_cuda_host_device pragma.
#pragma once

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using size_t = decltype(sizeof(0));

#ifndef __CUDACC_RTC__
// NVRTC declares these; clang is run without a CUDA installation.
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
struct short2 {
  short x, y;
};
struct uint2 {
  uint x, y;
};
struct uint3 {
  uint x, y, z;
};
struct ulong2 {
  ulong x, y;
};
struct ulong3 {
  ulong x, y, z;
};
#endif

namespace mtlcuda {

// Storage, conversions and sum of a 16-bit float. As in Metal, it is converted
// to float implicitly if an expression contains a float, and never the other
// way round. The sum of two is computed in float and rounded once, which equals
// the correctly rounded sum. A product with a power of two, used by fp4.h and
// fp8.h to decode, is a product of halves, and either way rounded once.
struct HalfFormat {
  static float widen(uint16_t bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
  static uint16_t narrow(float x) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
  }
  // `power` is a power of two and a normal half.
  static uint16_t scale(uint16_t bits, double power) {
    const uint64_t exponent = __builtin_bit_cast(uint64_t, power) >> 52;
    const uint16_t factor = uint16_t((exponent - 1023 + 15) << 10);
    asm("mul.rn.f16 %0, %0, %1;" : "+h"(bits) : "h"(factor));
    return bits;
  }
};

struct BfloatFormat {
  static float widen(uint16_t bits) {
    return __builtin_bit_cast(float, uint32_t(bits) << 16);
  }
  static uint16_t narrow(float x) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
  }
};

template <class Format>
struct Float16 {
  uint16_t bits;

  Float16() = default;
  // From a number, or from the other format. A class that converts to both
  // float and this type, such as fp8_e4m3, is converted to this type.
  template <class From>
  requires(!__is_class(From)) explicit Float16(From x)
      : bits(Format::narrow(float(x))) {}
  template <class Other>
  explicit Float16(Float16<Other> x) : bits(Format::narrow(float(x))) {}
  operator float() const {
    return Format::widen(bits);
  }
  friend Float16 operator+(Float16 a, Float16 b) {
    return Float16(float(a) + float(b));
  }
  friend Float16 operator-(Float16 a) {
    a.bits ^= 0x8000;
    return a;
  }
  // For the literals of fp4.h and fp8.h, which have no suffix. In Metal they
  // are floats; here a float must match only the product of floats.
  template <class Double>
  requires(sizeof(Double) == sizeof(double)) friend Float16 operator*(
      Float16 a,
      Double b) {
    a.bits = Format::scale(a.bits, b);
    return a;
  }
  template <class Double>
  Float16& operator*=(Double b) {
    return *this = *this * b;
  }
};

#ifdef __CUDACC_RTC__
inline uint3 threadgroup_position_in_grid() {
  return {blockIdx.x, blockIdx.y, blockIdx.z};
}
// For threadgroups that are 32 threads wide.
inline uint thread_index_in_simdgroup() {
  return threadIdx.x;
}
inline uint simdgroup_index_in_threadgroup() {
  return threadIdx.y;
}
#else
inline uint3 threadgroup_position_in_grid() {
  return {
      uint(__nvvm_read_ptx_sreg_ctaid_x()),
      uint(__nvvm_read_ptx_sreg_ctaid_y()),
      uint(__nvvm_read_ptx_sreg_ctaid_z())};
}
inline uint thread_index_in_simdgroup() {
  return __nvvm_read_ptx_sreg_tid_x();
}
inline uint simdgroup_index_in_threadgroup() {
  return __nvvm_read_ptx_sreg_tid_y();
}
#endif

// The value of the lane whose number differs in the bits of `mask`.
inline float exchange(float x, uint mask) {
  asm volatile("shfl.sync.bfly.b32 %0, %0, %1, 0x1f, 0xffffffff;"
               : "+f"(x)
               : "r"(mask));
  return x;
}

} // namespace mtlcuda

using half = mtlcuda::Float16<mtlcuda::HalfFormat>;
using bfloat = mtlcuda::Float16<mtlcuda::BfloatFormat>;
using float16_t = half;
using bfloat16_t = bfloat;

namespace metal {

template <class T, int N>
struct alignas(N * sizeof(T)) vec {
  T elements[N];
  vec() = default;
  vec(T a, T b, T c, T d) : elements{a, b, c, d} {}
  template <class U>
  explicit vec(vec<U, N> other) { // by value: it is loaded as a whole
    for (int i = 0; i < N; i++) {
      elements[i] = T(other[i]);
    }
  }
  T& operator[](int i) {
    return elements[i];
  }
  const T& operator[](int i) const {
    return elements[i];
  }
};

template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
constexpr T clamp(T x, T low, T high) {
  return metal::min(metal::max(x, low), high);
}
template <class T>
constexpr T select(T a, T b, bool c) {
  return c ? b : a;
}

template <class To, class From>
constexpr To as_type(From x) {
  return __builtin_bit_cast(To, x);
}

// Metal does not specify the order of these sums.
inline float dot(const vec<float, 4>& a, const vec<float, 4>& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
}

inline float simd_shuffle_xor(float x, ushort mask) {
  return mtlcuda::exchange(x, mask);
}
inline float simd_shuffle_down(float x, ushort delta) {
  asm volatile("shfl.sync.down.b32 %0, %0, %1, 0x1f, 0xffffffff;"
               : "+f"(x)
               : "r"(uint(delta)));
  return x;
}
// The butterfly that metal-sim assumes for simd_sum; Apple does not document
// its order.
inline float simd_sum(float x) {
  for (uint step = 16; step; step /= 2) {
    x += mtlcuda::exchange(x, step);
  }
  return x;
}
inline float quad_sum(float x) {
  for (uint step = 2; step; step /= 2) {
    x += mtlcuda::exchange(x, step);
  }
  return x;
}

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
inline void threadgroup_barrier(mem_flags) {
  asm volatile("bar.sync 0;" ::: "memory");
}

} // namespace metal

// NVRTC has its own float4.
#define float4 metal::vec<float, 4>
using metal::as_type;

#define STEEL_PRAGMA_UNROLL _Pragma("unroll")
#define METAL_FUNC inline __attribute__((always_inline))
#define device
#define constant
#define thread
#define threadgroup

// Other names in those headers, declared only: kernels for matrices, batches
// and quantizing are parsed but not built.
namespace metal {
template <bool condition, class T, class U>
struct conditional {
  using type = T;
};
template <class T, class U>
struct conditional<false, T, U> {
  using type = U;
};
template <bool condition, class T, class U>
using conditional_t = typename conditional<condition, T, U>::type;

float simd_min(float);
float simd_max(float);
template <class T>
T simd_shuffle_down(T, ushort);
float abs(float);
float round(float);
float log2(float);
bool isnan(float);
bool isfinite(float);
bool signbit(float);
} // namespace metal

template <bool condition, class T, class U>
using ConditionalType = metal::conditional<condition, T, U>;
template <class T>
struct Limits;
int64_t elem_to_loc(uint, const int*, const int64_t*, int);
ulong2
elem_to_loc_broadcast(uint, const int*, const int64_t*, const int64_t*, int);
ulong3 elem_to_loc_broadcast(
    uint,
    const int*,
    const int64_t*,
    const int64_t*,
    const int64_t*,
    int);

namespace mlx::steel {
template <class T, class U, int, int, int, int, int, bool, bool, int, int>
struct BlockMMA;
template <class T, int, int, int, int, int, int = 1, int = 1>
struct BlockLoader;
} // namespace mlx::steel
