// The records of an encoder, which a queue executes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <Metal/Metal.hpp>

#include "kernel_abi.h"
#include "runtime/event.h"
#include "runtime/memory.h"
#include "runtime/pipeline.h"

namespace metalsim {

// One entry of the argument table. Bytes and regions are kept alive by it.
struct Binding {
  enum class Kind { Unset, Buffer, Bytes };
  Kind kind{Kind::Unset};
  std::shared_ptr<Region> region;
  std::size_t offset{0};
  std::shared_ptr<const std::vector<std::byte>> bytes;
  // Bound since the pipeline state that it is used with was set.
  bool fresh{false};

  std::size_t length() const;
  std::byte* data() const;
};

using Extent = std::array<std::uint32_t, 3>;

struct Dispatch {
  NS::SharedPtr<MTL::ComputePipelineState> pipeline;
  std::array<Binding, MTLSIM_BUFFER_SLOTS> bindings;
  std::array<std::uint32_t, MTLSIM_THREADGROUP_SLOTS> threadgroup_length{};
  Extent threadgroups{};
  Extent threads_per_threadgroup{};
  Extent threads{};

  const PipelineObject& state() const {
    return *static_cast<const PipelineObject*>(pipeline.get());
  }
};

// The dispatches of one encoder in program order, split at barriers: those of
// one epoch may run in any order.
struct Encoded {
  std::vector<std::vector<std::unique_ptr<Dispatch>>> epochs{1};
  std::vector<NS::SharedPtr<MTL::Fence>> waits;
  std::vector<NS::SharedPtr<MTL::Fence>> updates;
  bool ended{false};
  // The first error that Metal's validation would have reported.
  std::string misuse;
};

struct EventCommand {
  bool signal{false}; // else wait
  NS::SharedPtr<MTL::SharedEvent> event;
  std::uint64_t value{0};
};

using Command = std::variant<std::shared_ptr<Encoded>, EventCommand>;

// An order that barriers and fences allow for encoders of one command buffer:
// program order without a seed, else a random one.
std::vector<const Dispatch*> order(
    std::span<const std::shared_ptr<Encoded>> encoders,
    std::optional<std::uint64_t> seed);

} // namespace metalsim
