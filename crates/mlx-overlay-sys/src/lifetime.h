// When MLX may be entered.
//
// MLX has variables with destructors: some per process, some per thread. Rust
// code can still run after their destruction: a `Drop` in a `thread_local!`, or
// a detached thread while `main` returns. Every call from Rust passes through
// here, and fails if the variables it needs have been destroyed. Calls in a
// child of fork(), which lacks MLX's threads, fail too.

#pragma once

#include <exception>

#include "mlx/stream.h"

namespace mlx_overlay {

// Records that work was submitted to a stream of the calling thread.
void note_use(mlx::core::Stream stream);

// One call into MLX. The process does not get past its exit handlers while a
// call is running.
class Entry {
 public:
  // Prepares process and thread on first use.
  // Throws std::runtime_error if either is ending, or if the process is a child
  // of fork() whose parent had used MLX.
  Entry();
  ~Entry();

  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
};

// The release of something that MLX owns. Unlike a call it needs no state of
// the thread, and cannot fail: while the process exits, or in a child of
// fork(), the owner leaks it instead.
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

// cxx's hook around every function that returns Result. The default hook lets
// an exception that is not a std::exception escape, which ends the process.
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
