// Command buffers, events and fences: order, lifetimes, handlers.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "harness.h"

namespace {

void a_kernel_runs(Gpu& gpu) {
  auto out = gpu.buffer(100);
  auto buffer = gpu.command_buffer();
  Encoder(buffer)
      .pipeline(gpu.pipeline("fill"))
      .bind(0, out)
      .value(1, 3)
      .threads(100)
      .end();
  CHECK(finish(buffer) == "");
  for (int i = 0; i < 100; i++) {
    CHECK(Gpu::floats(out)[i] == 3);
  }
}

// One encoder after another; each reads the previous one's output.
void encoders_run_in_order(Gpu& gpu) {
  auto a = gpu.buffer(std::vector<float>(1000, 0));
  auto b = gpu.buffer(1000);
  auto add_one = gpu.pipeline("add_one");
  auto buffer = gpu.command_buffer();
  auto fence = NS::SharedPtr<MTL::Fence>();
  for (int step = 0; step < 100; step++) {
    Encoder encoder(buffer);
    if (fence) {
      encoder->waitForFence(fence.get());
    }
    fence = NS::TransferPtr(gpu.device->newFence());
    encoder.pipeline(add_one)
        .bind(0, step % 2 ? b : a)
        .bind(1, step % 2 ? a : b)
        .threads(1000);
    encoder->updateFence(fence.get());
    encoder.end();
  }
  CHECK(finish(buffer) == "");
  CHECK(Gpu::floats(a)[999] == 100);
}

void handlers_run_before_the_wait_ends(Gpu& gpu) {
  for (int i = 0; i < 200; i++) {
    auto ran = std::make_shared<std::atomic<int>>(0);
    auto buffer = gpu.command_buffer();
    for (int j = 1; j <= 3; j++) {
      buffer->addCompletedHandler([ran, j](MTL::CommandBuffer* done) {
        CHECK(done->status() == MTL::CommandBufferStatusCompleted);
        CHECK(ran->exchange(j) == j - 1);
      });
    }
    CHECK(finish(buffer) == "");
    CHECK(ran->load() == 3);
    // The objects held by the handlers are gone too.
    CHECK(ran.use_count() == 1);
  }
}

// Also if the wait begins after the work is done.
void a_late_wait_waits_for_handlers(Gpu& gpu) {
  bool ran = false;
  auto buffer = gpu.command_buffer();
  buffer->addCompletedHandler([&](MTL::CommandBuffer*) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ran = true;
  });
  buffer->commit();
  while (buffer->status() < MTL::CommandBufferStatusCompleted) {
    std::this_thread::yield();
  }
  buffer->waitUntilCompleted();
  CHECK(ran);
}

void an_event_orders_two_queues(Gpu& gpu) {
  auto other = NS::TransferPtr(gpu.device->newCommandQueue());
  auto event = NS::TransferPtr(gpu.device->newSharedEvent());
  auto x = gpu.buffer(std::vector<float>{1});
  auto y = gpu.buffer(1);
  auto z = gpu.buffer(1);
  auto add_one = gpu.pipeline("add_one");

  auto pool = new_pool();
  auto late = NS::RetainPtr(other->commandBufferWithUnretainedReferences());
  late->encodeWait(event.get(), 5);
  Encoder(late).pipeline(add_one).bind(0, y).bind(1, z).threads(1, 1).end();
  late->commit();

  auto early = gpu.command_buffer();
  Encoder(early).pipeline(add_one).bind(0, x).bind(1, y).threads(1, 1).end();
  early->encodeSignalEvent(event.get(), 5);
  CHECK(!event->waitUntilSignaledValue(5, 20));
  CHECK(finish(early) == "");
  CHECK(event->waitUntilSignaledValue(5, UINT64_MAX));
  late->waitUntilCompleted();
  CHECK(late->status() == MTL::CommandBufferStatusCompleted);
  CHECK(Gpu::floats(z)[0] == 3);
}

// MLX's fast fence: a kernel spins on a value that the host writes.
void a_spinning_kernel_sees_the_host(Gpu& gpu) {
  auto flag = gpu.buffer(std::vector<float>{0});
  auto out = gpu.buffer(64);
  auto waiting = gpu.command_buffer();
  Encoder(waiting)
      .pipeline(gpu.pipeline("spin"))
      .bind(0, flag)
      .value(1, 1)
      .threads(1, 1)
      .end();
  waiting->commit();

  auto other = NS::TransferPtr(gpu.device->newCommandQueue());
  auto pool = new_pool();
  auto work = NS::RetainPtr(other->commandBufferWithUnretainedReferences());
  Encoder(work)
      .pipeline(gpu.pipeline("fill"))
      .bind(0, out)
      .value(1, 2)
      .threads(64)
      .end();
  CHECK(finish(work) == "");
  CHECK(waiting->status() < MTL::CommandBufferStatusCompleted);
  // The kernel polls outside the memory model.
  *static_cast<volatile float*>(Gpu::floats(flag)) = 1;
  waiting->waitUntilCompleted();
}

// A hundred queues, each with its own lanes, would exceed a process's limit of
// mappings.
void queues_share_lanes(Gpu& gpu) {
  std::vector<NS::SharedPtr<MTL::CommandQueue>> queues;
  auto fill = gpu.pipeline("fill");
  auto out = gpu.buffer(1024);
  for (int i = 0; i < 100; i++) {
    auto pool = new_pool();
    queues.push_back(NS::TransferPtr(gpu.device->newCommandQueue()));
    auto buffer =
        NS::RetainPtr(queues.back()->commandBufferWithUnretainedReferences());
    Encoder(buffer)
        .pipeline(fill)
        .bind(0, out)
        .value(1, static_cast<float>(i))
        .threads(1024, 1024)
        .end();
    CHECK(finish(buffer) == "");
    CHECK(Gpu::floats(out)[1023] == i);
  }
}

// The last reference to a queue may be released on the queue's own thread.
void a_queue_may_go_first(Gpu& gpu) {
  for (int i = 0; i < 50; i++) {
    auto event = NS::TransferPtr(gpu.device->newSharedEvent());
    {
      auto pool = new_pool();
      auto queue = NS::TransferPtr(gpu.device->newCommandQueue());
      auto* buffer = queue->commandBufferWithUnretainedReferences();
      buffer->encodeWait(event.get(), 1);
      buffer->encodeSignalEvent(event.get(), 2);
      buffer->commit();
    }
    event->setSignaledValue(1);
    CHECK(event->waitUntilSignaledValue(2, UINT64_MAX));
  }
}

// Events and buffers may be released as soon as the wait for them is over.
void an_event_may_go_after_the_wait(Gpu& gpu) {
  for (int i = 0; i < 200; i++) {
    auto event = NS::TransferPtr(gpu.device->newSharedEvent());
    auto pool = new_pool();
    auto* buffer = gpu.queue->commandBufferWithUnretainedReferences();
    buffer->encodeSignalEvent(event.get(), 1);
    buffer->commit();
    CHECK(event->waitUntilSignaledValue(1, UINT64_MAX));
  }
}

void many_threads_many_queues(Gpu& gpu) {
  auto add_one = gpu.pipeline("add_one");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      auto queue = NS::TransferPtr(gpu.device->newCommandQueue());
      auto a = gpu.buffer(std::vector<float>(4096, 0));
      auto b = gpu.buffer(4096);
      for (int step = 0; step < 50; step++) {
        auto pool = new_pool();
        auto buffer =
            NS::RetainPtr(queue->commandBufferWithUnretainedReferences());
        Encoder encoder(buffer);
        encoder.pipeline(add_one).bind(0, a).bind(1, b).threads(4096, 64);
        encoder->memoryBarrier(MTL::BarrierScopeBuffers);
        encoder.bind(0, b).bind(1, a).threads(4096, 64).end();
        CHECK(finish(buffer) == "");
      }
      CHECK(Gpu::floats(a)[4095] == 100);
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

void heaps_run_full(Gpu& gpu) {
  auto pool = new_pool();
  auto* descriptor = MTL::HeapDescriptor::alloc()->init()->autorelease();
  descriptor->setSize(1024);
  auto heap = NS::TransferPtr(gpu.device->newHeap(descriptor));
  auto first = NS::TransferPtr(heap->newBuffer(1000, 0));
  CHECK(first && first->heap() == heap.get() && heap->usedSize() == 1000);
  CHECK(!NS::TransferPtr(heap->newBuffer(100, 0)));
  first.reset();
  CHECK(heap->usedSize() == 0);
  CHECK(NS::TransferPtr(heap->newBuffer(1024, 0)));
}

} // namespace

int main() {
  Gpu gpu;
  a_kernel_runs(gpu);
  encoders_run_in_order(gpu);
  handlers_run_before_the_wait_ends(gpu);
  a_late_wait_waits_for_handlers(gpu);
  an_event_orders_two_queues(gpu);
  a_spinning_kernel_sees_the_host(gpu);
  queues_share_lanes(gpu);
  a_queue_may_go_first(gpu);
  an_event_may_go_after_the_wait(gpu);
  many_threads_many_queues(gpu);
  heaps_run_full(gpu);
}
