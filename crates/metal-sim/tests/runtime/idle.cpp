// With MTL_SIM_RUN=0 a dispatch is counted but not run, and outputs that no
// kernel wrote are not a fault.
#include "harness.h"

#include <metal_sim.h>

int main() {
  Gpu gpu;
  auto a = gpu.buffer(std::vector<float>(64, 1));
  auto b = gpu.buffer(std::vector<float>(64, 0));
  auto buffer = gpu.command_buffer();
  Encoder encoder(buffer);
  encoder.pipeline(gpu.pipeline("add_one")).bind(0, a).bind(1, b).threads(64);
  encoder.end();
  CHECK(finish(buffer) == "");
  CHECK(metal_sim_dispatch_count("add_one") == 1);
  CHECK(Gpu::floats(b)[63] == 0);
}
