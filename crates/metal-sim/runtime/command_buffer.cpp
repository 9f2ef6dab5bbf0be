#include <atomic>

#include "runtime/checks.h"
#include "runtime/encoder.h"
#include "runtime/foundation.h"
#include "runtime/misuse.h"
#include "runtime/options.h"
#include "runtime/queue.h"
#include "runtime/trace.h"

namespace metalsim {
namespace {

std::atomic<std::uint64_t> next_id{1};

Fault misused(const std::string& what) {
  return {MTL::CommandBufferErrorInvalidResource, what};
}

} // namespace

CommandBufferObject::CommandBufferObject(
    NS::SharedPtr<MTL::CommandQueue> queue,
    bool retained)
    : queue(std::move(queue)), retained(retained), id(next_id++) {}

MTL::ComputeCommandEncoder* CommandBufferObject::encode(
    MTL::DispatchType type) {
  auto encoded = std::make_shared<Encoded>();
  commands_.push_back(encoded);
  auto* encoder = new EncoderObject(
      NS::RetainPtr(static_cast<MTL::CommandBuffer*>(this)),
      std::move(encoded),
      type);
  return encoder->autorelease();
}

void CommandBufferObject::encode(EventCommand command) {
  commands_.push_back(std::move(command));
}

void CommandBufferObject::add_scheduled(MTL::HandlerFunction handler) {
  std::lock_guard lock(mutex_);
  if (status_ >= MTL::CommandBufferStatusCommitted) {
    misuse("addScheduledHandler after commit");
  }
  scheduled_.push_back(std::move(handler));
}

void CommandBufferObject::add_completed(MTL::HandlerFunction handler) {
  std::lock_guard lock(mutex_);
  if (status_ >= MTL::CommandBufferStatusCommitted) {
    misuse("addCompletedHandler after commit");
  }
  completed_.push_back(std::move(handler));
}

void CommandBufferObject::commit() {
  {
    std::lock_guard lock(mutex_);
    if (status_ >= MTL::CommandBufferStatusCommitted) {
      misuse("a command buffer was committed twice");
    }
    status_ = MTL::CommandBufferStatusCommitted;
  }
  static_cast<CommandQueueObject*>(queue.get())->submit(this);
}

void CommandBufferObject::wait(MTL::CommandBufferStatus least) {
  std::unique_lock lock(mutex_);
  if (status_ < MTL::CommandBufferStatusCommitted) {
    misuse("waiting for a command buffer that was not committed");
  }
  changed_.wait(lock, [&] {
    return status_ >= least &&
        (least < MTL::CommandBufferStatusCompleted || handlers_done_);
  });
}

MTL::CommandBufferStatus CommandBufferObject::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

NS::Error* CommandBufferObject::error() const {
  std::lock_guard lock(mutex_);
  return error_.get();
}

std::string CommandBufferObject::label() const {
  std::lock_guard lock(mutex_);
  return label_;
}

void CommandBufferObject::set_label(std::string label) {
  std::lock_guard lock(mutex_);
  label_ = std::move(label);
}

void CommandBufferObject::set_status(MTL::CommandBufferStatus status) {
  std::lock_guard lock(mutex_);
  status_ = status;
  changed_.notify_all();
}

void CommandBufferObject::run_handlers(
    std::vector<MTL::HandlerFunction> handlers) {
  for (auto& handler : handlers) {
    handler(this);
    // Releases its objects now, while waiters still wait.
    handler = nullptr;
  }
}

void CommandBufferObject::execute(KernelThread& thread) {
  auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  set_status(MTL::CommandBufferStatusScheduled);
  run_handlers(std::move(scheduled_));
  auto fault = run(thread);
  // Commands hold buffers, pipelines and events; handlers may free these.
  commands_.clear();
  std::vector<MTL::HandlerFunction> handlers;
  {
    std::lock_guard lock(mutex_);
    if (fault) {
      error_ = NS::RetainPtr(make_error(fault->code, fault->text));
    }
    status_ = fault ? MTL::CommandBufferStatusError
                    : MTL::CommandBufferStatusCompleted;
    handlers.swap(completed_);
  }
  run_handlers(std::move(handlers));
  pool.reset();
  std::lock_guard lock(mutex_);
  handlers_done_ = true;
  changed_.notify_all();
}

// A fault ends the command buffer: later commands of it do not run, its later
// events are not signalled.
std::optional<Fault> CommandBufferObject::run(KernelThread& thread) {
  std::vector<const Dispatch*> done;
  std::vector<std::shared_ptr<Encoded>> encoders;
  auto flush = [&]() -> std::optional<Fault> {
    auto fault = run(encoders, thread, done);
    encoders.clear();
    return fault;
  };
  for (auto& command : commands_) {
    if (auto* encoded = std::get_if<std::shared_ptr<Encoded>>(&command)) {
      encoders.push_back(*encoded);
      continue;
    }
    if (auto fault = flush()) {
      return fault;
    }
    auto& event = std::get<EventCommand>(command);
    auto* shared = static_cast<SharedEventObject*>(event.event.get());
    if (event.signal) {
      // A thread that waits for the event may read the outputs.
      if (auto fault = check_outputs(done)) {
        return fault;
      }
      done.clear();
      shared->signal(event.value);
    } else {
      shared->wait(event.value, UINT64_MAX);
    }
  }
  if (auto fault = flush()) {
    return fault;
  }
  return check_outputs(done);
}

std::optional<Fault> CommandBufferObject::run(
    std::span<const std::shared_ptr<Encoded>> encoders,
    KernelThread& thread,
    std::vector<const Dispatch*>& done) {
  for (auto& encoded : encoders) {
    if (!encoded->misuse.empty()) {
      return misused(encoded->misuse);
    }
    if (!encoded->ended) {
      return misused("an encoder was not ended before the commit");
    }
  }
  auto seed = options().shuffle;
  if (seed) {
    *seed += id;
  }
  auto queue_id = static_cast<CommandQueueObject*>(queue.get())->id;
  auto ordered = order(encoders, seed);
  if (done.empty() && options().unwritten && options().run) {
    for (auto* dispatch : ordered) {
      note_data(*dispatch);
    }
  }
  for (auto* dispatch : ordered) {
    Outcome outcome;
    note_use(*dispatch);
    outcome.fault = check_before(*dispatch);
    if (!outcome.fault && options().run) {
      outcome = metalsim::execute(*dispatch, thread, seed);
      if (!outcome.fault) {
        outcome.fault = check_after(*dispatch);
      }
    }
    record(*dispatch, outcome, queue_id, id);
    if (outcome.fault) {
      return outcome.fault;
    }
    done.push_back(dispatch);
  }
  return std::nullopt;
}

} // namespace metalsim

namespace MTL {

using namespace metalsim;

namespace {

CommandBufferObject& as_object(CommandBuffer* buffer) {
  return *static_cast<CommandBufferObject*>(buffer);
}

const CommandBufferObject& as_object(const CommandBuffer* buffer) {
  return *static_cast<const CommandBufferObject*>(buffer);
}

EventCommand event_command(bool signal, const Event* event, std::uint64_t to) {
  auto* shared = static_cast<SharedEvent*>(const_cast<Event*>(event));
  return {signal, NS::RetainPtr(shared), to};
}

} // namespace

NS::String* CommandBuffer::label() const {
  auto label = as_object(this).label();
  return label.empty() ? nullptr : make_string(std::move(label));
}

void CommandBuffer::setLabel(const NS::String* label) {
  as_object(this).set_label(text_of(label));
}

CommandQueue* CommandBuffer::commandQueue() const {
  return as_object(this).queue.get();
}

bool CommandBuffer::retainedReferences() const {
  return as_object(this).retained;
}

CommandBufferStatus CommandBuffer::status() const {
  return as_object(this).status();
}

NS::Error* CommandBuffer::error() const {
  return as_object(this).error();
}

ComputeCommandEncoder* CommandBuffer::computeCommandEncoder() {
  return as_object(this).encode(DispatchTypeSerial);
}

ComputeCommandEncoder* CommandBuffer::computeCommandEncoder(DispatchType type) {
  return as_object(this).encode(type);
}

void CommandBuffer::encodeSignalEvent(const Event* event, std::uint64_t value) {
  as_object(this).encode(event_command(true, event, value));
}

void CommandBuffer::encodeWait(const Event* event, std::uint64_t value) {
  as_object(this).encode(event_command(false, event, value));
}

void CommandBuffer::addCompletedHandler(HandlerFunction handler) {
  as_object(this).add_completed(std::move(handler));
}

void CommandBuffer::addScheduledHandler(HandlerFunction handler) {
  as_object(this).add_scheduled(std::move(handler));
}

void CommandBuffer::commit() {
  as_object(this).commit();
}

void CommandBuffer::waitUntilScheduled() {
  as_object(this).wait(CommandBufferStatusScheduled);
}

void CommandBuffer::waitUntilCompleted() {
  as_object(this).wait(CommandBufferStatusCompleted);
}

} // namespace MTL
