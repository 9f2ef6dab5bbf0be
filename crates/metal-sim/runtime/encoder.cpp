#include "runtime/encoder.h"

#include <cstring>
#include <limits>

#include "runtime/options.h"
#include "runtime/resource.h"

namespace metalsim {
namespace {

// The limit of setBytes.
constexpr std::size_t inline_bytes = 4096;

std::string text(MTL::Size size) {
  return std::to_string(size.width) + "x" + std::to_string(size.height) + "x" +
      std::to_string(size.depth);
}

bool fits(MTL::Size size) {
  constexpr NS::UInteger most = std::numeric_limits<std::uint32_t>::max();
  return size.width <= most && size.height <= most && size.depth <= most;
}

bool empty(MTL::Size size) {
  return size.width == 0 || size.height == 0 || size.depth == 0;
}

Extent extent(MTL::Size size) {
  return {
      static_cast<std::uint32_t>(size.width),
      static_cast<std::uint32_t>(size.height),
      static_cast<std::uint32_t>(size.depth)};
}

} // namespace

std::size_t Binding::length() const {
  switch (kind) {
    case Kind::Buffer:
      return region->length() - offset;
    case Kind::Bytes:
      return bytes->size();
    default:
      return 0;
  }
}

std::byte* Binding::data() const {
  switch (kind) {
    case Kind::Buffer:
      return region->data() + offset;
    case Kind::Bytes:
      // Kernels see it as constant.
      return const_cast<std::byte*>(bytes->data());
    default:
      return nullptr;
  }
}

void EncoderObject::complain(std::string what) {
  if (encoded_->misuse.empty()) {
    encoded_->misuse = std::move(what);
  }
}

bool EncoderObject::open(const char* call) {
  if (encoded_->ended) {
    complain(std::string(call) + " after endEncoding");
  }
  return !encoded_->ended;
}

void EncoderObject::set_pipeline(const MTL::ComputePipelineState* state) {
  if (!open("setComputePipelineState")) {
    return;
  }
  table_.pipeline =
      NS::RetainPtr(const_cast<MTL::ComputePipelineState*>(state));
  for (auto& binding : table_.bindings) {
    binding.fresh = false;
  }
}

void EncoderObject::bind(NS::UInteger index, Binding binding) {
  if (!open("setBuffer")) {
    return;
  }
  if (index >= MTLSIM_BUFFER_SLOTS) {
    complain(
        "buffer index " + std::to_string(index) + ", the last one is " +
        std::to_string(MTLSIM_BUFFER_SLOTS - 1));
  } else if (
      binding.kind == Binding::Kind::Buffer &&
      binding.offset > binding.region->length()) {
    complain(
        "buffer " + std::to_string(index) + ": offset " +
        std::to_string(binding.offset) + " in " +
        std::to_string(binding.region->length()) + " bytes");
  } else if (
      binding.kind == Binding::Kind::Bytes &&
      (binding.bytes->empty() || binding.bytes->size() > inline_bytes)) {
    complain(
        "setBytes at index " + std::to_string(index) + " with " +
        std::to_string(binding.bytes->size()) + " bytes, from 1 to " +
        std::to_string(inline_bytes) + " are allowed");
  } else {
    binding.fresh = true;
    table_.bindings[index] = std::move(binding);
  }
}

Binding* EncoderObject::bound(NS::UInteger index) {
  return index < MTLSIM_BUFFER_SLOTS ? &table_.bindings[index] : nullptr;
}

void EncoderObject::set_threadgroup_length(
    NS::UInteger length,
    NS::UInteger index) {
  if (!open("setThreadgroupMemoryLength")) {
    return;
  }
  auto limit = options().threadgroup_memory;
  if (index >= MTLSIM_THREADGROUP_SLOTS) {
    complain("threadgroup memory index " + std::to_string(index));
  } else if (length % 16 != 0) {
    complain(
        "threadgroup memory length " + std::to_string(length) +
        " is not a multiple of 16");
  } else if (length > limit) {
    complain(
        "threadgroup memory length " + std::to_string(length) +
        ", the device has " + std::to_string(limit));
  } else {
    table_.threadgroup_length[index] = static_cast<std::uint32_t>(length);
  }
}

void EncoderObject::dispatch(
    MTL::Size threads,
    MTL::Size group,
    MTL::Size groups) {
  if (!open("a dispatch")) {
    return;
  }
  if (!table_.pipeline) {
    complain("a dispatch without a pipeline state");
    return;
  }
  auto& state = table_.state();
  if (empty(threads) || empty(group) || !fits(threads) || !fits(group)) {
    complain(
        state.name + ": a grid of " + text(threads) +
        " threads in threadgroups of " + text(group));
    return;
  }
  auto in_group = group.width * group.height * group.depth;
  if (in_group > state.max_threads) {
    complain(
        state.name + ": a threadgroup of " + text(group) +
        " threads, the kernel takes " + std::to_string(state.max_threads));
    return;
  }
  auto dispatch = std::make_unique<Dispatch>(table_);
  dispatch->threadgroups = extent(groups);
  dispatch->threads_per_threadgroup = extent(group);
  dispatch->threads = extent(threads);
  encoded_->epochs.back().push_back(std::move(dispatch));
  if (type == MTL::DispatchTypeSerial) {
    barrier();
  }
}

void EncoderObject::barrier() {
  if (open("memoryBarrier") && !encoded_->epochs.back().empty()) {
    encoded_->epochs.emplace_back();
  }
}

void EncoderObject::wait(const MTL::Fence* fence) {
  if (open("waitForFence")) {
    encoded_->waits.push_back(NS::RetainPtr(const_cast<MTL::Fence*>(fence)));
  }
}

void EncoderObject::update(const MTL::Fence* fence) {
  if (open("updateFence")) {
    encoded_->updates.push_back(NS::RetainPtr(const_cast<MTL::Fence*>(fence)));
  }
}

void EncoderObject::end() {
  if (open("endEncoding")) {
    encoded_->ended = true;
  }
}

} // namespace metalsim

namespace MTL {

using namespace metalsim;

namespace {

EncoderObject& as_object(ComputeCommandEncoder* encoder) {
  return *static_cast<EncoderObject*>(encoder);
}

} // namespace

DispatchType ComputeCommandEncoder::dispatchType() const {
  return static_cast<const EncoderObject*>(this)->type;
}

void ComputeCommandEncoder::setLabel(const NS::String*) {}

void ComputeCommandEncoder::setComputePipelineState(
    const ComputePipelineState* state) {
  as_object(this).set_pipeline(state);
}

void ComputeCommandEncoder::setBuffer(
    const Buffer* buffer,
    NS::UInteger offset,
    NS::UInteger index) {
  Binding binding;
  if (buffer) {
    binding.kind = Binding::Kind::Buffer;
    binding.region = metalsim::as_object(buffer)->region;
    binding.offset = offset;
  }
  as_object(this).bind(index, std::move(binding));
}

void ComputeCommandEncoder::setBufferOffset(
    NS::UInteger offset,
    NS::UInteger index) {
  Binding binding;
  if (auto* bound = as_object(this).bound(index)) {
    binding = *bound;
  }
  binding.offset = offset;
  as_object(this).bind(index, std::move(binding));
}

void ComputeCommandEncoder::setBytes(
    const void* bytes,
    NS::UInteger length,
    NS::UInteger index) {
  auto* first = static_cast<const std::byte*>(bytes);
  Binding binding;
  binding.kind = Binding::Kind::Bytes;
  binding.bytes =
      std::make_shared<const std::vector<std::byte>>(first, first + length);
  as_object(this).bind(index, std::move(binding));
}

void ComputeCommandEncoder::setThreadgroupMemoryLength(
    NS::UInteger length,
    NS::UInteger index) {
  as_object(this).set_threadgroup_length(length, index);
}

void ComputeCommandEncoder::dispatchThreadgroups(
    Size threadgroupsPerGrid,
    Size threadsPerThreadgroup) {
  auto& groups = threadgroupsPerGrid;
  auto& group = threadsPerThreadgroup;
  as_object(this).dispatch(
      Size(
          groups.width * group.width,
          groups.height * group.height,
          groups.depth * group.depth),
      group,
      groups);
}

void ComputeCommandEncoder::dispatchThreads(
    Size threadsPerGrid,
    Size threadsPerThreadgroup) {
  auto groups = [](NS::UInteger threads, NS::UInteger group) {
    return group ? (threads + group - 1) / group : 0;
  };
  as_object(this).dispatch(
      threadsPerGrid,
      threadsPerThreadgroup,
      Size(
          groups(threadsPerGrid.width, threadsPerThreadgroup.width),
          groups(threadsPerGrid.height, threadsPerThreadgroup.height),
          groups(threadsPerGrid.depth, threadsPerThreadgroup.depth)));
}

void ComputeCommandEncoder::memoryBarrier(BarrierScope) {
  as_object(this).barrier();
}

void ComputeCommandEncoder::memoryBarrier(
    const Resource* const*,
    NS::UInteger) {
  as_object(this).barrier();
}

void ComputeCommandEncoder::waitForFence(const Fence* fence) {
  as_object(this).wait(fence);
}

void ComputeCommandEncoder::updateFence(const Fence* fence) {
  as_object(this).update(fence);
}

void ComputeCommandEncoder::endEncoding() {
  as_object(this).end();
}

} // namespace MTL
