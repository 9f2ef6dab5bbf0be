// When MLX may be entered.
//
// MLX keeps variables with destructors: some for the process, some for each
// thread. Rust code can still run after they are gone: a `Drop` in a
// `thread_local!`, or a detached thread while `main` returns. Every call that
// Rust makes passes here, and is refused once what it would touch is gone. So
// is every call in a child of fork(), which lacks MLX's threads.

#pragma once

#include <exception>

#include "mlx/stream.h"

namespace mlx_overlay {

// Notes that something was put on a stream of the calling thread.
void note_use(mlx::core::Stream stream);

// One call into MLX. The process does not pass its exit handlers while one is
// alive.
class Entry {
 public:
  // Prepares process and thread on first use.
  // Throws std::runtime_error when either is being torn down, or the process is
  // the child of one that used MLX.
  Entry();
  ~Entry();

  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
};

// The release of what MLX owns. Unlike a call it needs nothing of the thread,
// and cannot fail: after the process began to exit, or in a forked child, the
// owner leaks it.
class Release {
 public:
  Release() noexcept;
  ~Release();

  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;

  bool allowed() const noexcept {
    return allowed_;
  }

 private:
  bool allowed_;
};

} // namespace mlx_overlay

namespace rust::behavior {

// cxx's hook around every function that returns Result. The default one lets
// what is not a std::exception go, which ends the process.
template <typename Try, typename Fail>
static void trycatch(Try&& func, Fail&& fail) noexcept {
  try {
    mlx_overlay::Entry entry;
    func();
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("mlx-overlay: C++ threw something that is not a std::exception");
  }
}

} // namespace rust::behavior
