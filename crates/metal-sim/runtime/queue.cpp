#include "runtime/queue.h"

#include <atomic>

#include "runtime/foundation.h"

namespace metalsim {
namespace {

std::atomic<std::uint64_t> next_id{1};

} // namespace

CommandQueueObject::CommandQueueObject()
    : id(next_id++), line_(std::make_shared<Line>()), thread_(serve, line_) {}

CommandQueueObject::~CommandQueueObject() {
  {
    std::lock_guard lock(line_->mutex);
    line_->closed = true;
    line_->changed.notify_all();
  }
  // A command buffer holds its queue, so the last one may destroy the queue on
  // the queue's own thread.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void CommandQueueObject::submit(CommandBufferObject* buffer) {
  buffer->retain();
  std::lock_guard lock(line_->mutex);
  line_->buffers.push_back(NS::TransferPtr(buffer));
  line_->changed.notify_all();
}

void CommandQueueObject::serve(std::shared_ptr<Line> line) {
  KernelThread thread;
  std::unique_lock lock(line->mutex);
  for (;;) {
    line->changed.wait(
        lock, [&] { return line->closed || !line->buffers.empty(); });
    if (line->buffers.empty()) {
      return;
    }
    auto buffer = std::move(line->buffers.front());
    line->buffers.pop_front();
    lock.unlock();
    buffer->execute(thread);
    buffer.reset();
    lock.lock();
  }
}

std::string CommandQueueObject::label() const {
  std::lock_guard lock(mutex_);
  return label_;
}

void CommandQueueObject::set_label(std::string label) {
  std::lock_guard lock(mutex_);
  label_ = std::move(label);
}

} // namespace metalsim

namespace MTL {

using namespace metalsim;

namespace {

CommandBuffer* make_command_buffer(CommandQueue* queue, bool retained) {
  return (new CommandBufferObject(NS::RetainPtr(queue), retained))
      ->autorelease();
}

} // namespace

NS::String* CommandQueue::label() const {
  return make_string(static_cast<const CommandQueueObject*>(this)->label());
}

void CommandQueue::setLabel(const NS::String* label) {
  static_cast<CommandQueueObject*>(this)->set_label(text_of(label));
}

// Commands keep their objects alive in any case; without retained references,
// freeing a buffer too early is a fault.
CommandBuffer* CommandQueue::commandBuffer() {
  return make_command_buffer(this, true);
}

CommandBuffer* CommandQueue::commandBufferWithUnretainedReferences() {
  return make_command_buffer(this, false);
}

void CommandQueue::addResidencySet(const ResidencySet*) {}

void CommandQueue::addResidencySets(const ResidencySet* const*, NS::UInteger) {}

void CommandQueue::removeResidencySet(const ResidencySet*) {}

} // namespace MTL
