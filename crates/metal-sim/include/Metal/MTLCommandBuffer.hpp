#pragma once

#include <functional>

#include <Metal/MTLComputeCommandEncoder.hpp>

namespace MTL {

class CommandBuffer;
class CommandQueue;
class Event;

enum CommandBufferStatus : NS::UInteger {
  CommandBufferStatusNotEnqueued = 0,
  CommandBufferStatusEnqueued = 1,
  CommandBufferStatusCommitted = 2,
  CommandBufferStatusScheduled = 3,
  CommandBufferStatusCompleted = 4,
  CommandBufferStatusError = 5,
};

enum CommandBufferError : NS::UInteger {
  CommandBufferErrorNone = 0,
  CommandBufferErrorInternal = 1,
  CommandBufferErrorTimeout = 2,
  CommandBufferErrorPageFault = 3,
  CommandBufferErrorInvalidResource = 9,
};

using CommandBufferHandler = std::function<void(CommandBuffer*)>;
using HandlerFunction = CommandBufferHandler;

class CommandBuffer : public NS::Referencing<CommandBuffer> {
 public:
  NS::String* label() const;
  void setLabel(const NS::String* label);
  CommandQueue* commandQueue() const;
  bool retainedReferences() const;
  CommandBufferStatus status() const;
  // Null unless the status is CommandBufferStatusError.
  NS::Error* error() const;

  ComputeCommandEncoder* computeCommandEncoder();
  ComputeCommandEncoder* computeCommandEncoder(DispatchType type);
  void encodeSignalEvent(const Event* event, std::uint64_t value);
  void encodeWait(const Event* event, std::uint64_t value);

  // Runs once the work is done, with status() and error() set, before
  // waitUntilCompleted returns.
  void addCompletedHandler(HandlerFunction handler);
  void addScheduledHandler(HandlerFunction handler);
  void commit();
  void waitUntilScheduled();
  void waitUntilCompleted();

 protected:
  CommandBuffer() = default;
};

} // namespace MTL
