// Evaluations, and results in memory that is never written to again.

#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "mlx-overlay-sys/src/bridge.h"
#include "mlx/event.h"

namespace mlx_overlay {

// Locked shared while an evaluation is started. With an exclusive lock, every
// stream that has a part of an evaluation also has the event that ends it.
std::shared_mutex& starts();

// An evaluation in progress: an event for each stream that has a part of it.
// It is leaked instead of destroyed while the process exits.
class Flight {
 public:
  explicit Flight(std::vector<mlx::core::Event> events)
      : events_(std::move(events)) {}
  ~Flight();

  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  const std::vector<mlx::core::Event>& events() const {
    return events_;
  }

 private:
  union {
    std::vector<mlx::core::Event> events_;
  };
};

rust::Vec<bool> uses(const Array& result, rust::Slice<const ArrayRef> inputs);
bool is_same(const Array& a, const Array& b);
std::unique_ptr<Flight> start(
    rust::Slice<const ArrayRef> arrays,
    rust::Vec<RawStream>& streams);
bool is_over(const Flight& flight);
void finish(const Flight& flight);
void eval(rust::Slice<const ArrayRef> arrays);
std::unique_ptr<Array> settle(const Array& array, RawStream stream);
std::unique_ptr<Array> share(const Array& settled);
rust::Slice<const std::uint8_t> bytes(const Array& settled);

} // namespace mlx_overlay
