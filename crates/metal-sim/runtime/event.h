// The objects behind MTL::SharedEvent and MTL::Fence.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include <Metal/Metal.hpp>

namespace metalsim {

class SharedEventObject final : public MTL::SharedEvent {
 public:
  std::uint64_t value() const;
  void signal(std::uint64_t value);
  bool wait(std::uint64_t value, std::uint64_t milliseconds);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t value_{0};
};

class FenceObject final : public MTL::Fence {
 public:
  std::string label;
};

} // namespace metalsim
