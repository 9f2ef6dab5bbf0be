#include "runtime/event.h"

#include <chrono>

#include "runtime/foundation.h"

namespace metalsim {
namespace {

// About a month; more than the clock's range would be undefined.
constexpr std::uint64_t longest_wait = std::uint64_t(1) << 31;

} // namespace

std::uint64_t SharedEventObject::value() const {
  std::lock_guard lock(mutex_);
  return value_;
}

// Notifies under the lock: a waiter may destroy the event as soon as it has
// seen the value.
void SharedEventObject::signal(std::uint64_t value) {
  std::lock_guard lock(mutex_);
  value_ = value;
  changed_.notify_all();
}

bool SharedEventObject::wait(std::uint64_t value, std::uint64_t milliseconds) {
  std::unique_lock lock(mutex_);
  auto reached = [&] { return value_ >= value; };
  if (milliseconds >= longest_wait) {
    changed_.wait(lock, reached);
    return true;
  }
  return changed_.wait_for(
      lock, std::chrono::milliseconds(milliseconds), reached);
}

} // namespace metalsim

namespace MTL {

using namespace metalsim;

std::uint64_t SharedEvent::signaledValue() const {
  return static_cast<const SharedEventObject*>(this)->value();
}

void SharedEvent::setSignaledValue(std::uint64_t value) {
  static_cast<SharedEventObject*>(this)->signal(value);
}

bool SharedEvent::waitUntilSignaledValue(
    std::uint64_t value,
    std::uint64_t milliseconds) {
  return static_cast<SharedEventObject*>(this)->wait(value, milliseconds);
}

NS::String* Fence::label() const {
  return make_string(static_cast<const FenceObject*>(this)->label);
}

void Fence::setLabel(const NS::String* label) {
  static_cast<FenceObject*>(this)->label = text_of(label);
}

} // namespace MTL
