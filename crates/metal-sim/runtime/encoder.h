// The object behind MTL::ComputeCommandEncoder.
#pragma once

#include <memory>
#include <string>

#include <Metal/Metal.hpp>

#include "runtime/commands.h"

namespace metalsim {

class EncoderObject final : public MTL::ComputeCommandEncoder {
 public:
  EncoderObject(
      NS::SharedPtr<MTL::CommandBuffer> command_buffer,
      std::shared_ptr<Encoded> encoded,
      MTL::DispatchType type)
      : type(type),
        command_buffer_(std::move(command_buffer)),
        encoded_(std::move(encoded)) {}

  void set_pipeline(const MTL::ComputePipelineState* state);
  void bind(NS::UInteger index, Binding binding);
  Binding* bound(NS::UInteger index);
  void set_threadgroup_length(NS::UInteger length, NS::UInteger index);
  void dispatch(MTL::Size threads, MTL::Size group, MTL::Size groups);
  void barrier();
  void wait(const MTL::Fence* fence);
  void update(const MTL::Fence* fence);
  void end();

  const MTL::DispatchType type;

 private:
  // Keeps the first error; the command buffer fails with it.
  void complain(std::string what);
  bool open(const char* call);

  const NS::SharedPtr<MTL::CommandBuffer> command_buffer_;
  const std::shared_ptr<Encoded> encoded_;
  Dispatch table_; // what the next dispatch gets
};

} // namespace metalsim
