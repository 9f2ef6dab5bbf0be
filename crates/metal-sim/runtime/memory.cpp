#include "runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>

#include "runtime/misuse.h"
#include "runtime/options.h"

namespace metalsim {
namespace {

// How far outside a buffer an access may be and still fault.
constexpr std::size_t guard_bytes = std::size_t(1) << 20;
// The alignment that kernels may assume at the start of every buffer; the end
// of a guarded buffer is exact up to this.
constexpr std::size_t alignment = 16;
constexpr std::size_t plain_alignment = 256;
// Freed guarded regions stay mapped without access, up to this number, so that
// a late access faults.
constexpr std::size_t quarantine_regions = 4096;
constexpr std::byte slack_byte{0xa5};

std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

std::size_t host_page() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// The poison of eight bytes: four halves, each a NaN as half and as bfloat, so
// that a pair is a NaN as float; otherwise random, so that no kernel writes it
// by chance.
std::uint64_t poison(std::uint64_t region, std::uint64_t lane) {
  std::uint64_t z = region * 0xd1342543de82ef95 + lane * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return 0x7f817f817f817f81 | (z & 0x007e007e007e007e);
}

void fill_poison(std::byte* data, std::size_t length, std::uint64_t region) {
  for (std::size_t i = 0; i < length; i += 8) {
    auto value = poison(region, i / 8);
    std::memcpy(data + i, &value, std::min<std::size_t>(8, length - i));
  }
}

bool any_byte_equal(const std::byte* data, std::uint64_t other) {
  std::uint64_t value;
  std::memcpy(&value, data, sizeof(value));
  value ^= other;
  return ((value - 0x0101010101010101) & ~value & 0x8080808080808080) != 0;
}

// Every mapped region, including freed ones in quarantine.
struct Registry {
  std::mutex mutex;
  // A region removes itself before it is destroyed.
  std::map<std::uintptr_t, Region*> live;
  struct Ghost {
    std::uintptr_t data;
    std::size_t length;
    std::byte* pages;
    std::size_t pages_length;
  };
  std::deque<Ghost> quarantine;
};

Registry& registry() {
  static auto* registry = new Registry;
  return *registry;
}

std::atomic<std::uint64_t> next_id{1};

void enter(Region& region) {
  auto& r = registry();
  std::lock_guard lock(r.mutex);
  r.live[reinterpret_cast<std::uintptr_t>(region.data())] = &region;
}

void unmap(std::byte* pages, std::size_t length) {
  ::munmap(pages - guard_bytes, length + 2 * guard_bytes);
}

std::byte* map_guarded(std::size_t length) {
  void* whole = ::mmap(
      nullptr,
      length + 2 * guard_bytes,
      PROT_NONE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
      -1,
      0);
  if (whole == MAP_FAILED) {
    return nullptr;
  }
  auto* pages = static_cast<std::byte*>(whole) + guard_bytes;
  if (::mprotect(pages, length, PROT_READ | PROT_WRITE) != 0) {
    unmap(pages, length);
    return nullptr;
  }
  return pages;
}

} // namespace

Region::Region(Kind kind, std::byte* data, std::size_t length)
    : kind_(kind), data_(data), length_(length), id_(next_id++) {}

std::shared_ptr<Region> Region::allocate(std::size_t length) {
  std::shared_ptr<Region> region;
  if (options().guard) {
    auto body = round_up(length, alignment);
    auto pages_length = round_up(body, host_page());
    auto* pages = map_guarded(pages_length);
    if (!pages) {
      return nullptr;
    }
    std::memset(pages, static_cast<int>(slack_byte), pages_length);
    region.reset(
        new Region(Kind::Guarded, pages + (pages_length - body), length));
    region->pages_ = pages;
    region->pages_length_ = pages_length;
  } else {
    auto* data = static_cast<std::byte*>(std::aligned_alloc(
        plain_alignment,
        round_up(std::max<std::size_t>(length, 1), plain_alignment)));
    if (!data) {
      return nullptr;
    }
    region.reset(new Region(Kind::Plain, data, length));
  }
  fill_poison(region->data_, length, region->id_);
  enter(*region);
  return region;
}

std::shared_ptr<Region> Region::wrap(void* data, std::size_t length) {
  std::shared_ptr<Region> region(
      new Region(Kind::Foreign, static_cast<std::byte*>(data), length));
  region->written = length;
  enter(*region);
  return region;
}

Region::~Region() {
  auto address = reinterpret_cast<std::uintptr_t>(data_);
  auto& r = registry();
  std::lock_guard lock(r.mutex);
  // Foreign memory may have been wrapped again in the meantime.
  if (auto it = r.live.find(address);
      it != r.live.end() && it->second == this) {
    r.live.erase(it);
  }
  if (kind_ == Kind::Plain) {
    std::free(data_);
  } else if (kind_ == Kind::Guarded) {
    r.quarantine.push_back({address, length_, pages_, pages_length_});
    if (r.quarantine.size() > quarantine_regions) {
      auto& oldest = r.quarantine.front();
      unmap(oldest.pages, oldest.pages_length);
      r.quarantine.pop_front();
    }
  }
  delete[] stores_.load();
  if (auto* cells = history_.load()) {
    ::munmap(cells, history_bytes());
  }
}

void Region::free() {
  freed_.store(true, std::memory_order_release);
  if (kind_ == Kind::Guarded) {
    // Returns the memory, keeps the addresses.
    ::madvise(pages_, pages_length_, MADV_DONTNEED);
    ::mprotect(pages_, pages_length_, PROT_NONE);
  }
}

std::uint8_t* Region::stores() {
  auto* shadow = stores_.load(std::memory_order_acquire);
  if (!shadow) {
    auto* made = new std::uint8_t[length_]{};
    if (stores_.compare_exchange_strong(shadow, made)) {
      return made;
    }
    delete[] made;
  }
  return shadow;
}

std::uint64_t* Region::history() {
  auto* cells = history_.load(std::memory_order_acquire);
  if (!cells) {
    void* made = ::mmap(
        nullptr,
        history_bytes(),
        PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
        -1,
        0);
    if (made == MAP_FAILED) {
      misuse("no memory for the history of a buffer");
    }
    if (history_.compare_exchange_strong(
            cells, static_cast<std::uint64_t*>(made))) {
      return static_cast<std::uint64_t*>(made);
    }
    ::munmap(made, history_bytes());
  }
  return cells;
}

void Region::forget_history() {
  if (auto* cells = history_.load(std::memory_order_acquire)) {
    ::madvise(cells, history_bytes(), MADV_DONTNEED);
  }
}

std::size_t Region::history_bytes() const {
  return std::max<std::size_t>(length_, 1) * cells * sizeof(std::uint64_t);
}

bool Region::untouched(std::size_t offset) const {
  auto* shadow = stores_.load(std::memory_order_acquire);
  auto lane = poison(id_, offset / 8);
  return data_[offset] ==
      reinterpret_cast<const std::byte*>(&lane)[offset % 8] &&
      !(shadow && shadow[offset]);
}

void Region::take_as_written() {
  if (kind_ == Kind::Foreign || has_hole) {
    return;
  }
  const auto known = written.load(std::memory_order_acquire);
  auto end = length_;
  while (end > known && untouched(end - 1)) {
    end--;
    // Eight bytes at once, as long as all of them are poison.
    while (end % 8 == 0 && end >= known + 8 && !stores_.load()) {
      auto lane = poison(id_, end / 8 - 1);
      if (std::memcmp(data_ + end - 8, &lane, 8) != 0) {
        break;
      }
      end -= 8;
    }
  }
  if (end > known) {
    written = end;
  }
}

bool Region::untouched_from(std::size_t from) const {
  for (auto i = from; i < length_; i++) {
    if (!untouched(i)) {
      return false;
    }
  }
  return true;
}

std::optional<std::size_t>
Region::unwritten(std::size_t from, std::size_t to, std::size_t element) const {
  to = std::min(to, length_);
  element = std::max<std::size_t>(element, 1);
  auto known = written.load(std::memory_order_acquire);
  if (kind_ == Kind::Foreign || to <= known) {
    return std::nullopt;
  }
  if (from < known) {
    from += (known - from) / element * element;
  }
  // One byte does not distinguish poison from a value: only a recorded store,
  // or eight such bytes in a row, count.
  const std::size_t least =
      element == 1 && !stores_.load() ? std::min<std::size_t>(8, to - from) : 1;
  const bool in_lanes = 8 % element == 0;
  std::size_t run = 0;
  for (auto at = from; at < to; at += element) {
    // Eight bytes that all differ from the poison need no further check.
    while (in_lanes && at % 8 == 0 && at + 8 <= to &&
           !any_byte_equal(data_ + at, poison(id_, at / 8))) {
      run = 0;
      at += 8;
    }
    auto end = std::min(at + element, to);
    if (at >= end) {
      break;
    }
    bool written = false;
    for (auto i = at; i < end && !written; i++) {
      written = !untouched(i);
    }
    run = written ? 0 : run + 1;
    if (run == least) {
      return at - (least - 1) * element;
    }
  }
  return std::nullopt;
}

std::optional<std::ptrdiff_t> Region::trespass() const {
  if (kind_ != Kind::Guarded || freed()) {
    return std::nullopt;
  }
  for (auto* p = data_; p != pages_; p--) {
    if (p[-1] != slack_byte) {
      return p - 1 - data_;
    }
  }
  for (auto* p = data_ + length_; p != pages_ + pages_length_; p++) {
    if (*p != slack_byte) {
      return p - data_;
    }
  }
  return std::nullopt;
}

bool was_freed(std::uintptr_t address) {
  auto covers = [&](std::uintptr_t data, std::size_t length) {
    return address >= data && address - data < std::max(length, host_page());
  };
  auto& r = registry();
  std::lock_guard lock(r.mutex);
  auto next = r.live.upper_bound(address);
  if (next != r.live.begin()) {
    auto [data, region] = *std::prev(next);
    if (covers(data, region->length())) {
      return region->freed();
    }
  }
  return std::any_of(
      r.quarantine.begin(), r.quarantine.end(), [&](auto& ghost) {
        return covers(ghost.data, ghost.length);
      });
}

std::shared_ptr<Region> find_region(std::uintptr_t address, std::size_t size) {
  auto& r = registry();
  std::lock_guard lock(r.mutex);
  auto next = r.live.upper_bound(address);
  if (next == r.live.begin()) {
    return nullptr;
  }
  auto [start, region] = *std::prev(next);
  if (region->freed() || address + size > start + region->length()) {
    return nullptr;
  }
  return region->weak_from_this().lock();
}

} // namespace metalsim
