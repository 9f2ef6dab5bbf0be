// The streamed kernels, for a compiler that reports registers. streamed.sh
// builds it with the kernels of patches/files and their helpers of vendor/mlx.

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned int uint;
typedef unsigned short ushort;
typedef long int64_t;
typedef _Float16 half;
typedef _Float16 float16_t;
typedef __bf16 bfloat;
struct uint3 {
  uint x, y, z;
};

#define METAL_FUNC inline __attribute__((always_inline))
#define inline inline __attribute__((always_inline))
#define device __attribute__((address_space(1)))
#define threadgroup __attribute__((address_space(3)))
#define LOCAL __attribute__((loader_uninitialized)) static threadgroup
#define thread
#define constant const
#define MLX_MTL_CONST static constexpr const
#define STEEL_PRAGMA_UNROLL _Pragma("clang loop unroll(full)")

constexpr int SIMD_SIZE = 32;
template <class T, int n>
using vec = T __attribute__((ext_vector_type(n)));
typedef vec<float, 4> float4;

namespace metal {
template <typename T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
inline T clamp(T a, T low, T high) {
  return a < low ? low : a > high ? high : a;
}
template <typename T>
inline T select(T a, T b, bool c) {
  return c ? b : a;
}
template <typename To, typename From>
inline To as_type(From from) {
  return __builtin_bit_cast(To, from);
}
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

// For code that quantizes, which is parsed but not compiled.
bool isnan(float);
bool isfinite(float);
bool signbit(float);
float abs(float);
float round(float);
float log2(float);
} // namespace metal
using namespace metal;

enum class mem_flags { mem_threadgroup };
inline void threadgroup_barrier(mem_flags) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
static inline float simd_sum(float v) {
  for (int distance = 16; distance; distance >>= 1) {
    v += __builtin_bit_cast(
        float,
        __builtin_amdgcn_ds_bpermute(4 * distance, __builtin_bit_cast(int, v)));
  }
  return v;
}

// For batched products, which are parsed but not compiled.
template <typename T>
void adjust_matrix_offsets(...);
void adjust_matrix_offsets(...);

#if FP
// fp4.h and fp8.h decode to it through a half.
struct bfloat16_t {
  uint16_t bits;
  explicit bfloat16_t(half value) : bits(__builtin_bit_cast(uint16_t, value)) {}
};
#endif

#include "helpers.h"

// Metal constructs a vector like a function call.
#define float4(a, b, c, d) \
  (float4) {               \
    a, b, c, d             \
  }
#include "streamed.h"
#undef float4

// The number of a simdgroup is the same in all its lanes. Metal's compiler
// knows that; this compiler needs readfirstlane.
#define POSITION                                                             \
  (uint3{                                                                    \
      __builtin_amdgcn_workgroup_id_x(),                                     \
      __builtin_amdgcn_workgroup_id_y(),                                     \
      0}),                                                                   \
      __builtin_amdgcn_readfirstlane(__builtin_amdgcn_workitem_id_x() >> 5), \
      __builtin_amdgcn_workitem_id_x() & 31
#define NO_BATCH 0, nullptr, nullptr, 0, nullptr, nullptr, nullptr

#define ENTRY(name, T, Scale, Third, function, ...)                         \
  extern "C" __attribute__((amdgpu_kernel)) void name(                      \
      const device uint32_t* w,                                             \
      const device Scale* scales,                                           \
      const device Third* third,                                            \
      const device T* x,                                                    \
      device T* y,                                                          \
      int K,                                                                \
      int N,                                                                \
      int M,                                                                \
      int tile_rows) {                                                      \
    function(                                                               \
        w, scales, third, x, y, K, N, M, tile_rows, __VA_ARGS__, POSITION); \
  }
#if FP
#define KERNEL(name, T, group_size, bits, V, rows, sharing, fast, global) \
  ENTRY(                                                                  \
      name,                                                               \
      T,                                                                  \
      uint8_t,                                                            \
      float,                                                              \
      (fp_qmv_streamed<                                                   \
          T,                                                              \
          group_size,                                                     \
          bits,                                                           \
          V,                                                              \
          rows,                                                           \
          sharing,                                                        \
          fast,                                                           \
          false,                                                          \
          global>),                                                       \
      NO_BATCH)
#else
#define KERNEL(name, T, group_size, bits, V, rows, sharing, fast, global) \
  ENTRY(                                                                  \
      name,                                                               \
      T,                                                                  \
      T,                                                                  \
      T,                                                                  \
      (affine_qmv_streamed<                                               \
          T,                                                              \
          group_size,                                                     \
          bits,                                                           \
          V,                                                              \
          rows,                                                           \
          sharing,                                                        \
          fast,                                                           \
          false>),                                                        \
      NO_BATCH,                                                           \
      nullptr)
#endif
#include "kernels.h"
