// Kernels for the runtime's tests, written directly against the kernel
// interface, so that these tests need no kernel compiler. Each is compiled into
// its own shared object; TEST_KERNEL selects it.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>

#include "lane_abi.h"

namespace {

// Unbound arguments point to the engine's inaccessible memory.
struct Lane {
  const mtlsim_dispatch& d;
  const mtlsim_lanes& lanes;
  uint32_t i; // thread position in grid

  template <class T>
  T* buffer(int index) const {
    auto* missing = lanes.unbound + index * mtlsim_lanes::kUnboundBytes;
    auto* bound = d.buffer[index];
    return static_cast<T*>(bound ? bound : static_cast<void*>(missing));
  }
  bool constant(uint32_t index) const {
    for (uint32_t c = 0; c < d.constant_count; c++) {
      if (d.constants[c].index == index) {
        return d.constants[c].raw != 0;
      }
    }
    return false;
  }
};

constexpr mtlsim_argument device(const char* name, uint32_t index, bool out) {
  return {name, index, MTLSIM_DEVICE, out ? 0u : 1u, sizeof(float), 0, -1};
}

constexpr mtlsim_argument constant(const char* name, uint32_t index) {
  return {name, index, MTLSIM_CONSTANT, 1, sizeof(float), 1, -1};
}

constexpr mtlsim_argument gated(const char* name, uint32_t index, int by) {
  return {name, index, MTLSIM_DEVICE, 1, sizeof(float), 0, by};
}

constexpr mtlsim_argument scratch(const char* name, uint32_t index) {
  return {name, index, MTLSIM_THREADGROUP, 0, sizeof(float), 0, -1};
}

// out[i] = value; the value is read through a reference, as in a kernel
struct fill {
  static constexpr mtlsim_argument arguments[] = {
      device("out", 0, true),
      constant("value", 1)};
  static void lane(const Lane& l) {
    l.buffer<float>(0)[l.i] = *l.buffer<volatile float>(1);
  }
};

// out[i] = 1 in 16 bits
struct fill_short {
  static constexpr mtlsim_argument arguments[] = {
      {"out", 0, MTLSIM_DEVICE, 0, sizeof(uint16_t), 0, -1}};
  static void lane(const Lane& l) {
    l.buffer<uint16_t>(0)[l.i] = 1;
  }
};

// fill, but skips element 37
struct forget : fill {
  static void lane(const Lane& l) {
    if (l.i != 37) {
      fill::lane(l);
    }
  }
};

// out[i] = in[i] + 1
struct add_one {
  static constexpr mtlsim_argument arguments[] = {
      device("in", 0, false),
      device("out", 1, true)};
  static void lane(const Lane& l) {
    l.buffer<float>(1)[l.i] = l.buffer<float>(0)[l.i] + 1;
  }
};

// found[i] = whether nobody wrote out[i]; then out[i] = 1
struct peek {
  static constexpr mtlsim_argument arguments[] = {
      device("out", 0, true),
      device("found", 1, true)};
  static void lane(const Lane& l) {
    const bool none =
        l.d.unwritten(l.d.owner, 0, l.i * sizeof(float), sizeof(float));
    l.buffer<float>(1)[l.i] = none ? 1 : 0;
    l.buffer<float>(0)[l.i] = 1;
  }
};

// add_one, but reads one element past the end
struct read_past : add_one {
  static void lane(const Lane& l) {
    l.buffer<float>(1)[l.i] = l.buffer<volatile float>(0)[l.i + 4];
  }
};

// fill, but writes far past the end
struct write_past : fill {
  static void lane(const Lane& l) {
    l.buffer<volatile float>(0)[l.i + (1 << 16)] = 1;
  }
};

// fill, and the three bytes past the end, which no page protects
struct write_slack : fill {
  static void lane(const Lane& l) {
    fill::lane(l);
    if (l.i == 0) {
      auto* end = l.buffer<volatile unsigned char>(0) + l.d.buffer_length[0];
      end[2] = 1;
    }
  }
};

// out[i] = in[i] where function constant 3 switches `in` on, else 7
struct optional_input {
  static constexpr mtlsim_argument arguments[] = {
      gated("in", 0, 3),
      device("out", 1, true)};
  static void lane(const Lane& l) {
    l.buffer<float>(1)[l.i] =
        l.constant(3) ? l.buffer<volatile float>(0)[l.i] : 7;
  }
};

// out[i] = 0, with a threadgroup array of the caller's
struct scratchpad {
  static constexpr mtlsim_argument arguments[] = {
      device("out", 0, true),
      scratch("memory", 0)};
  static void lane(const Lane& l) {
    l.buffer<float>(0)[l.i] = 0;
  }
};

// spins until *flag is at least *value
struct spin {
  static constexpr mtlsim_argument arguments[] = {
      device("flag", 0, false),
      constant("value", 1)};
  static void lane(const Lane& l) {
    while (*l.buffer<volatile float>(0) < *l.buffer<float>(1)) {
      std::this_thread::yield();
    }
  }
};

// out[i] = the least integer / -1, or 1 / 0 in thread 5
struct divide {
  static constexpr mtlsim_argument arguments[] = {
      device("out", 0, true),
      constant("value", 1)};
  static void lane(const Lane& l) {
    const bool by_zero = *l.buffer<volatile float>(1) == 0;
    volatile int a = by_zero ? 1 : INT32_MIN;
    volatile int b = l.i != 5 ? 1 : by_zero ? 0 : -1;
    l.buffer<int>(0)[l.i] = a / b;
  }
};

// ends with the code that a compiler emits for unreachable code
struct trapped : fill {
  static void lane(const Lane& l) {
    fill::lane(l);
    if (l.i == 5) {
      __builtin_trap();
    }
  }
};

// thread 5 never ends
struct endless : fill {
  static void lane(const Lane& l) {
    fill::lane(l);
    for (volatile bool on = l.i == 5; on;) {
    }
  }
};

// fails in the code around the lanes: a store nowhere, or no end
struct astray : fill {
  static void before(const mtlsim_dispatch& d) {
    static volatile float* volatile nowhere = nullptr;
    if (*static_cast<const float*>(d.buffer[1]) == 0) {
      *nowhere = 1;
    }
    for (volatile bool on = *static_cast<const float*>(d.buffer[1]) == 1; on;) {
    }
  }
};

struct huge : fill {};
struct writable : fill {};

using Kernel = TEST_KERNEL;

template <class K>
void before(const mtlsim_dispatch& d) {
  if constexpr (requires { K::before(d); }) {
    K::before(d);
  }
}

int run(
    const mtlsim_dispatch* dispatch,
    const uint32_t position[3],
    mtlsim_engine* engine,
    mtlsim_report* report) {
  struct Call {
    const mtlsim_dispatch& dispatch;
    const mtlsim_lanes& lanes;
    uint32_t first;
  };
  auto* lanes = reinterpret_cast<mtlsim_lanes*>(engine);
  auto group = dispatch->threads_per_threadgroup[0];
  Call call{*dispatch, *lanes, position[0] * group};
  auto count = std::min(group, dispatch->threads[0] - call.first);
  before<Kernel>(*dispatch);
  auto fault = lanes->run(
      lanes,
      dispatch,
      Kernel::arguments,
      std::size(Kernel::arguments),
      count,
      1024,
      [](void* argument, uint32_t lane) {
        auto& call = *static_cast<Call*>(argument);
        Kernel::lane(Lane{call.dispatch, call.lanes, call.first + lane});
      },
      &call,
      report);
  if (fault) {
    std::copy_n(position, 3, report->threadgroup);
  }
  return fault;
}

uint32_t static_threadgroup_bytes() {
  return std::strcmp(TEST_KERNEL_NAME, "huge") == 0 ? 40000 : 1024;
}

} // namespace

extern "C" __attribute__((visibility("default")))
const mtlsim_kernel mtlsim_kernel_entry;
const mtlsim_kernel mtlsim_kernel_entry = {
    MTLSIM_ABI_VERSION,
    MTLSIM_PLAIN,
    TEST_KERNEL_NAME,
    "tests/runtime/kernels/kernels.cpp",
    std::size(Kernel::arguments),
    Kernel::arguments,
    0,
    nullptr,
    MTLSIM_MAX_THREADS,
    static_threadgroup_bytes,
    run,
};
