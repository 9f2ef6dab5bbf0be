#include "mlx-overlay-sys/src/lifetime.h"

#include <pthread.h>
#include <unistd.h>
#ifndef __APPLE__
#include <sys/syscall.h>
#endif

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mlx-overlay-sys/src/encoders.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx-overlay-sys/src/metallib.h"
#include "mlx-overlay-sys/src/policy.h"
#include "mlx/backend/cpu/eval.h"
#include "mlx/device.h"
#include "mlx/memory.h"
#include "mlx/stream.h"
#include "mlx/transforms_impl.h"
#include "mlx/utils.h"
#include "mlx/version.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

// Counts the calls that are inside MLX, and lets none in once it is closed. A
// read-write lock would do, but busy threads keep its writer waiting.
class Gate {
 public:
  bool enter() noexcept {
    if (closed_) {
      return false;
    }
    ++calls_;
    // Either this sees that the gate was closed, or close() sees this call.
    if (closed_) {
      leave();
      return false;
    }
    return true;
  }

  void leave() noexcept {
    if (--calls_ == 0 && closed_) {
      calls_.notify_all();
    }
  }

  // Returns when the last call has left.
  void close() noexcept {
    closed_ = true;
    for (int calls = calls_; calls != 0; calls = calls_) {
      calls_.wait(calls);
    }
  }

 private:
  std::atomic<int> calls_ = 0;
  std::atomic<bool> closed_ = false;
};

// Never destroyed: it must outlive every other static variable.
Gate& gate() {
  static Gate* const instance = new Gate;
  return *instance;
}

// Whether this is a child that a process made by fork() after it had used MLX.
// Of its threads only one is there: whoever waits for another waits for ever.
std::atomic<bool> forked = false;

bool on_main_thread() {
#ifdef __APPLE__
  return ::pthread_main_np() != 0;
#else
  return ::getpid() == static_cast<pid_t>(::syscall(SYS_gettid));
#endif
}

// MLX takes the first thread that it sees for the main one, knows it by its id,
// and never destroys what it keeps for that. The system gives the ids of
// threads that ended to others, which MLX would take for that one. So it sees
// one first that never ends.
void choose_main_thread() {
  if (on_main_thread()) {
    core::is_main_thread();
    return;
  }
  // Shared: the waiter may be gone before it has been told.
  auto seen = std::make_shared<std::promise<void>>();
  std::thread([seen] {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    core::is_main_thread();
    seen->set_value();
    for (;;) {
      ::pause();
    }
  }).detach();
  seen->get_future().wait();
}

// Makes the allocator and the devices; a GPU's loads the kernels.
void make_devices() {
  auto places = choose_metallib();
  try {
    core::get_memory_limit(); // makes the allocator
    for (auto type : {core::Device::cpu, core::Device::gpu}) {
      if (core::is_available(type)) {
        core::device_info(type);
      }
    }
  } catch (const std::exception& error) {
    std::string text = error.what();
    if (places.empty() || text.find("metallib") == text.npos) {
      throw;
    }
    throw std::runtime_error(text + " (mlx-overlay " + places + ")");
  }
}

// Exit handlers and static destructors run in the reverse order of their
// registration. So what MLX destroys at exit is made first, and closing the
// gate comes before its destruction.
void prepare_process() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::strcmp(core::version(), MLX_OVERLAY_VERSION) != 0) {
      throw std::runtime_error(
          std::string("mlx-overlay: linked MLX says it is ") + core::version() +
          ", the prefix says " MLX_OVERLAY_VERSION
          ": run `cargo xtask build` again");
    }
    // First: what follows makes threads, which a child of fork() lacks.
    if (::pthread_atfork(nullptr, nullptr, [] { forked = true; }) != 0) {
      throw std::runtime_error("mlx-overlay: pthread_atfork failed");
    }
    choose_main_thread();
    core::get_streams();
    make_devices();
    auto close = [] {
      if (!forked) {
        gate().close();
      }
    };
    if (std::atexit(close) != 0) {
      throw std::runtime_error("mlx-overlay: atexit failed");
    }
  });
}

// Default CPU streams of threads that ended. MLX gives each CPU stream that has
// run something a thread of the system, for good, so the next thread takes one
// of these.
class FreeStreams {
 public:
  // Makes a stream the calling thread's default one, if there is one.
  void take() {
    std::lock_guard lock(mutex_);
    if (!streams_.empty()) {
      auto stream = streams_.back();
      core::cpu::new_stream(stream);
      core::set_default_stream(stream);
      streams_.pop_back();
    }
  }

  // Gives back the calling thread's own, once its work is done. One with a
  // policy keeps it for good, and is not handed on. MLX would make one that was
  // not used a thread to wait for.
  void give_back(core::Stream stream, bool used) noexcept {
    try {
      if (has_policies() && stream_policy(stream.index).kind >= 0) {
        return;
      }
      try {
        if (used) {
          core::synchronize(stream);
        }
      } catch (const std::exception&) {
        // An error that nobody waited for.
      }
      std::lock_guard lock(mutex_);
      streams_.push_back(stream);
    } catch (...) {
      // The stream is lost, and nothing else.
    }
  }

 private:
  std::mutex mutex_;
  std::vector<core::Stream> streams_;
};

// Never destroyed: threads end after every other static variable.
FreeStreams& free_streams() {
  static FreeStreams* const instance = new FreeStreams;
  return *instance;
}

// Read after this thread's variables with destructors are gone: this one has
// none.
thread_local bool thread_ended = false;
thread_local bool thread_prepared = false;
// The thread's own stream, and whether something was put on it.
thread_local int own_stream = -1;
thread_local bool own_stream_used = false;

struct ThreadEnd {
  explicit ThreadEnd(std::optional<core::Stream> own) : own(own) {}
  ~ThreadEnd() {
    thread_ended = true;
    if (forked) {
      leak_encoders();
    }
    Release release;
    if (own && release.allowed()) {
      free_streams().give_back(*own, own_stream_used);
    }
  }

  std::optional<core::Stream> own;
};

// The same for a thread: what MLX keeps in it is made first, so that ThreadEnd,
// made last, is destroyed first.
void prepare_thread() {
  if (thread_prepared) {
    return;
  }
  core::detail::in_tracing(); // makes the stack of traces
  const core::Device cpu = core::Device::cpu;
  // One that other code chose for this thread is not ours to hand on.
  const bool ours = core::is_available(cpu) && !core::peek_default_stream(cpu);
  if (ours) {
    free_streams().take();
  }
  std::optional<core::Stream> own;
  for (auto type : {core::Device::cpu, core::Device::gpu}) {
    if (core::is_available(type)) {
      // Makes the default streams and the encoders.
      auto stream = core::default_stream(type);
      if (ours && type == core::Device::cpu) {
        own = stream;
        own_stream = stream.index;
      }
    }
  }
  static thread_local ThreadEnd end(own);
  static_cast<void>(&end);
  thread_prepared = true;
}

} // namespace

void note_use(core::Stream stream) {
  own_stream_used |= stream.index == own_stream;
}

Entry::Entry() {
  if (forked) {
    throw std::runtime_error(std::string(process_forked()));
  }
  if (!gate().enter()) {
    throw std::runtime_error(std::string(process_ending()));
  }
  try {
    if (thread_ended) {
      throw std::runtime_error(std::string(thread_ending()));
    }
    prepare_process();
    prepare_thread();
  } catch (...) {
    gate().leave(); // there is no destructor after a constructor that throws
    throw;
  }
}

Entry::~Entry() {
  gate().leave();
}

Release::Release() noexcept : allowed_(!forked && gate().enter()) {}

Release::~Release() {
  if (allowed_) {
    gate().leave();
  }
}

} // namespace mlx_overlay
