#pragma once

#include <Metal/MTLTypes.hpp>

namespace MTL {

class Buffer;
class ComputePipelineState;
class Fence;
class Resource;

enum DispatchType : NS::UInteger {
  DispatchTypeSerial = 0,
  DispatchTypeConcurrent = 1,
};

using BarrierScope = NS::UInteger;
enum : NS::UInteger {
  BarrierScopeBuffers = 1,
  BarrierScopeTextures = 2,
  BarrierScopeRenderTargets = 4,
};

class ComputeCommandEncoder : public NS::Referencing<ComputeCommandEncoder> {
 public:
  DispatchType dispatchType() const;
  void setLabel(const NS::String* label);
  void setComputePipelineState(const ComputePipelineState* state);
  void setBuffer(const Buffer* buffer, NS::UInteger offset, NS::UInteger index);
  void setBufferOffset(NS::UInteger offset, NS::UInteger index);
  void setBytes(const void* bytes, NS::UInteger length, NS::UInteger index);
  void setThreadgroupMemoryLength(NS::UInteger length, NS::UInteger index);
  void dispatchThreadgroups(
      Size threadgroupsPerGrid,
      Size threadsPerThreadgroup);
  void dispatchThreads(Size threadsPerGrid, Size threadsPerThreadgroup);
  void memoryBarrier(BarrierScope scope);
  void memoryBarrier(const Resource* const* resources, NS::UInteger count);
  void waitForFence(const Fence* fence);
  void updateFence(const Fence* fence);
  void endEncoding();

 protected:
  ComputeCommandEncoder() = default;
};

} // namespace MTL
