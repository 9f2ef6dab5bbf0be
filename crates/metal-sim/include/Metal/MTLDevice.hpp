#pragma once

#include <functional>

#include <Metal/MTLCommandQueue.hpp>
#include <Metal/MTLComputePipeline.hpp>
#include <Metal/MTLHeap.hpp>
#include <Metal/MTLLibrary.hpp>

namespace MTL {

class Fence;
class ResidencySet;
class ResidencySetDescriptor;
class SharedEvent;

enum GPUFamily : NS::Integer {
  GPUFamilyApple1 = 1001,
  GPUFamilyApple7 = 1007,
  GPUFamilyApple8 = 1008,
  GPUFamilyApple9 = 1009,
  GPUFamilyApple10 = 1010,
  GPUFamilyMac2 = 2002,
  GPUFamilyMetal3 = 5001,
  GPUFamilyMetal4 = 5002,
};

class Architecture : public NS::Referencing<Architecture> {
 public:
  NS::String* name() const;

 protected:
  Architecture() = default;
};

class Device : public NS::Referencing<Device> {
 public:
  using Deallocator = std::function<void(void*, NS::UInteger)>;

  NS::String* name() const;
  Architecture* architecture() const;
  bool supportsFamily(GPUFamily family) const;
  bool hasUnifiedMemory() const;
  std::uint64_t recommendedMaxWorkingSetSize() const;
  NS::UInteger maxBufferLength() const;
  NS::UInteger maxThreadgroupMemoryLength() const;
  Size maxThreadsPerThreadgroup() const;
  NS::UInteger currentAllocatedSize() const;

  CommandQueue* newCommandQueue();
  Fence* newFence();
  SharedEvent* newSharedEvent();
  Heap* newHeap(const HeapDescriptor* descriptor);
  ResidencySet* newResidencySet(
      const ResidencySetDescriptor* descriptor,
      NS::Error** error);

  Buffer* newBuffer(NS::UInteger length, ResourceOptions options);
  Buffer*
  newBuffer(const void* pointer, NS::UInteger length, ResourceOptions options);
  // Wraps the caller's memory without copying it.
  Buffer* newBuffer(
      const void* pointer,
      NS::UInteger length,
      ResourceOptions options,
      const Deallocator& deallocator);

  Library* newLibrary(const NS::String* path, NS::Error** error);
  Library* newLibrary(
      const NS::String* source,
      const CompileOptions* options,
      NS::Error** error);
  ComputePipelineState* newComputePipelineState(
      const Function* function,
      NS::Error** error);
  ComputePipelineState* newComputePipelineState(
      const ComputePipelineDescriptor* descriptor,
      PipelineOption options,
      const AutoreleasedComputePipelineReflection* reflection,
      NS::Error** error);

 protected:
  Device() = default;
};

Device* CreateSystemDefaultDevice();
NS::Array* CopyAllDevices();

} // namespace MTL
