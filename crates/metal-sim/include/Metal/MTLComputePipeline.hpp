#pragma once

#include <Foundation/Foundation.hpp>

namespace MTL {

class Function;
class LinkedFunctions;
class ComputePipelineReflection;

using AutoreleasedComputePipelineReflection = ComputePipelineReflection*;

using PipelineOption = NS::UInteger;
enum : NS::UInteger {
  PipelineOptionNone = 0,
};

class ComputePipelineDescriptor
    : public NS::Referencing<ComputePipelineDescriptor> {
 public:
  static ComputePipelineDescriptor* alloc();
  void setComputeFunction(const Function* function);
  void setLinkedFunctions(const LinkedFunctions* functions);
  void setLabel(const NS::String* label);
  void setMaxTotalThreadsPerThreadgroup(NS::UInteger threads);

 protected:
  ComputePipelineDescriptor() = default;
};

class ComputePipelineState : public NS::Referencing<ComputePipelineState> {
 public:
  NS::String* label() const;
  NS::UInteger maxTotalThreadsPerThreadgroup() const;
  NS::UInteger threadExecutionWidth() const;
  NS::UInteger staticThreadgroupMemoryLength() const;

 protected:
  ComputePipelineState() = default;
};

} // namespace MTL
