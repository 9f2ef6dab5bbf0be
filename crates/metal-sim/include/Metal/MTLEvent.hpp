#pragma once

#include <Foundation/Foundation.hpp>

namespace MTL {

class Event : public NS::Referencing<Event> {
 protected:
  Event() = default;
};

class SharedEvent : public NS::Referencing<SharedEvent, Event> {
 public:
  std::uint64_t signaledValue() const;
  void setSignaledValue(std::uint64_t value);
  // False if the value is not reached within `milliseconds`.
  bool waitUntilSignaledValue(std::uint64_t value, std::uint64_t milliseconds);

 protected:
  SharedEvent() = default;
};

} // namespace MTL
