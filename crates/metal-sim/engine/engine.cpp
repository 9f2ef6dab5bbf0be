#include "engine.h"

#include "context.h"
#include "lane_abi.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>

// Lanes run on many stacks of one thread. Race detection follows one stack per
// thread and cannot describe this; only one thread uses an engine.
#if defined(__clang__)
#define MTLSIM_UNTRACKED __attribute__((disable_sanitizer_instrumentation))
#elif defined(__SANITIZE_THREAD__)
#define MTLSIM_UNTRACKED __attribute__((no_sanitize_thread))
#else
#define MTLSIM_UNTRACKED
#endif

namespace {

using mtlsim::Context;

constexpr uint32_t kSimdgroups = MTLSIM_MAX_THREADS / MTLSIM_SIMD_WIDTH;
constexpr uint32_t kQuads = MTLSIM_MAX_THREADS / 4;
constexpr uint32_t kDefaultStack = 256 * 1024;
constexpr uint32_t kDefaultThreadgroupLimit = 32768;
constexpr uint32_t kZeros = 1 << 20;

// One simdgroup, quad or threadgroup: the lanes still running, and those that
// have arrived.
struct Group {
  uint32_t live = 0;
  uint32_t arrived = 0;
  const mtlsim_site* site = nullptr; // of the first to arrive
  uint32_t first = 0;
  bool loose = false; // all lanes that have arrived are at MTLSIM_GROUP_LOOSE
};

bool same_site(const mtlsim_site& a, const mtlsim_site& b) {
  auto same_text = [](const char* x, const char* y) {
    return x == y || strcmp(x, y) == 0;
  };
  return a.line == b.line && a.column == b.column &&
      same_text(a.file, b.file) && same_text(a.call, b.call);
}

} // namespace

// The lanes' view comes first: kernels get it by casting the engine's pointer.
struct mtlsim_engine {
  mtlsim_lanes lanes{};
  mtlsim_engine_options options{};

  Context host;
  Context fiber[MTLSIM_MAX_THREADS];
  uint32_t fiber_of[MTLSIM_MAX_THREADS]; // lane -> fiber, once started
  uint32_t free_fibers[MTLSIM_MAX_THREADS];
  uint32_t free_count = 0;

  uint32_t simdgroups = 0;
  uint32_t runnable_groups = 0; // bit per simdgroup with a bit in todo or ready
  uint32_t todo[kSimdgroups]; // not started
  uint32_t ready[kSimdgroups]; // started, may continue
  uint32_t waiting_simd[kSimdgroups]; // at a simd call
  uint32_t waiting_quad[kSimdgroups]; // at a quad call
  uint32_t waiting_group[kSimdgroups]; // at a threadgroup barrier
  const mtlsim_site* waits_at[MTLSIM_MAX_THREADS];
  Group simd[kSimdgroups], quad[kQuads], group;
  uint32_t live = 0;

  void (*body)(void*, uint32_t) = nullptr;
  void* argument = nullptr;
  mtlsim_report* report = nullptr;
  const mtlsim_dispatch* dispatch = nullptr;
  const mtlsim_argument* arguments = nullptr;
  uint32_t argument_count = 0;

  unsigned char* reserved = nullptr; // lane stacks, a guard page below each
  size_t reserved_bytes = 0;
  size_t stack_stride = 0;
  size_t page = 4096;
  uint32_t guarded = 0; // stacks whose guard page is in place
  unsigned char* local = nullptr; // threadgroup memory, ending at a guard page
  size_t local_bytes = 0;
  unsigned char* tracked = nullptr; // records for stacks and local memory
};

namespace {

// The size of a tracking engine's records: for the stacks, for threadgroup
// memory, and for the uses of threadgroup memory.
size_t tracked_bytes(const mtlsim_engine& e) {
  return 2 * e.reserved_bytes + (2 + 2 * sizeof(uint64_t)) * e.local_bytes;
}

constexpr uint32_t bit(uint32_t lane) {
  return 1u << (lane % MTLSIM_SIMD_WIDTH);
}

MTLSIM_UNTRACKED void
mark_ready(mtlsim_engine& e, uint32_t simdgroup, uint32_t mask) {
  e.ready[simdgroup] |= mask;
  if (mask)
    e.runnable_groups |= 1u << simdgroup;
}

// The first set bit at or after `start`, cyclically; backwards for the reverse
// schedule.
MTLSIM_UNTRACKED uint32_t
next_bit(uint32_t mask, uint32_t start, bool reverse) {
  if (reverse) {
    uint32_t below = start == 31 ? mask : mask & ((2u << start) - 1);
    return 31 - uint32_t(__builtin_clz(below ? below : mask));
  }
  uint32_t above = mask & ~((1u << start) - 1);
  return uint32_t(__builtin_ctz(above ? above : mask));
}

// The lane to run after the current one, or MTLSIM_MAX_THREADS if none can run.
// Lanes of the current simdgroup come first: the collective in progress waits
// for them.
MTLSIM_UNTRACKED uint32_t pick(mtlsim_engine& e) {
  if (!e.runnable_groups)
    return MTLSIM_MAX_THREADS;
  bool reverse = e.options.schedule == MTLSIM_SCHEDULE_REVERSE;
  uint32_t current = e.lanes.lane / MTLSIM_SIMD_WIDTH, step = reverse ? 31 : 1;
  uint32_t simdgroup = next_bit(e.runnable_groups, current, reverse);
  uint32_t start = simdgroup == current ? (e.lanes.lane % 32 + step) % 32
                                        : (reverse ? 31 : 0);
  uint32_t mask = e.todo[simdgroup] | e.ready[simdgroup];
  return simdgroup * MTLSIM_SIMD_WIDTH + next_bit(mask, start, reverse);
}

MTLSIM_UNTRACKED void release_quad(mtlsim_engine& e, uint32_t quad) {
  uint32_t simdgroup = quad / 8,
           mask = 0xfu << (quad % 8 * 4) & e.waiting_quad[simdgroup];
  e.waiting_quad[simdgroup] &= ~mask;
  mark_ready(e, simdgroup, mask);
  e.quad[quad].arrived = 0;
  e.lanes.quad_generation[quad]++;
}

MTLSIM_UNTRACKED void release_simd(mtlsim_engine& e, uint32_t simdgroup) {
  mark_ready(e, simdgroup, e.waiting_simd[simdgroup]);
  e.waiting_simd[simdgroup] = 0;
  e.simd[simdgroup].arrived = 0;
  e.lanes.simd_generation[simdgroup]++;
}

MTLSIM_UNTRACKED void release_group(mtlsim_engine& e) {
  for (uint32_t s = 0; s < e.simdgroups; ++s) {
    mark_ready(e, s, e.waiting_group[s]);
    e.waiting_group[s] = 0;
  }
  e.group.arrived = 0;
}

// Like pick(). If all lanes wait, those at a barrier that orders no memory
// continue: each simdgroup that still runs has lanes there, and a GPU requires
// no more.
MTLSIM_UNTRACKED uint32_t pick_or_release(mtlsim_engine& e) {
  uint32_t next = pick(e);
  if (next == MTLSIM_MAX_THREADS && e.group.arrived && e.group.loose) {
    release_group(e);
    next = pick(e);
  }
  return next;
}

MTLSIM_UNTRACKED void write_fault(
    mtlsim_engine& e,
    mtlsim_fault_code code,
    int32_t slot,
    uint64_t offset,
    const char* message) {
  auto& r = *e.report;
  if (r.fault)
    return;
  r.fault = code;
  r.lane = e.lanes.lane;
  r.slot = slot;
  r.offset = offset;
  snprintf(r.message, sizeof r.message, "%s", message);
}

// Abandons every lane. Kernels own nothing that needs unwinding.
[[noreturn]] MTLSIM_UNTRACKED void stop(mtlsim_engine& e, Context& self) {
  mtlsim::context_switch(self, e.host, true);
  __builtin_trap();
}

MTLSIM_UNTRACKED Context& current_context(mtlsim_engine& e) {
  return e.fiber[e.fiber_of[e.lanes.lane]];
}

[[noreturn]] MTLSIM_UNTRACKED void fail(
    mtlsim_lanes* lanes,
    mtlsim_fault_code code,
    int32_t slot,
    uint64_t offset,
    const char* message) {
  auto& e = *reinterpret_cast<mtlsim_engine*>(lanes);
  write_fault(e, code, slot, offset, message);
  stop(e, current_context(e));
}

[[noreturn]] MTLSIM_UNTRACKED void fail_divergent(
    mtlsim_engine& e,
    const mtlsim_site& a,
    uint32_t lane_a,
    const mtlsim_site& b,
    uint32_t lane_b,
    Context& self) {
  char text[512];
  snprintf(
      text,
      sizeof text,
      "divergent collective: thread %u is at %s (%s:%u), thread %u at %s (%s:%u)",
      lane_a,
      a.call,
      a.file,
      a.line,
      lane_b,
      b.call,
      b.file,
      b.line);
  write_fault(e, MTLSIM_FAULT_DIVERGENT, -1, 0, text);
  stop(e, self);
}

// Nothing can run and lanes remain: they wait for one another.
[[noreturn]] MTLSIM_UNTRACKED void fail_stuck(mtlsim_engine& e, Context& self) {
  uint32_t first = MTLSIM_MAX_THREADS, other = MTLSIM_MAX_THREADS;
  for (uint32_t lane = 0; lane < e.lanes.lane_count; ++lane) {
    if (!e.waits_at[lane])
      continue;
    if (first == MTLSIM_MAX_THREADS)
      first = lane;
    else if (!same_site(*e.waits_at[first], *e.waits_at[lane])) {
      other = lane;
      break;
    }
  }
  if (other == MTLSIM_MAX_THREADS)
    other = first;
  fail_divergent(e, *e.waits_at[first], first, *e.waits_at[other], other, self);
}

void fiber_main(void* argument);

// Continues or starts `next`, which may be `self`, from the fiber `self`.
// Returns when `self` is continued; never with `leave`.
MTLSIM_UNTRACKED void
go_to(mtlsim_engine& e, uint32_t next, Context& self, bool leave) {
  uint32_t simdgroup = next / MTLSIM_SIMD_WIDTH, mask = bit(next);
  if (e.todo[simdgroup] & mask) {
    uint32_t f = e.free_fibers[--e.free_count];
    // Stacks a power of two apart would share cache sets: stagger their tops.
    size_t stagger = f % 16 * 320;
    unsigned char* bottom = e.reserved + f * e.stack_stride + e.page;
    mtlsim::context_prepare(
        e.fiber[f], bottom, e.stack_stride - e.page - stagger, &fiber_main, &e);
    e.fiber_of[next] = f;
    e.todo[simdgroup] &= ~mask;
  } else {
    e.ready[simdgroup] &= ~mask;
  }
  if (!(e.todo[simdgroup] | e.ready[simdgroup]))
    e.runnable_groups &= ~(1u << simdgroup);
  e.waits_at[next] = nullptr;
  e.lanes.lane = next;
  Context& to = e.fiber[e.fiber_of[next]];
  if (&to != &self)
    mtlsim::context_switch(self, to, leave);
}

MTLSIM_UNTRACKED void finish_lane(mtlsim_engine& e, uint32_t lane) {
  uint32_t s = lane / MTLSIM_SIMD_WIDTH, q = lane / 4;
  e.live--;
  if (--e.simd[s].live && e.simd[s].arrived == e.simd[s].live)
    release_simd(e, s);
  if (--e.quad[q].live && e.quad[q].arrived == e.quad[q].live)
    release_quad(e, q);
  if (--e.group.live && e.group.arrived == e.group.live)
    release_group(e);
}

// A fiber runs lanes one after another as long as the next lane has not
// started, so a kernel without collectives needs one stack.
MTLSIM_UNTRACKED void fiber_main(void* argument) {
  auto& e = *static_cast<mtlsim_engine*>(argument);
  mtlsim::context_entered(e.host);
  for (;;) {
    uint32_t lane = e.lanes.lane, f = e.fiber_of[lane];
    e.body(e.argument, lane);
    finish_lane(e, lane);
    if (!e.live)
      stop(e, e.fiber[f]);
    uint32_t next = pick_or_release(e);
    if (next == MTLSIM_MAX_THREADS)
      fail_stuck(e, e.fiber[f]);
    uint32_t simdgroup = next / MTLSIM_SIMD_WIDTH;
    if (e.todo[simdgroup] & bit(next)) {
      e.todo[simdgroup] &= ~bit(next);
      if (!(e.todo[simdgroup] | e.ready[simdgroup]))
        e.runnable_groups &= ~(1u << simdgroup);
      e.fiber_of[next] = f;
      e.lanes.lane = next;
      continue;
    }
    e.free_fibers[e.free_count++] = f;
    go_to(e, next, e.fiber[f], true);
  }
}

MTLSIM_UNTRACKED void
meet(mtlsim_lanes* lanes, mtlsim_scope scope, const mtlsim_site* site) {
  auto& e = *reinterpret_cast<mtlsim_engine*>(lanes);
  uint32_t lane = lanes->lane, s = lane / MTLSIM_SIMD_WIDTH;
  Group& g = scope == MTLSIM_SIMD ? e.simd[s]
      : scope == MTLSIM_QUAD      ? e.quad[lane / 4]
                                  : e.group;
  bool loose = scope == MTLSIM_GROUP_LOOSE;
  if (!g.arrived) {
    g.site = site;
    g.first = lane;
    g.loose = loose;
  } else if (
      g.site != site && !same_site(*g.site, *site) && !(g.loose && loose)) {
    fail_divergent(e, *g.site, g.first, *site, lane, current_context(e));
  }
  g.loose &= loose;
  if (++g.arrived == g.live) {
    if (scope == MTLSIM_SIMD)
      release_simd(e, s);
    else if (scope == MTLSIM_QUAD)
      release_quad(e, lane / 4);
    else
      release_group(e);
    return;
  }
  (scope == MTLSIM_SIMD       ? e.waiting_simd
       : scope == MTLSIM_QUAD ? e.waiting_quad
                              : e.waiting_group)[s] |= bit(lane);
  e.waits_at[lane] = site;
  uint32_t next = pick_or_release(e);
  if (next == MTLSIM_MAX_THREADS)
    fail_stuck(e, current_context(e));
  go_to(e, next, current_context(e), false);
}

// Once per process: the cause is the same for later lanes.
MTLSIM_UNTRACKED void warn_of_unguarded_lanes(int error) {
  static std::atomic_flag told;
  if (!told.test_and_set()) {
    fprintf(
        stderr,
        "metal-sim: some lanes have no guard page, so an overflow of their stacks is not detected: %s. "
        "Raise vm.max_map_count, or lower MTL_SIM_THREADS\n",
        strerror(error));
  }
}

// Puts guard pages below the stacks of the first `count` fibers. If the
// system's limit of mappings is reached, the remaining stacks have none.
MTLSIM_UNTRACKED void guard_stacks(mtlsim_engine& e, uint32_t count) {
  for (; e.guarded < count; ++e.guarded) {
    if (mprotect(e.reserved + e.guarded * e.stack_stride, e.page, PROT_NONE) !=
        0) {
      warn_of_unguarded_lanes(errno);
      e.guarded = MTLSIM_MAX_THREADS;
      return;
    }
  }
}

MTLSIM_UNTRACKED const char* argument_name(
    const mtlsim_engine& e,
    uint32_t index) {
  for (uint32_t i = 0; i < e.argument_count; ++i) {
    auto& a = e.arguments[i];
    if (a.index == index && a.address_space != MTLSIM_THREADGROUP)
      return a.name;
  }
  return "?";
}

// Reports what an invalid address belongs to.
MTLSIM_UNTRACKED void explain(mtlsim_engine& e, const void* address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  auto& l = e.lanes;
  char text[512];
  auto within = [&](const void* base, uint64_t bytes) {
    return at - reinterpret_cast<uintptr_t>(base) < bytes;
  };
  if (within(l.unbound, l.kUnboundBytes * MTLSIM_BUFFER_SLOTS)) {
    uint64_t offset = at - reinterpret_cast<uintptr_t>(l.unbound);
    uint32_t slot = uint32_t(offset / l.kUnboundBytes);
    snprintf(
        text,
        sizeof text,
        "access to argument %s: nothing is bound at buffer index %u",
        argument_name(e, slot),
        slot);
    return write_fault(
        e,
        MTLSIM_FAULT_MISSING_ARGUMENT,
        int32_t(slot),
        offset % l.kUnboundBytes,
        text);
  }
  if (within(e.reserved, e.reserved_bytes)) {
    return write_fault(
        e,
        MTLSIM_FAULT_STACK,
        -1,
        0,
        "a lane's stack is too small for the kernel's private memory");
  }
  if (within(e.local, e.local_bytes + e.page)) {
    long long over = (long long)(at) -
        (long long)(reinterpret_cast<uintptr_t>(l.threadgroup_memory) +
                    l.threadgroup_bytes);
    snprintf(
        text,
        sizeof text,
        "access to threadgroup memory, %lld bytes from the end of the threadgroup's %u bytes",
        over,
        l.threadgroup_bytes);
    return write_fault(e, MTLSIM_FAULT_OUT_OF_RANGE, -1, 0, text);
  }
  // The nearest buffer, within reach of a wrong index.
  constexpr uint64_t kReach = 64 << 20;
  int32_t slot = -1;
  uint64_t least = kReach;
  long long offset = 0;
  for (uint32_t i = 0; i < MTLSIM_BUFFER_SLOTS; ++i) {
    auto base = reinterpret_cast<uintptr_t>(e.dispatch->buffer[i]);
    uint64_t length = e.dispatch->buffer_length[i];
    if (!base)
      continue;
    uint64_t away = at < base ? base - at
        : at - base < length  ? 0
                              : at - base - length;
    if (away < least) {
      least = away;
      slot = int32_t(i);
      offset = (long long)(at - base);
    }
  }
  if (slot >= 0) {
    snprintf(
        text,
        sizeof text,
        "access at byte %lld of argument %s (buffer index %d), which has %llu bytes",
        offset,
        argument_name(e, uint32_t(slot)),
        slot,
        (unsigned long long)(e.dispatch->buffer_length[slot]));
    return write_fault(
        e, MTLSIM_FAULT_OUT_OF_RANGE, slot, uint64_t(offset), text);
  }
  snprintf(
      text,
      sizeof text,
      "access to address %p, which is far from every bound buffer",
      address);
  write_fault(e, MTLSIM_FAULT_OUT_OF_RANGE, -1, 0, text);
}

[[noreturn]] MTLSIM_UNTRACKED void trap(
    mtlsim_lanes* lanes,
    const void* address) {
  auto& e = *reinterpret_cast<mtlsim_engine*>(lanes);
  explain(e, address);
  stop(e, current_context(e));
}

MTLSIM_UNTRACKED int run(
    mtlsim_lanes* lanes,
    const mtlsim_dispatch* dispatch,
    const mtlsim_argument* arguments,
    uint32_t argument_count,
    uint32_t lane_count,
    uint32_t threadgroup_bytes,
    void (*body)(void*, uint32_t),
    void* argument,
    mtlsim_report* report) {
  auto& e = *reinterpret_cast<mtlsim_engine*>(lanes);
  e.report = report;
  e.dispatch = dispatch;
  e.arguments = arguments;
  e.argument_count = argument_count;
  lanes->lane = 0;
  char text[160];
  if (lane_count == 0 || lane_count > MTLSIM_MAX_THREADS) {
    snprintf(
        text,
        sizeof text,
        "a threadgroup of %u threads; expected 1 to %u",
        lane_count,
        MTLSIM_MAX_THREADS);
    write_fault(e, MTLSIM_FAULT_THREADS, -1, 0, text);
    return report->fault;
  }
  if (threadgroup_bytes > e.options.threadgroup_limit) {
    snprintf(
        text,
        sizeof text,
        "%u bytes of threadgroup memory; the device has %u",
        threadgroup_bytes,
        e.options.threadgroup_limit);
    write_fault(e, MTLSIM_FAULT_THREADGROUP_MEMORY, -1, 0, text);
    return report->fault;
  }
  // An access past the end reaches the guard page; uninitialized memory reads
  // as NaN.
  uint32_t rounded = (threadgroup_bytes + 15) / 16 * 16;
  lanes->threadgroup_memory = e.local + e.local_bytes - rounded;
  lanes->threadgroup_bytes = threadgroup_bytes;
  memset(lanes->threadgroup_memory, 0xff, rounded);

  if (e.tracked) {
    memset(lanes->history, 0, 2 * sizeof(uint64_t) * rounded);
    memset(lanes->local_shadow, 0xff, rounded);
    memset(lanes->local_origins, 0, rounded);
    memset(lanes->passed, 0, sizeof lanes->passed);
    memset(lanes->simd_passed, 0, sizeof lanes->simd_passed);
  }

  guard_stacks(e, lane_count);
  lanes->lane_count = e.live = lane_count;
  e.simdgroups = (lane_count + MTLSIM_SIMD_WIDTH - 1) / MTLSIM_SIMD_WIDTH;
  e.runnable_groups = e.simdgroups == 32 ? ~0u : (1u << e.simdgroups) - 1;
  for (uint32_t s = 0; s < e.simdgroups; ++s) {
    uint32_t count = lane_count - s * MTLSIM_SIMD_WIDTH;
    e.todo[s] = count >= MTLSIM_SIMD_WIDTH ? ~0u : (1u << count) - 1;
    e.ready[s] = e.waiting_simd[s] = e.waiting_quad[s] = e.waiting_group[s] = 0;
    e.simd[s] = {count >= 32 ? 32 : count, 0, nullptr, 0};
    lanes->simd_generation[s]++;
  }
  for (uint32_t q = 0; q * 4 < lane_count; ++q) {
    uint32_t count = lane_count - q * 4;
    e.quad[q] = {count >= 4 ? 4 : count, 0, nullptr, 0};
    lanes->quad_generation[q]++;
  }
  e.group = {lane_count, 0, nullptr, 0};
  memset(e.waits_at, 0, lane_count * sizeof e.waits_at[0]);
  e.free_count = 0;
  for (uint32_t f = lane_count; f-- > 0;)
    e.free_fibers[e.free_count++] = f;
  e.body = body;
  e.argument = argument;

  // Generations continue across threadgroups, so a tag left by an earlier
  // threadgroup never matches.
  e.host = Context{};
  uint32_t first =
      e.options.schedule == MTLSIM_SCHEDULE_REVERSE ? lane_count - 1 : 0;
  go_to(e, first, e.host, false);
  return report->fault;
}

size_t round_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

void* reserve(size_t bytes, int protection) {
  void* p = mmap(
      nullptr,
      bytes,
      protection,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
      -1,
      0);
  return p == MAP_FAILED ? nullptr : p;
}

} // namespace

mtlsim_engine* mtlsim_engine_create(const mtlsim_engine_options* options) {
  auto* e = new (std::nothrow) mtlsim_engine;
  if (!e)
    return nullptr;
  if (options)
    e->options = *options;
  if (!e->options.threadgroup_limit)
    e->options.threadgroup_limit = kDefaultThreadgroupLimit;
  if (!e->options.stack_bytes)
    e->options.stack_bytes = kDefaultStack;
  e->page = size_t(sysconf(_SC_PAGESIZE));
  e->stack_stride = round_up(e->options.stack_bytes, e->page) + e->page;
  e->reserved_bytes = e->stack_stride * MTLSIM_MAX_THREADS;
  e->local_bytes = round_up(e->options.threadgroup_limit, e->page);
  auto& l = e->lanes;
  e->reserved = static_cast<unsigned char*>(
      reserve(e->reserved_bytes, PROT_READ | PROT_WRITE));
  e->local = static_cast<unsigned char*>(
      reserve(e->local_bytes + e->page, PROT_READ | PROT_WRITE));
  l.zeros = reserve(kZeros, PROT_READ);
  l.unbound = static_cast<unsigned char*>(
      reserve(l.kUnboundBytes * MTLSIM_BUFFER_SLOTS, PROT_NONE));
  if (!e->reserved || !e->local || !l.zeros || !l.unbound ||
      mprotect(e->local + e->local_bytes, e->page, PROT_NONE) != 0) {
    mtlsim_engine_destroy(e);
    return nullptr;
  }
  if (e->options.track) {
    e->tracked = static_cast<unsigned char*>(
        reserve(tracked_bytes(*e), PROT_READ | PROT_WRITE));
    if (!e->tracked) {
      mtlsim_engine_destroy(e);
      return nullptr;
    }
    auto* at = e->tracked;
    auto take = [&](size_t bytes) {
      at += bytes;
      return at - bytes;
    };
    l.stack_shadow = take(e->reserved_bytes);
    l.stack_origins = reinterpret_cast<uint32_t*>(take(e->reserved_bytes));
    l.local_shadow = take(e->local_bytes);
    l.local_origins = reinterpret_cast<uint32_t*>(take(e->local_bytes));
    l.history = reinterpret_cast<uint64_t*>(take(0));
  }
  l.zeros_bytes = kZeros;
  l.reduction = e->options.reduction;
  l.stacks = e->reserved;
  l.stacks_end = e->reserved + e->reserved_bytes;
  l.meet = &meet;
  l.fail = &fail;
  l.trap = &trap;
  l.run = &run;
  return e;
}

void mtlsim_engine_destroy(mtlsim_engine* e) {
  if (!e)
    return;
  if (e->reserved)
    munmap(e->reserved, e->reserved_bytes);
  if (e->local)
    munmap(e->local, e->local_bytes + e->page);
  if (e->tracked)
    munmap(e->tracked, tracked_bytes(*e));
  if (e->lanes.unbound)
    munmap(e->lanes.unbound, mtlsim_lanes::kUnboundBytes * MTLSIM_BUFFER_SLOTS);
  if (e->lanes.zeros)
    munmap(const_cast<void*>(e->lanes.zeros), kZeros);
  delete e;
}

void mtlsim_engine_abandon(
    mtlsim_engine* engine,
    int signal,
    [[maybe_unused]] int code,
    const void* address) {
  auto& e = *engine;
  auto fault = [&](mtlsim_fault_code fault, const char* text) {
    write_fault(e, fault, -1, 0, text);
  };
#ifdef SI_KERNEL
  // The processor reports no address.
  if (signal == SIGSEGV && code == SI_KERNEL && !address)
    fault(
        MTLSIM_FAULT_OUT_OF_RANGE,
        "access to an address that is not aligned for its type, or not a valid address");
#endif
  if (signal == SIGFPE)
    // Kernels check for zero themselves.
    fault(
        MTLSIM_FAULT_DIVISION,
        "integer division without a valid result: by zero, or of the least number by -1");
  else if (signal == SIGILL || signal == SIGTRAP)
    fault(
        MTLSIM_FAULT_UNDEFINED,
        "the kernel reached code marked as unreachable: the end of a function that must return a value, or, if checked, an index past the bounds of a local array");
  else
    explain(e, address);
  stop(e, current_context(e));
}

void mtlsim_engine_give_up(mtlsim_engine* engine, double seconds) {
  auto& e = *engine;
  char text[400];
  const mtlsim_site* site = nullptr;
  for (uint32_t lane = 0; lane < e.lanes.lane_count && !site; ++lane)
    site = e.waits_at[lane];
  int length = snprintf(
      text,
      sizeof text,
      "the threadgroup has run for %.3g s without an end (MTL_SIM_WATCHDOG)",
      seconds);
  if (site)
    snprintf(
        text + length,
        sizeof text - size_t(length),
        "; other lanes wait at %s, %s:%u",
        site->call,
        site->file,
        site->line);
  write_fault(e, MTLSIM_FAULT_ENDLESS, -1, 0, text);
  stop(e, current_context(e));
}

int mtlsim_engine_in_lane(
    const mtlsim_engine* engine,
    const void* stack_pointer) {
  auto at = static_cast<const unsigned char*>(stack_pointer);
  return at >= engine->lanes.stacks && at < engine->lanes.stacks_end;
}

int mtlsim_reduction_from_name(const char* name) {
  static const char* const names[] = {"butterfly", "neighbours", "sequential"};
  for (int i = 0; i < 3; ++i)
    if (strcmp(name, names[i]) == 0)
      return i;
  return -1;
}
