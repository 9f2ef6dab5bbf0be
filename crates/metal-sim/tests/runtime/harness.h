// Helpers of the runtime's tests: checks, and the calls that every dispatch
// needs.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <Metal/Metal.hpp>

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

// Checks that the text contains every part; else prints the text.
#define CHECK_TEXT(text, ...)                     \
  for (std::string part : {__VA_ARGS__}) {        \
    if ((text).find(part) == std::string::npos) { \
      std::fprintf(                               \
          stderr,                                 \
          "%s:%d: expected \"%s\" in \"%s\"\n",   \
          __FILE__,                               \
          __LINE__,                               \
          part.c_str(),                           \
          std::string(text).c_str());             \
      std::exit(1);                               \
    }                                             \
  }

inline NS::SharedPtr<NS::AutoreleasePool> new_pool() {
  return NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
}

inline NS::String* string(const std::string& text) {
  return NS::String::string(text.c_str(), NS::UTF8StringEncoding);
}

// A device with one queue and the test library.
class Gpu {
 public:
  Gpu()
      : device(NS::TransferPtr(MTL::CreateSystemDefaultDevice())),
        queue(NS::TransferPtr(device->newCommandQueue())) {
    auto pool = new_pool();
    NS::Error* error = nullptr;
    library = NS::TransferPtr(
        device->newLibrary(string(TEST_KERNEL_DIR "/test.metallib"), &error));
    CHECK(library);
  }

  NS::SharedPtr<MTL::ComputePipelineState> pipeline(const std::string& name) {
    auto pool = new_pool();
    auto function = NS::TransferPtr(library->newFunction(string(name)));
    CHECK(function);
    NS::Error* error = nullptr;
    auto state = NS::TransferPtr(
        device->newComputePipelineState(function.get(), &error));
    CHECK(state);
    return state;
  }

  NS::SharedPtr<MTL::Buffer> buffer(std::size_t floats) {
    return bytes(floats * sizeof(float));
  }

  NS::SharedPtr<MTL::Buffer> buffer(std::vector<float> values) {
    auto made = buffer(values.size());
    std::copy(values.begin(), values.end(), floats(made));
    return made;
  }

  NS::SharedPtr<MTL::Buffer> bytes(std::size_t size) {
    return NS::TransferPtr(
        device->newBuffer(size, MTL::ResourceHazardTrackingModeUntracked));
  }

  static float* floats(const NS::SharedPtr<MTL::Buffer>& buffer) {
    return static_cast<float*>(buffer->contents());
  }

  NS::SharedPtr<MTL::CommandBuffer> command_buffer() {
    auto pool = new_pool();
    return NS::RetainPtr(queue->commandBufferWithUnretainedReferences());
  }

  NS::SharedPtr<MTL::Device> device;
  NS::SharedPtr<MTL::CommandQueue> queue;
  NS::SharedPtr<MTL::Library> library;
};

// Records into one encoder; bindings stay, as in Metal.
class Encoder {
 public:
  explicit Encoder(const NS::SharedPtr<MTL::CommandBuffer>& buffer) {
    auto pool = new_pool();
    encoder_ = NS::RetainPtr(
        buffer->computeCommandEncoder(MTL::DispatchTypeConcurrent));
  }

  Encoder& pipeline(const NS::SharedPtr<MTL::ComputePipelineState>& state) {
    encoder_->setComputePipelineState(state.get());
    return *this;
  }
  Encoder& bind(int index, const NS::SharedPtr<MTL::Buffer>& buffer) {
    encoder_->setBuffer(buffer.get(), 0, index);
    return *this;
  }
  Encoder& value(int index, float value) {
    encoder_->setBytes(&value, sizeof(value), index);
    return *this;
  }
  Encoder& threads(std::size_t count, std::size_t group = 32) {
    encoder_->dispatchThreads(MTL::Size(count, 1, 1), MTL::Size(group, 1, 1));
    return *this;
  }
  MTL::ComputeCommandEncoder* operator->() {
    return encoder_.get();
  }
  void end() {
    encoder_->endEncoding();
  }

 private:
  NS::SharedPtr<MTL::ComputeCommandEncoder> encoder_;
};

// Commits, waits, and returns the error's text; empty if there is none.
inline std::string finish(const NS::SharedPtr<MTL::CommandBuffer>& buffer) {
  auto pool = new_pool();
  buffer->commit();
  buffer->waitUntilCompleted();
  if (buffer->status() == MTL::CommandBufferStatusCompleted) {
    CHECK(!buffer->error());
    return "";
  }
  CHECK(buffer->status() == MTL::CommandBufferStatusError);
  return buffer->error()->localizedDescription()->utf8String();
}
