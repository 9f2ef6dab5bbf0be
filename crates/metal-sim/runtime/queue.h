// The objects behind MTL::CommandQueue and MTL::CommandBuffer.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <Metal/Metal.hpp>

#include "runtime/commands.h"
#include "runtime/executor.h"

namespace metalsim {

class CommandBufferObject final : public MTL::CommandBuffer {
 public:
  CommandBufferObject(NS::SharedPtr<MTL::CommandQueue> queue, bool retained);

  MTL::ComputeCommandEncoder* encode(MTL::DispatchType type);
  void encode(EventCommand command);
  void add_scheduled(MTL::HandlerFunction handler);
  void add_completed(MTL::HandlerFunction handler);
  void commit();
  void wait(MTL::CommandBufferStatus least);

  MTL::CommandBufferStatus status() const;
  NS::Error* error() const;
  std::string label() const;
  void set_label(std::string label);

  // On the queue's thread. Returns when the completed handlers have run.
  void execute(KernelThread& thread);

  const NS::SharedPtr<MTL::CommandQueue> queue;
  const bool retained;
  const std::uint64_t id;

 private:
  std::optional<Fault> run(KernelThread& thread);
  std::optional<Fault> run(
      std::span<const std::shared_ptr<Encoded>> encoders,
      KernelThread& thread,
      std::vector<const Dispatch*>& done);
  void run_handlers(std::vector<MTL::HandlerFunction> handlers);
  void set_status(MTL::CommandBufferStatus status);

  std::vector<Command> commands_; // until commit the encoding thread's
  // The first region that was made after the last command buffer's commit.
  std::uint64_t fresh_{0};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  MTL::CommandBufferStatus status_{MTL::CommandBufferStatusNotEnqueued};
  bool handlers_done_{false};
  NS::SharedPtr<NS::Error> error_;
  std::vector<MTL::HandlerFunction> scheduled_;
  std::vector<MTL::HandlerFunction> completed_;
  std::string label_;
};

// Command buffers run one after another, on a thread of the queue's own.
class CommandQueueObject final : public MTL::CommandQueue {
 public:
  CommandQueueObject();
  ~CommandQueueObject() override;

  void submit(CommandBufferObject* buffer);

  const std::uint64_t id;
  std::string label() const;
  void set_label(std::string label);

  // The first region after the last commit.
  std::atomic<std::uint64_t> committed{0};

 private:
  // Outlives the queue: its thread may be the one that releases it.
  struct Line {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<NS::SharedPtr<CommandBufferObject>> buffers;
    bool closed{false};
  };
  static void serve(std::shared_ptr<Line> line);

  const std::shared_ptr<Line> line_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::string label_;
};

} // namespace metalsim
