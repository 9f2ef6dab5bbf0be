// With MTL_SIM_SHUFFLE, a missing barrier or fence changes results for some
// seed; with the barrier, no seed changes anything. The seed is per process, so
// the test runs many command buffers.
#include "harness.h"

#include <metal_sim.h>

namespace {

enum class Between { Nothing, Barrier, Fence, NoFence };

// b = a + 1, c = b + 1, with the given ordering between the two.
bool right(Gpu& gpu, Between between) {
  auto a = gpu.buffer(std::vector<float>(64, 1));
  auto b = gpu.buffer(std::vector<float>(64, 0));
  auto c = gpu.buffer(std::vector<float>(64, 0));
  auto add_one = gpu.pipeline("add_one");
  auto buffer = gpu.command_buffer();
  auto fence = NS::TransferPtr(gpu.device->newFence());
  Encoder first(buffer);
  first.pipeline(add_one).bind(0, a).bind(1, b).threads(64);
  if (between == Between::Fence || between == Between::NoFence) {
    first->updateFence(fence.get());
    first.end();
    Encoder second(buffer);
    second.pipeline(add_one).bind(0, b).bind(1, c).threads(64);
    if (between == Between::Fence) {
      second->waitForFence(fence.get());
    }
    second.end();
  } else {
    if (between == Between::Barrier) {
      first->memoryBarrier(MTL::BarrierScopeBuffers);
    }
    first.bind(0, b).bind(1, c).threads(64).end();
  }
  CHECK(finish(buffer) == "");
  return Gpu::floats(c)[63] == 3;
}

int times_right(Gpu& gpu, Between between) {
  int count = 0;
  for (int i = 0; i < 40; i++) {
    count += right(gpu, between);
  }
  return count;
}

} // namespace

int main(int argc, char**) {
  Gpu gpu;
  CHECK(times_right(gpu, Between::Barrier) == 40);
  CHECK(times_right(gpu, Between::Fence) == 40);
  if (argc > 1) {
    // Without a seed: program order.
    CHECK(times_right(gpu, Between::Nothing) == 40);
    CHECK(times_right(gpu, Between::NoFence) == 40);
  } else {
    CHECK(times_right(gpu, Between::Nothing) < 40);
    CHECK(times_right(gpu, Between::NoFence) < 40);
  }
}
