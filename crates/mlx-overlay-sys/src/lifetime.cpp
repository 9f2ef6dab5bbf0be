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

// Counts the calls that are inside MLX, and lets none in once it is closed. Not
// a read-write lock: busy threads would starve its writer.
class Gate {
 public:
  bool enter() noexcept {
    if (closed_) {
      return false;
    }
    ++calls_;
    // Either this call sees that the gate is closed, or close() sees this call.
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

// Whether this is a child of fork() whose parent had used MLX. The child has
// only one thread; waiting for another would never end.
std::atomic<bool> forked = false;

bool on_main_thread() {
#ifdef __APPLE__
  return ::pthread_main_np() != 0;
#else
  return ::getpid() == static_cast<pid_t>(::syscall(SYS_gettid));
#endif
}

// MLX takes the first thread that it sees for the main one, identifies it by
// its id, and never destroys the thread's state. The system reuses the ids of
// ended threads, so MLX could later take another thread for the main one.
// Therefore a thread that never ends is the first that MLX sees.
void choose_main_thread() {
  if (on_main_thread()) {
    core::is_main_thread();
    return;
  }
  // Shared, because the waiter may be gone before set_value() returns.
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

// Creates the allocator and the devices; the GPU's loads the kernels.
void make_devices() {
  auto places = choose_metallib();
  try {
    core::get_memory_limit(); // creates the allocator
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
// registration. So MLX's static variables are created first, and the gate is
// closed before they are destroyed.
void prepare_process() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::strcmp(core::version(), MLX_OVERLAY_VERSION) != 0) {
      throw std::runtime_error(
          std::string("mlx-overlay: the linked MLX has version ") +
          core::version() +
          ", but its prefix has " MLX_OVERLAY_VERSION
          ": run `cargo xtask build` again");
    }
    // First, because the rest starts threads, which a child of fork() lacks.
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

// Default CPU streams of ended threads. MLX creates a permanent
// operating-system thread for each CPU stream that has run something, so the
// next thread reuses one of these.
class FreeStreams {
 public:
  // Makes one of them the calling thread's default stream, if there is one.
  void take() {
    std::lock_guard lock(mutex_);
    if (!streams_.empty()) {
      auto stream = streams_.back();
      core::cpu::new_stream(stream);
      core::set_default_stream(stream);
      streams_.pop_back();
    }
  }

  // Returns the calling thread's own stream, once its work is done. A stream
  // with a policy keeps it for good, so it is not reused. For a stream that was
  // not used, waiting would make MLX create a thread.
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
        // An error that nothing waited for.
      }
      std::lock_guard lock(mutex_);
      streams_.push_back(stream);
    } catch (...) {
      // Only the stream is lost.
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

// Read after this thread's variables with destructors are destroyed; this one
// has no destructor.
thread_local bool thread_ended = false;
thread_local bool thread_prepared = false;
// The thread's own stream, and whether work was submitted to it.
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

// The same for a thread: MLX's variables of the thread are created first, so
// that ThreadEnd, created last, is destroyed first.
void prepare_thread() {
  if (thread_prepared) {
    return;
  }
  core::detail::in_tracing(); // creates the stack of traces
  const core::Device cpu = core::Device::cpu;
  // A stream that other code chose for this thread is not ours to reuse.
  const bool ours = core::is_available(cpu) && !core::peek_default_stream(cpu);
  if (ours) {
    free_streams().take();
  }
  std::optional<core::Stream> own;
  for (auto type : {core::Device::cpu, core::Device::gpu}) {
    if (core::is_available(type)) {
      // Creates the default streams and the encoders.
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
    gate().leave(); // a constructor that throws is not followed by a destructor
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
