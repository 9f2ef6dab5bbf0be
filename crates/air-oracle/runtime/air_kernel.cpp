// Wraps one Apple-compiled kernel in the simulator's kernel interface, and
// provides the `air.*` functions with which lanes exchange values. Compiled
// once per kernel, with the generated AIR_KERNEL header next to it.
#include "kernel_abi.h"
#include "lane_abi.h"
#include "mtlsim/lane.h"

namespace {

enum class Kind : uint32_t {
  kBuffer,
  kThreadgroupPositionInGrid,
  kSimdgroupIndexInThreadgroup,
  kThreadIndexInSimdgroup,
  kQuadgroupIndexInThreadgroup,
  kThreadIndexInQuadgroup,
};

// The position of one of the kernel's parameters in the block that
// `oracle.lane` unpacks.
struct Parameter {
  Kind kind;
  uint32_t word; // first 32-bit word in the block
  uint32_t index; // buffer index
};

} // namespace

// Defines kName, kSource, kArguments (mtlsim_argument), kParameters
// (Parameter), kWords.
#include AIR_KERNEL

// The function at the end of the kernel's module that calls the kernel with the
// block's values.
extern "C" void oracle_lane(const uint32_t* block) asm("oracle.lane");

namespace {

constexpr uint32_t kArgumentCount = sizeof kArguments / sizeof *kArguments;

struct Call {
  const mtlsim_dispatch* dispatch;
  const uint32_t* position;
};

void run_lane(void* argument, uint32_t lane) {
  const Call& call = *static_cast<Call*>(argument);
  alignas(16) uint32_t block[kWords];
  for (const Parameter& p : kParameters) {
    uint32_t* word = block + p.word;
    switch (p.kind) {
      case Kind::kBuffer:
        __builtin_memcpy(word, &call.dispatch->buffer[p.index], sizeof(void*));
        break;
      case Kind::kThreadgroupPositionInGrid:
        for (int i = 0; i < 3; ++i)
          word[i] = call.position[i];
        break;
      case Kind::kSimdgroupIndexInThreadgroup:
        *word = lane / 32;
        break;
      case Kind::kThreadIndexInSimdgroup:
        *word = lane % 32;
        break;
      case Kind::kQuadgroupIndexInThreadgroup:
        *word = lane / 4;
        break;
      case Kind::kThreadIndexInQuadgroup:
        *word = lane % 4;
        break;
    }
  }
  oracle_lane(block);
}

int run(
    const mtlsim_dispatch* dispatch,
    const uint32_t position[3],
    mtlsim_engine* engine,
    mtlsim_report* report) {
  mtlsim::here = reinterpret_cast<mtlsim_lanes*>(engine);
  Call call{dispatch, position};
  const uint32_t* group = dispatch->threads_per_threadgroup;
  return mtlsim::here->run(
      mtlsim::here,
      dispatch,
      kArguments,
      kArgumentCount,
      group[0] * group[1] * group[2],
      0,
      run_lane,
      &call,
      report);
}

uint32_t no_threadgroup_memory() {
  return 0;
}

// The same tree as the engine's option (engine.h), written separately so that a
// mistake in either shows.
float sum(const float (&value)[32], uint32_t order) {
  float v[32];
  for (int i = 0; i < 32; ++i)
    v[i] = value[i];
  if (order == 2) {
    float s = v[0];
    for (int i = 1; i < 32; ++i)
      s += v[i];
    return s;
  }
  // A butterfly gives every lane the same bits, because addition commutes; lane
  // 0's tree is enough.
  for (uint32_t i = 0; i < 5; ++i) {
    uint32_t step = order == 1 ? 1u << i : 16u >> i;
    float w[32];
    for (uint32_t lane = 0; lane < 32; ++lane)
      w[lane] = v[lane] + v[lane ^ step];
    for (uint32_t lane = 0; lane < 32; ++lane)
      v[lane] = w[lane];
  }
  return v[0];
}

} // namespace

// In MSL, simdgroups take part as a whole in these kernels: every lane of the
// group is active.
extern "C" float air_simd_sum(float x) asm("air.simd_sum.f32");
extern "C" float air_simd_sum(float x) {
  mtlsim::Exchange<float, MTLSIM_SIMD> all(
      x, mtlsim::Site::of("air.simd_sum.f32"));
  float value[32];
  for (uint32_t i = 0; i < 32; ++i)
    value[i] = all.at(i);
  return sum(value, mtlsim::here->reduction);
}

extern "C" float air_quad_sum(float x) asm("air.quad_sum.f32");
extern "C" float air_quad_sum(float x) {
  mtlsim::Exchange<float, MTLSIM_QUAD> all(
      x, mtlsim::Site::of("air.quad_sum.f32"));
  return (all.at(0) + all.at(2)) + (all.at(1) + all.at(3));
}

// The caller passes 16 bits; the bits above them are undefined.
extern "C" float air_simd_shuffle_down(float x, uint32_t delta) asm(
    "air.simd_shuffle_down.f32");
extern "C" float air_simd_shuffle_down(float x, uint32_t delta) {
  mtlsim::Exchange<float, MTLSIM_SIMD> all(
      x, mtlsim::Site::of("air.simd_shuffle_down.f32"));
  uint32_t from = all.lane() + (delta & 0xffff);
  return all.has(from) ? all.at(from) : x;
}

// LLVM calls this to round to bfloat; older runtime libraries lack it.
extern "C" __bf16 __truncsfbf2(float x) {
  uint32_t bits = __builtin_bit_cast(uint32_t, x);
  uint32_t rounded =
      bits + 0x7fff + (bits >> 16 & 1); // to nearest, ties to even
  if ((bits & 0x7fffffff) > 0x7f800000)
    rounded = bits | 0x400000;
  return __builtin_bit_cast(__bf16, uint16_t(rounded >> 16));
}

extern "C"
    [[gnu::visibility("default")]] const mtlsim_kernel mtlsim_kernel_entry = {
        MTLSIM_ABI_VERSION,
        MTLSIM_PLAIN,
        kName,
        kSource,
        kArgumentCount,
        kArguments,
        0,
        nullptr,
        MTLSIM_MAX_THREADS,
        no_threadgroup_memory,
        run,
};
