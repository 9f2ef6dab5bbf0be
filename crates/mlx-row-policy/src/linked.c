// Calls MLX's functions in the libmlx that the program links, through weak
// references, and reports if they are missing.
//
// ELF: a weak reference is null if nothing in the program defines it. It does
// not make the linker include an object of a static library, so a function can
// be missing although its library is linked (Error::LeftOut).
//
// Mach-O: it does include objects of a static library, and a dynamic library
// may lack the function at load time. A function that nothing defines at link
// time is a link error unless -Wl,-U,_NAME permits it. A weak definition of our
// own would always permit it, but would also replace MLX's for other callers.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mlx/row_policy.h"

// The status if the program lacks a function, and the first such function that
// was called.
enum { ABSENT = -2 };
static _Thread_local const char* absent = NULL;

static void note_absent(const char* name) {
  absent = absent ? absent : name;
}

#define OPTIONAL(type, otherwise, name, parameters, arguments)      \
  extern type name parameters __attribute__((weak));                \
  static type opt_##name parameters {                               \
    return name ? name arguments : (note_absent(#name), otherwise); \
  }

OPTIONAL(const char*, "", mlx_row_last_error, (void), ())
OPTIONAL(int, ABSENT, mlx_row_process_policy, (mlx_row_policy * p), (p))
OPTIONAL(int32_t, ABSENT, mlx_row_has_kernels, (void), ())
OPTIONAL(
    int,
    ABSENT,
    mlx_row_set_stream_policy,
    (int32_t index, mlx_row_policy p),
    (index, p))
OPTIONAL(
    int,
    ABSENT,
    mlx_row_new_stream,
    (mlx_row_policy p, int32_t* index),
    (p, index))
OPTIONAL(
    int,
    ABSENT,
    mlx_row_stream_policy,
    (int32_t index, mlx_row_policy* p),
    (index, p))
OPTIONAL(
    int,
    ABSENT,
    mlx_row_plan_product,
    (const mlx_row_problem* problem, mlx_row_plan* plan),
    (problem, plan))
OPTIONAL(
    size_t,
    0,
    mlx_row_counts,
    (uint64_t * counts, size_t capacity),
    (counts, capacity))
OPTIONAL(void, (void)0, mlx_row_reset_counts, (void), ())

// The functions called from Rust (sys.rs).
#define NAME_(version, name) mlx_row_policy_##version##_##name
#define NAME(version, name) NAME_(version, name)
#define EXPORTED(name) NAME(CRATE_VERSION, name)

// The first function since the last query that was called although the program
// lacks it, or null.
const char* EXPORTED(take_absent)(void) {
  const char* name = absent;
  absent = NULL;
  return name;
}

const char* EXPORTED(last_error)(void) {
  return opt_mlx_row_last_error();
}

int EXPORTED(process_policy)(int32_t policy[2]) {
  mlx_row_policy p = {0, 0};
  const int status = opt_mlx_row_process_policy(&p);
  policy[0] = p.kind;
  policy[1] = p.rows;
  return status;
}

int EXPORTED(has_kernels)(void) {
  return opt_mlx_row_has_kernels();
}

int EXPORTED(set_stream_policy)(int32_t index, int32_t kind, int32_t rows) {
  return opt_mlx_row_set_stream_policy(index, (mlx_row_policy){kind, rows});
}

int EXPORTED(new_stream)(int32_t kind, int32_t rows, int32_t* index) {
  return opt_mlx_row_new_stream((mlx_row_policy){kind, rows}, index);
}

int EXPORTED(stream_policy)(int32_t index, int32_t policy[2]) {
  mlx_row_policy p = {0, 0};
  const int status = opt_mlx_row_stream_policy(index, &p);
  policy[0] = p.kind;
  policy[1] = p.rows;
  return status;
}

// problem: mode, dtype, bits, group size, m, n, k, stream. plan: kind and rows
// of the policy, path, fast, tile, identical.
int EXPORTED(plan_product)(const int32_t problem[8], int32_t plan[6]) {
  // A later libmlx may have more fields after the known ones.
  union {
    mlx_row_problem problem;
    int32_t room[64];
  } in = {.room = {0}};
  union {
    mlx_row_plan plan;
    int32_t room[64];
  } out = {.room = {0}};
  in.problem = (mlx_row_problem){
      .op = MLX_ROW_OP_QUANTIZED_MATMUL,
      .mode = problem[0],
      .dtype = problem[1],
      .bits = problem[2],
      .group_size = problem[3],
      .transpose = 1,
      .m = problem[4],
      .n = problem[5],
      .k = problem[6],
      .batch = 1,
      .experts = 1,
      .stream = problem[7],
  };
  const int status = opt_mlx_row_plan_product(&in.problem, &out.plan);
  plan[0] = out.plan.policy.kind;
  plan[1] = out.plan.policy.rows;
  plan[2] = out.plan.path;
  plan[3] = out.plan.fast;
  plan[4] = out.plan.tile;
  plan[5] = out.plan.identical;
  return status;
}

size_t EXPORTED(counts)(uint64_t* counts, size_t capacity) {
  return opt_mlx_row_counts(counts, capacity);
}

void EXPORTED(reset_counts)(void) {
  opt_mlx_row_reset_counts();
}

#ifdef WITH_MLX_C

// The part of mlx-c that a scope needs (mlx/c/{device,stream,vector}.h). An
// empty handle has a null context.
typedef struct mlx_device_ {
  void* ctx;
} mlx_device;
typedef struct mlx_stream_ {
  void* ctx;
} mlx_stream;
typedef struct mlx_vector_stream_ {
  void* ctx;
} mlx_vector_stream;

#define OF_MLX_C(X)                                                       \
  X(int, mlx_get_streams, (mlx_vector_stream*))                           \
  X(size_t, mlx_vector_stream_size, (mlx_vector_stream))                  \
  X(int, mlx_vector_stream_get, (mlx_stream*, mlx_vector_stream, size_t)) \
  X(int, mlx_vector_stream_free, (mlx_vector_stream))                     \
  X(int, mlx_stream_free, (mlx_stream))                                   \
  X(int, mlx_stream_get_index, (int*, mlx_stream))                        \
  X(int, mlx_stream_get_device, (mlx_device*, mlx_stream))                \
  X(int, mlx_get_default_stream, (mlx_stream*, mlx_device))               \
  X(int, mlx_set_default_stream, (mlx_stream))                            \
  X(int, mlx_get_default_device, (mlx_device*))                           \
  X(int, mlx_device_free, (mlx_device))                                   \
  X(bool, mlx_device_equal, (mlx_device, mlx_device))
#define DECLARE(type, name, parameters) \
  extern type name parameters __attribute__((weak));
#define NOTE_ABSENT(type, name, parameters) \
  if (!name) {                              \
    note_absent(#name);                     \
  }
OF_MLX_C(DECLARE)

// The stream with that index among all that MLX has made; empty if there is
// none.
static int find_stream(int32_t index, mlx_stream* found) {
  mlx_vector_stream streams = {NULL};
  mlx_stream stream = {NULL};
  int status = mlx_get_streams(&streams);
  const size_t count = status == 0 ? mlx_vector_stream_size(streams) : 0;
  for (size_t i = 0; status == 0 && !found->ctx && i < count; i++) {
    int other = -1;
    status = mlx_vector_stream_get(&stream, streams, i);
    if (status == 0) {
      status = mlx_stream_get_index(&other, stream);
    }
    if (status == 0 && other == index) {
      *found = stream;
      stream.ctx = NULL;
    }
  }
  mlx_stream_free(stream);
  mlx_vector_stream_free(streams);
  return status;
}

enum { ENTERED = 0, OTHER_DEVICE = 1, NOT_FOUND = 2, FAILED = 3 };

// Makes a stream MLX's default for its device on this thread. The previous one
// is stored in `previous`, for `leave`.
int EXPORTED(enter)(int32_t index, void** previous) {
  OF_MLX_C(NOTE_ABSENT)
  if (absent) {
    return FAILED;
  }
  mlx_stream stream = {NULL};
  mlx_stream former = {NULL};
  mlx_device device = {NULL};
  mlx_device preferred = {NULL};
  int status = find_stream(index, &stream);
  int outcome = status != 0 ? FAILED : stream.ctx ? ENTERED : NOT_FOUND;
  if (outcome == ENTERED) {
    status = mlx_stream_get_device(&device, stream);
    status = status ? status : mlx_get_default_device(&preferred);
    status = status ? status : mlx_get_default_stream(&former, device);
    outcome = status != 0                     ? FAILED
        : mlx_device_equal(device, preferred) ? ENTERED
                                              : OTHER_DEVICE;
  }
  if (outcome == ENTERED && mlx_set_default_stream(stream) != 0) {
    outcome = FAILED;
  }
  mlx_device_free(device);
  mlx_device_free(preferred);
  mlx_stream_free(stream);
  if (outcome == ENTERED) {
    *previous = former.ctx;
  } else {
    mlx_stream_free(former);
  }
  return outcome;
}

// Ends what `enter` began.
void EXPORTED(leave)(void* previous) {
  const mlx_stream former = {previous};
  mlx_set_default_stream(former);
  mlx_stream_free(former);
}

#endif
