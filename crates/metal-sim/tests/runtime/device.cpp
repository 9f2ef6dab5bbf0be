// Settings, libraries, and the record of what ran.
#include "harness.h"

#include <cstdlib>
#include <stdexcept>

#include <mach/vm_page_size.h>
#include <metal_sim.h>
#include <sys/sysctl.h>

namespace {

std::string taken(char* text) {
  std::string result = text ? text : "";
  metal_sim_free(text);
  return result;
}

void bad_settings_are_explained() {
  auto complaint = [](const char* name, const char* value) {
    return taken(metal_sim_configure(name, value));
  };
  CHECK_TEXT(
      complaint("MTL_SIM_ARCH", "applegpu_g12s"),
      "MTL_SIM_ARCH=\"applegpu_g12s\"",
      "expected applegpu_gNNc");
  CHECK_TEXT(complaint("MTL_SIM_ARCH", "g15x"), "expected applegpu_gNNc");
  CHECK_TEXT(complaint("MTL_SIM_OS", "13.0"), "expected a macOS version");
  CHECK_TEXT(complaint("MTL_SIM_OS", "26.x"), "expected a macOS version");
  CHECK_TEXT(complaint("MTL_SIM_MEMORY", "many"), "expected bytes");
  CHECK_TEXT(complaint("MTL_SIM_MEMORY", "99999999999G"), "expected bytes");
  CHECK_TEXT(complaint("MTL_SIM_THREADS", "0"), "at least 1");
  CHECK_TEXT(complaint("MTL_SIM_PAGE", "1000"), "power of two");
  CHECK_TEXT(complaint("MTL_SIM_GUARD", "yes"), "expected 0 or 1");
  CHECK_TEXT(complaint("MTL_SIM_SIMD_SUM", "tree"), "butterfly");
  CHECK_TEXT(complaint("MTL_SIM_TRACE", "/nonexistent/t"), "can be written");
  CHECK_TEXT(complaint("MTL_SIM_GPU", "m5"), "there are MTL_SIM_ARCH");
  CHECK_TEXT(complaint(nullptr, "m5"), "a name and a value");
}

// tests/runtime.rs passes the architectures that the crates know.
void architectures_are_those_of_the_crates() {
  const char* known = std::getenv("METAL_SIM_ARCHITECTURES");
  std::string accepted;
  for (int generation = 0; generation < 100; generation++) {
    for (char size = 'a'; size <= 'z'; size++) {
      const auto name = "applegpu_g" + std::to_string(generation) + size;
      if (taken(metal_sim_configure("MTL_SIM_ARCH", name.c_str())).empty()) {
        accepted += name + " ";
      }
    }
  }
  CHECK(known && accepted == known);
}

// The environment of this test holds a bad value; the call overrides it.
void the_environment_is_read_once() {
  try {
    MTL::CreateSystemDefaultDevice();
    CHECK(!"a bad environment was taken");
  } catch (const std::invalid_argument& error) {
    CHECK_TEXT(std::string(error.what()), "MTL_SIM_MAX_THREADS=\"1e3\"");
  }
  CHECK(taken(metal_sim_configure("MTL_SIM_MAX_THREADS", "512")) == "");
}

// Kernels that follow values do not count bytes: a count of 0 would be wrong.
void following_values_excludes_counting() {
  CHECK(taken(metal_sim_configure("MTL_SIM_CHECK", "init")) == "");
  CHECK(taken(metal_sim_configure("MTL_SIM_METER", "1")) == "");
  try {
    MTL::CreateSystemDefaultDevice();
    CHECK(!"both modes were taken");
  } catch (const std::invalid_argument& error) {
    CHECK_TEXT(
        std::string(error.what()), "MTL_SIM_METER", "MTL_SIM_CHECK=\"init\"");
  }
  CHECK(taken(metal_sim_configure("MTL_SIM_CHECK", "0")) == "");
  CHECK(taken(metal_sim_configure("MTL_SIM_METER", "0")) == "");
}

void the_device_is_a_parameter() {
  CHECK(taken(metal_sim_configure("MTL_SIM_ARCH", "g17s")) == "");
  CHECK(taken(metal_sim_configure("MTL_SIM_OS", "26.1")) == "");
  CHECK(taken(metal_sim_configure("MTL_SIM_MEMORY", "16G")) == "");
  CHECK(taken(metal_sim_configure("MTL_SIM_PAGE", "64")) == "");
  auto pool = new_pool();
  auto device = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  CHECK_TEXT(
      std::string(device->architecture()->name()->utf8String()),
      "applegpu_g17s");
  CHECK(__builtin_available(macOS 15, iOS 18, *));
  CHECK(__builtin_available(macOS 26.1, iOS 26.2, *));
  CHECK(!__builtin_available(macOS 26.2, iOS 26.2, tvOS 26.2, *));
  CHECK(!__builtin_available(macOS 27, *));
  CHECK(vm_page_size == 64);
  std::size_t memory = 0;
  std::size_t size = sizeof(memory);
  CHECK(sysctlbyname("hw.memsize", &memory, &size, nullptr, 0) == 0);
  CHECK(memory == std::size_t(16) << 30);
  CHECK(sysctlbyname("hw.ncpu", &memory, &size, nullptr, 0) == -1);
  CHECK(device->supportsFamily(MTL::GPUFamilyApple10));
  CHECK_TEXT(
      taken(metal_sim_configure("MTL_SIM_ARCH", "g13s")), "device is in use");
}

void libraries_answer_as_on_a_mac(Gpu& gpu) {
  auto pool = new_pool();
  CHECK(!gpu.library->newFunction(string("no_such_kernel")));
  NS::Error* error = nullptr;
  CHECK(!gpu.device->newLibrary(string("/nonexistent.metallib"), &error));
  CHECK_TEXT(
      std::string(error->localizedDescription()->utf8String()),
      "/nonexistent.metallib");
  CHECK(!gpu.device->newLibrary(string("/proc/self/exe"), &error));
  CHECK_TEXT(
      std::string(error->localizedDescription()->utf8String()),
      "not a library of the simulated device");

  auto function = NS::TransferPtr(gpu.library->newFunction(string("broken")));
  CHECK(function);
  CHECK(!gpu.device->newComputePipelineState(function.get(), &error));
  CHECK_TEXT(
      std::string(error->localizedDescription()->utf8String()),
      "broken does not compile");
}

void source_text_becomes_a_library(Gpu& gpu) {
  auto pool = new_pool();
  auto* options = MTL::CompileOptions::alloc()->init()->autorelease();
  NS::Error* error = nullptr;
  // More than fits into a pipe.
  std::string text(300000, ' ');
  auto library =
      NS::TransferPtr(gpu.device->newLibrary(string(text), options, &error));
  CHECK(library);
  CHECK(NS::TransferPtr(library->newFunction(string("fill"))));
  CHECK(!gpu.device->newLibrary(string("error" + text), options, &error));
  CHECK_TEXT(
      std::string(error->localizedDescription()->utf8String()),
      "error: planted");
}

void dispatches_are_counted_and_recorded(Gpu& gpu) {
  metal_sim_reset_counts();
  metal_sim_trace_start();
  CHECK(gpu.pipeline("fill")->maxTotalThreadsPerThreadgroup() == 512);
  for (int i = 0; i < 3; i++) {
    auto out = gpu.buffer(40);
    auto buffer = gpu.command_buffer();
    Encoder(buffer)
        .pipeline(gpu.pipeline("fill"))
        .bind(0, out)
        .value(1, 1)
        .threads(40)
        .end();
    CHECK(finish(buffer) == "");
  }
  CHECK(metal_sim_dispatch_count("fill") == 3);
  CHECK(metal_sim_dispatch_count("add_one") == 0);
  CHECK(metal_sim_dispatch_count(nullptr) == 3);
  CHECK(taken(metal_sim_dispatch_counts()) == "{\"fill\":3}");
  auto records = taken(metal_sim_trace_take());
  CHECK_TEXT(
      records,
      "\"kernel\":\"fill\",\"function\":\"fill\",\"grid\":[2,1,1],"
      "\"group\":[32,1,1],\"threads\":[40,1,1]",
      "{\"index\":0,\"name\":\"out\",\"buffer\":",
      "\"offset\":0,\"length\":160}",
      "{\"index\":1,\"name\":\"value\",\"bytes\":\"0000803f\"}");
  CHECK(std::count(records.begin(), records.end(), '\n') == 3);
  CHECK(taken(metal_sim_trace_take()) == "");
  metal_sim_trace_stop();
}

} // namespace

int main() {
  bad_settings_are_explained();
  architectures_are_those_of_the_crates();
  the_environment_is_read_once();
  following_values_excludes_counting();
  the_device_is_a_parameter();
  Gpu gpu;
  libraries_answer_as_on_a_mac(gpu);
  source_text_becomes_a_library(gpu);
  dispatches_are_counted_and_recorded(gpu);
}
