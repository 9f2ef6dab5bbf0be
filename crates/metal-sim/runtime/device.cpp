#include "runtime/device.h"

#include <cstring>

#include "runtime/event.h"
#include "runtime/fault.h"
#include "runtime/foundation.h"
#include "runtime/library.h"
#include "runtime/options.h"
#include "runtime/pipeline.h"
#include "runtime/queue.h"
#include "runtime/resource.h"

namespace metalsim {
namespace {

// Apple's page size; newBuffer with a pointer accepts only whole pages.
constexpr std::size_t wrap_alignment = 16384;

int generation() {
  auto& arch = options().arch;
  auto tens = arch[arch.size() - 3] - '0';
  auto ones = arch[arch.size() - 2] - '0';
  return tens * 10 + ones;
}

} // namespace
} // namespace metalsim

namespace MTL {

using namespace metalsim;

// Throws std::invalid_argument for an invalid setting: a null device would lose
// the reason.
Device* CreateSystemDefaultDevice() {
  options();
  FaultTrap::install();
  return new DeviceObject;
}

NS::Array* CopyAllDevices() {
  return make_array({CreateSystemDefaultDevice()});
}

NS::String* Architecture::name() const {
  return make_string(options().arch);
}

NS::String* Device::name() const {
  return make_string("Simulated Apple GPU (" + options().arch + ")");
}

Architecture* Device::architecture() const {
  return (new ArchitectureObject)->autorelease();
}

// From the generation: Apple7 is g13, and each later generation is the next
// family.
bool Device::supportsFamily(GPUFamily family) const {
  if (family >= GPUFamilyApple1 && family < GPUFamilyMac2) {
    return family - GPUFamilyApple7 <= generation() - 13;
  }
  return family == GPUFamilyMac2 || family == GPUFamilyMetal3 ||
      (family == GPUFamilyMetal4 && options().os >= Version{26, 0});
}

bool Device::hasUnifiedMemory() const {
  return true;
}

std::uint64_t Device::recommendedMaxWorkingSetSize() const {
  return options().memory / 4 * 3;
}

NS::UInteger Device::maxBufferLength() const {
  return options().memory / 4 * 3;
}

NS::UInteger Device::maxThreadgroupMemoryLength() const {
  return options().threadgroup_memory;
}

Size Device::maxThreadsPerThreadgroup() const {
  auto threads = options().max_threads;
  return Size(threads, threads, threads);
}

NS::UInteger Device::currentAllocatedSize() const {
  return allocated_bytes();
}

CommandQueue* Device::newCommandQueue() {
  return new CommandQueueObject;
}

Fence* Device::newFence() {
  return new FenceObject;
}

SharedEvent* Device::newSharedEvent() {
  return new SharedEventObject;
}

Heap* Device::newHeap(const HeapDescriptor* descriptor) {
  return new HeapObject(
      static_cast<const HeapDescriptorObject*>(descriptor)->size);
}

ResidencySet* Device::newResidencySet(
    const ResidencySetDescriptor*,
    NS::Error**) {
  return new ResidencySetObject;
}

Buffer* Device::newBuffer(NS::UInteger length, ResourceOptions options) {
  return length <= maxBufferLength() ? make_buffer(length, options) : nullptr;
}

Buffer* Device::newBuffer(
    const void* pointer,
    NS::UInteger length,
    ResourceOptions options) {
  auto* buffer = newBuffer(length, options);
  if (buffer) {
    std::memcpy(metalsim::as_object(buffer)->region->data(), pointer, length);
  }
  return buffer;
}

Buffer* Device::newBuffer(
    const void* pointer,
    NS::UInteger length,
    ResourceOptions options,
    const Deallocator& deallocator) {
  auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (!pointer || length == 0 || address % wrap_alignment != 0 ||
      length % wrap_alignment != 0) {
    return nullptr;
  }
  return wrap_buffer(const_cast<void*>(pointer), length, options, deallocator);
}

Library* Device::newLibrary(const NS::String* path, NS::Error** error) {
  return open_library(text_of(path), error);
}

Library* Device::newLibrary(
    const NS::String* source,
    const CompileOptions* options,
    NS::Error** error) {
  auto version = options ? options->languageVersion() : MTL::LanguageVersion4_0;
  return compile_library(text_of(source), version, error);
}

ComputePipelineState* Device::newComputePipelineState(
    const Function* function,
    NS::Error** error) {
  return make_pipeline(function, 0, error);
}

ComputePipelineState* Device::newComputePipelineState(
    const ComputePipelineDescriptor* descriptor,
    PipelineOption,
    const AutoreleasedComputePipelineReflection*,
    NS::Error** error) {
  auto& wanted = *static_cast<const PipelineDescriptorObject*>(descriptor);
  return make_pipeline(wanted.function.get(), wanted.max_threads, error);
}

} // namespace MTL
