#include "runtime/executor.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "engine.h"
#include "runtime/misuse.h"
#include "runtime/options.h"

namespace metalsim {
namespace {

// The engines that no thread uses. Their number is the largest number that ever
// ran at one time, however many queues there are: an engine needs two mappings
// for each lane, and a process has some 65,000. Never destroyed: at process
// exit a kernel may still be running.
class Engines {
 public:
  static Engines& instance() {
    static auto* engines = new Engines;
    return *engines;
  }

  mtlsim_engine* take() {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto* engine = idle_.back();
        idle_.pop_back();
        return engine;
      }
    }
    return make();
  }

  void give_back(mtlsim_engine* engine) {
    std::lock_guard lock(mutex_);
    idle_.push_back(engine);
  }

 private:
  static mtlsim_engine* make();

  std::mutex mutex_;
  std::vector<mtlsim_engine*> idle_;
};

mtlsim_engine* Engines::make() {
  auto& o = options();
  mtlsim_engine_options wanted{};
  wanted.reduction = o.simd_sum;
  wanted.schedule = o.shuffle && *o.shuffle % 2 ? MTLSIM_SCHEDULE_REVERSE
                                                : MTLSIM_SCHEDULE_FORWARD;
  wanted.threadgroup_limit = o.threadgroup_memory;
  if (o.check != Check::Nothing) {
    wanted.track = 1;
    // Room for the gaps between arrays: the size of the arrays is checked
    // before.
    wanted.threadgroup_limit = 2 * o.threadgroup_memory;
  }
  auto* engine = mtlsim_engine_create(&wanted);
  if (!engine) {
    misuse("no memory for the lanes of a threadgroup");
  }
  return engine;
}

int unwritten(
    const void* owner,
    std::uint32_t index,
    std::uint64_t offset,
    std::uint64_t bytes) {
  auto& binding = static_cast<const Dispatch*>(owner)->bindings[index];
  auto from = binding.offset + offset;
  return binding.region->unwritten(from, from + bytes, bytes).has_value();
}

mtlsim_dispatch arguments_of(const Dispatch& dispatch) {
  mtlsim_dispatch arguments{};
  for (std::size_t i = 0; i < MTLSIM_BUFFER_SLOTS; i++) {
    auto& binding = dispatch.bindings[i];
    arguments.buffer[i] = binding.data();
    arguments.buffer_length[i] = binding.length();
    if (options().meter && binding.kind == Binding::Kind::Buffer) {
      arguments.written[i] = binding.region->stores() + binding.offset;
    }
    if (options().check == Check::Access &&
        binding.kind == Binding::Kind::Buffer) {
      binding.region->forget_history();
      arguments.history[i] =
          binding.region->history() + Region::cells * binding.offset;
    }
  }
  if (options().unwritten) {
    arguments.unwritten = unwritten;
    arguments.owner = &dispatch;
  }
  for (std::size_t i = 0; i < 3; i++) {
    arguments.threadgroups[i] = dispatch.threadgroups[i];
    arguments.threads_per_threadgroup[i] = dispatch.threads_per_threadgroup[i];
    arguments.threads[i] = dispatch.threads[i];
  }
  for (std::size_t i = 0; i < MTLSIM_THREADGROUP_SLOTS; i++) {
    arguments.threadgroup_length[i] = dispatch.threadgroup_length[i];
  }
  auto& constants = dispatch.state().constants;
  arguments.constant_count = static_cast<std::uint32_t>(constants.size());
  arguments.constants = constants.data();
  return arguments;
}

constexpr std::uint32_t no_lane = UINT32_MAX;

// Whether a lane had started.
bool names_lane(const mtlsim_report& report) {
  if (report.lane == no_lane) {
    return false;
  }
  switch (report.fault) {
    case MTLSIM_FAULT_SHORT_ARGUMENT:
    case MTLSIM_FAULT_CONSTANT_TYPE:
    case MTLSIM_FAULT_THREADGROUP_MEMORY:
    case MTLSIM_FAULT_THREADS:
      return false;
    default:
      return true;
  }
}

struct Job {
  Job(const Dispatch& dispatch, std::optional<std::uint64_t> seed)
      : dispatch(dispatch), arguments(arguments_of(dispatch)) {
    auto& groups = dispatch.threadgroups;
    total = std::uint64_t(groups[0]) * groups[1] * groups[2];
    if (seed) {
      // i -> (stride * i + first) mod total visits each value once.
      first = *seed % total;
      stride = *seed % total | 1;
      while (std::gcd(stride, total) != 1) {
        stride += 2;
      }
    }
  }

  Extent position(std::uint64_t index) const {
    auto& groups = dispatch.threadgroups;
    auto i = static_cast<std::uint64_t>(
        (static_cast<unsigned __int128>(stride) * index + first) % total);
    return {
        static_cast<std::uint32_t>(i % groups[0]),
        static_cast<std::uint32_t>(i / groups[0] % groups[1]),
        static_cast<std::uint32_t>(i / groups[0] / groups[1])};
  }

  // Takes threadgroups until none is left.
  void work(KernelThread& thread) {
    KernelThread::Lanes lanes(thread);
    mtlsim_report report{};
    report.slot = -1;
    for (;;) {
      auto index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= total || stop.load(std::memory_order_relaxed)) {
        break;
      }
      auto at = position(index);
      const void* address = nullptr;
      if (thread.run(dispatch.state().kernel, arguments, at, report, address) !=
          MTLSIM_OK) {
        stop = true;
        fail(report, address);
        break;
      }
    }
    std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < MTLSIM_BUFFER_SLOTS; i++) {
      outcome.loaded[i] += report.loaded[i];
      outcome.stored[i] += report.stored[i];
    }
  }

  void fail(const mtlsim_report& report, const void* address) {
    auto& at = report.threadgroup;
    Fault fault;
    fault.text = dispatch.state().name + ", threadgroup (" +
        std::to_string(at[0]) + ", " + std::to_string(at[1]) + ", " +
        std::to_string(at[2]) + ")" +
        (names_lane(report) ? ", lane " + std::to_string(report.lane) : "") +
        ": " + report.message;
    if (address) {
      fault.code = MTL::CommandBufferErrorPageFault;
      if (was_freed(reinterpret_cast<std::uintptr_t>(address))) {
        fault.text += "; the buffer was freed";
      }
    }
    std::lock_guard lock(mutex);
    if (!outcome.fault) {
      outcome.fault = std::move(fault);
    }
  }

  const Dispatch& dispatch;
  const mtlsim_dispatch arguments;
  std::uint64_t total{0};
  std::uint64_t first{0};
  std::uint64_t stride{1};
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  Outcome outcome;
  int helpers{0}; // guarded by the pool's mutex
};

// Threads that help to run threadgroups. Never destroyed: at process exit a
// kernel may still be running.
class Pool {
 public:
  static Pool& instance() {
    static auto* pool = new Pool;
    return *pool;
  }

  void help(Job& job) {
    std::lock_guard lock(mutex_);
    // The caller is one of the threads.
    while (started_ + 1 < options().threads && started_ + 1 < job.total) {
      std::thread([this] { loop(); }).detach();
      started_++;
    }
    jobs_.push_back(&job);
    work_.notify_all();
  }

  // After this no helper works on the job.
  void retire(Job& job) {
    std::unique_lock lock(mutex_);
    jobs_.remove(&job);
    left_.wait(lock, [&] { return job.helpers == 0; });
  }

 private:
  void loop() {
    KernelThread thread;
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [&] { return !jobs_.empty(); });
      auto* job = jobs_.front();
      job->helpers++;
      lock.unlock();
      job->work(thread);
      lock.lock();
      // The job has nothing left.
      jobs_.remove(job);
      job->helpers--;
      left_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable left_;
  std::list<Job*> jobs_;
  std::uint64_t started_{0};
};

} // namespace

KernelThread::Lanes::Lanes(KernelThread& thread) : thread_(thread) {
  thread_.engine_ = Engines::instance().take();
}

KernelThread::Lanes::~Lanes() {
  Engines::instance().give_back(std::exchange(thread_.engine_, nullptr));
}

int KernelThread::run(
    const mtlsim_kernel& kernel,
    const mtlsim_dispatch& dispatch,
    const Extent& position,
    mtlsim_report& report,
    const void*& address) {
  // Neither frame below has anything to destroy.
  if (int signal = sigsetjmp(trap_.outside(), 0)) {
    trap_.disarm();
    std::copy_n(position.data(), 3, report.threadgroup);
    report.fault = MTLSIM_FAULT_UNDEFINED;
    report.lane = no_lane;
    auto text = trap_.describe_outside(signal);
    report.message[text.copy(report.message, sizeof(report.message) - 1)] = 0;
    return int(report.fault);
  }
  trap_.arm(engine_);
  int fault = kernel.run(&dispatch, position.data(), engine_, &report);
  trap_.disarm();
  address = trap_.address();
  return fault;
}

Outcome execute(
    const Dispatch& dispatch,
    KernelThread& self,
    std::optional<std::uint64_t> seed) {
  Job job(dispatch, seed);
  if (job.total > 1 && options().threads > 1) {
    auto& pool = Pool::instance();
    pool.help(job);
    job.work(self);
    pool.retire(job);
  } else {
    job.work(self);
  }
  return std::move(job.outcome);
}

} // namespace metalsim
