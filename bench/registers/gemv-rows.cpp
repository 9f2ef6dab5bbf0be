// gemv, gemv_t and their versions for several rows, for a compiler that reports
// registers. gemv-rows.sh builds it with the kernels of vendor/mlx and
// patches/files.

typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long size_t;
typedef long int64_t;
typedef _Float16 half;
struct complex64_t {};
struct uint3 {
  uint x, y, z;
};

#define METAL_FUNC inline __attribute__((always_inline))
#define device __attribute__((address_space(1)))
#define thread
#define threadgroup __attribute__((address_space(3)))
#define LOCAL \
  static __attribute__((address_space(3))) __attribute__((loader_uninitialized))
#define constant const
#define MLX_MTL_PRAGMA_UNROLL _Pragma("unroll")
#define function_constant(i) maybe_unused
#define buffer(i) maybe_unused
#define threadgroup_position_in_grid maybe_unused
#define simdgroup_index_in_threadgroup maybe_unused
#define thread_index_in_simdgroup maybe_unused

template <typename T>
struct uniform {
  T value;
  operator T() const {
    return value;
  }
};
template <typename T>
constexpr uniform<T> make_uniform(T value) {
  return {value};
}
template <typename T>
constexpr uniform<T> operator/(uniform<T> a, uniform<T> b) {
  return {a.value / b.value};
}
template <typename T>
constexpr uniform<T> operator*(uniform<T> a, uniform<T> b) {
  return {a.value * b.value};
}
template <typename T>
constexpr uniform<T> operator-(uniform<T> a, uniform<T> b) {
  return {a.value - b.value};
}
template <typename T>
METAL_FUNC T min(T a, T b) {
  return b < a ? b : a;
}
METAL_FUNC int64_t
elem_to_loc(int64_t at, const int* shape, const int64_t* strides, int ndim) {
  int64_t found = 0;
  for (int i = ndim - 1; i >= 0 && at > 0; i--) {
    found += at % shape[i] * strides[i];
    at /= shape[i];
  }
  return found;
}
enum class mem_flags { mem_none, mem_threadgroup };
METAL_FUNC void threadgroup_barrier(mem_flags) {
  __builtin_amdgcn_s_barrier();
}
METAL_FUNC float simd_shuffle_down(float v, int distance) {
  return __builtin_bit_cast(
      float,
      __builtin_amdgcn_ds_bpermute(4 * distance, __builtin_bit_cast(int, v)));
}

#include "kernels.h"

#define POSITION                                       \
  const uint3 tid = {                                  \
      __builtin_amdgcn_workgroup_id_x(),               \
      __builtin_amdgcn_workgroup_id_y(),               \
      __builtin_amdgcn_workgroup_id_z()};              \
  const uint group = __builtin_amdgcn_workitem_id_y(); \
  const uint lane = __builtin_amdgcn_workitem_id_x();

#define ONE(name, type, kernel, ...)                                 \
  extern "C" __attribute__((amdgpu_kernel)) void name##_##type##_v1( \
      const device type* mat,                                        \
      const device type* x,                                          \
      const device type* bias,                                       \
      device type* out,                                              \
      int k,                                                         \
      int n,                                                         \
      int ld,                                                        \
      float alpha,                                                   \
      float beta,                                                    \
      int stride) {                                                  \
    POSITION                                                         \
    LOCAL float memory[1024];                                        \
    kernel<type, __VA_ARGS__, true>::run(                            \
        mat,                                                         \
        x,                                                           \
        bias,                                                        \
        out,                                                         \
        k,                                                           \
        n,                                                           \
        ld,                                                          \
        alpha,                                                       \
        beta,                                                        \
        stride,                                                      \
        memory,                                                      \
        tid,                                                         \
        tid,                                                         \
        group,                                                       \
        lane);                                                       \
  }

#define ROWS(name, type, V, kernel, ...)                               \
  extern "C" __attribute__((amdgpu_kernel)) void name##_##type##_v##V( \
      const device type* mat,                                          \
      const device type* x,                                            \
      const device type* bias,                                         \
      device type* out,                                                \
      int k,                                                           \
      int n,                                                           \
      int m,                                                           \
      int ld,                                                          \
      int64_t x_ld,                                                    \
      int ndim,                                                        \
      const int* shape,                                                \
      const int64_t* x_strides,                                        \
      const int64_t* mat_strides,                                      \
      const int64_t* bias_strides,                                     \
      int64_t bias_ld,                                                 \
      int bias_stride,                                                 \
      float alpha,                                                     \
      float beta) {                                                    \
    POSITION                                                           \
    kernel<type, __VA_ARGS__, V>(                                      \
        mat,                                                           \
        x,                                                             \
        bias,                                                          \
        out,                                                           \
        k,                                                             \
        n,                                                             \
        m,                                                             \
        ld,                                                            \
        x_ld,                                                          \
        ndim,                                                          \
        shape,                                                         \
        x_strides,                                                     \
        mat_strides,                                                   \
        bias_strides,                                                  \
        bias_ld,                                                       \
        bias_stride,                                                   \
        alpha,                                                         \
        beta,                                                          \
        tid,                                                           \
        group,                                                         \
        lane);                                                         \
  }

#define TILES(name, type, one, rows, ...) \
  ONE(name, type, one, __VA_ARGS__)       \
  ROWS(name, type, 2, rows, __VA_ARGS__)  \
  ROWS(name, type, 3, rows, __VA_ARGS__)  \
  ROWS(name, type, 4, rows, __VA_ARGS__)  \
  ROWS(name, type, 6, rows, __VA_ARGS__)  \
  ROWS(name, type, 8, rows, __VA_ARGS__)

#define TYPES(name, one, rows, ...)          \
  TILES(name, float, one, rows, __VA_ARGS__) \
  TILES(name, half, one, rows, __VA_ARGS__)

TYPES(gemv_bn8, GEMVKernel, gemv_rows, 1, 8, 1, 32, 4, 4)
TYPES(gemv_sm8, GEMVKernel, gemv_rows, 1, 1, 8, 4, 4, 4)
TYPES(gemv_bm4, GEMVKernel, gemv_rows, 4, 1, 1, 32, 4, 4)
TYPES(gemv_t_sm8, GEMVTKernel, gemv_t_rows, 1, 4, 8, 4, 4, 4)
TYPES(gemv_t_sm4, GEMVTKernel, gemv_t_rows, 1, 16, 4, 8, 4, 4)
