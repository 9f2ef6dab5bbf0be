// The memory behind buffers: poisoned when made, between guard pages on
// request, and kept alive by its users.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace metalsim {

class Region : public std::enable_shared_from_this<Region> {
 public:
  enum class Kind {
    Plain, // from the heap of the process
    Guarded, // a mapping of its own, no access before its pages or past its end
    Foreign, // somebody else's memory
  };

  // Null if the host has no memory left.
  static std::shared_ptr<Region> allocate(std::size_t length);
  static std::shared_ptr<Region> wrap(void* data, std::size_t length);

  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* data() const {
    return data_;
  }
  std::size_t length() const {
    return length_;
  }
  // Numbered from 1 in order of creation.
  std::uint64_t id() const {
    return id_;
  }
  // The number of the next region.
  static std::uint64_t next();

  // The buffer was freed. Commands that were encoded with it still hold the
  // memory, so that using it is a fault and not a corrupted heap.
  void free();
  bool freed() const {
    return freed_.load(std::memory_order_acquire);
  }

  // The first element in [from, to) none of whose bytes was written since the
  // region was made. Elements are counted from `from`.
  std::optional<std::size_t>
  unwritten(std::size_t from, std::size_t to, std::size_t element) const;

  // Counts everything before the last written byte as written, unless a kernel
  // left a hole in the region.
  void take_as_written();

  // Whether nothing from `from` to the end was written.
  bool untouched_from(std::size_t from) const;

  // The offset just before or after the region, inside its pages, at which
  // something was written; negative if before. None for other kinds.
  std::optional<std::ptrdiff_t> trespass() const;

  // One byte per byte: 1 if an instrumented kernel stored there. Made on
  // request.
  std::uint8_t* stores();

  // For checked kernels, this many cells per byte (mtlsim_dispatch::history).
  // Made on request.
  static constexpr std::size_t cells = 2;
  std::uint64_t* history();
  void forget_history();

  // Everything before this offset counts as written; it never decreases.
  std::atomic<std::size_t> written{0};
  // Set once a kernel's output was found partly unwritten.
  std::atomic<bool> has_hole{false};
  // Set once a kernel has had the region as an output.
  std::atomic<bool> output{false};
  // Set if it was made before the last command buffer of its queue: MLX makes
  // an output's memory while it encodes, so this was another array's, and the
  // output may be smaller.
  std::atomic<bool> reused{false};

 private:
  Region(Kind kind, std::byte* data, std::size_t length);

  bool untouched(std::size_t offset) const;
  std::size_t history_bytes() const;

  const Kind kind_;
  std::byte* const data_;
  const std::size_t length_;
  const std::uint64_t id_;
  std::byte* pages_{nullptr}; // Guarded: first accessible page
  std::size_t pages_length_{0};
  std::atomic<bool> freed_{false};
  std::atomic<std::uint8_t*> stores_{nullptr};
  std::atomic<std::uint64_t*> history_{nullptr};
};

// Whether the address belongs to a freed buffer, or is close to one.
bool was_freed(std::uintptr_t address);

// The live region that contains all of [address, address + size), if any.
std::shared_ptr<Region> find_region(std::uintptr_t address, std::size_t size);

} // namespace metalsim
