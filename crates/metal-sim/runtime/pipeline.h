// The objects behind MTL::ComputePipelineState and its descriptor.
#pragma once

#include <string>
#include <vector>

#include <Metal/Metal.hpp>

#include "kernel_abi.h"

namespace metalsim {

class PipelineObject final : public MTL::ComputePipelineState {
 public:
  PipelineObject(
      const mtlsim_kernel* kernel,
      std::string name,
      std::vector<mtlsim_constant> constants,
      std::uint32_t max_threads);

  // Whether the kernel has this argument with the given constants.
  bool takes(const mtlsim_argument& argument) const;

  const mtlsim_kernel& kernel; // lives as long as the process
  const std::string name; // specialised
  const std::vector<mtlsim_constant> constants;
  const std::uint32_t max_threads;
};

class PipelineDescriptorObject final : public MTL::ComputePipelineDescriptor {
 public:
  NS::SharedPtr<MTL::Function> function;
  std::uint32_t max_threads{0}; // 0: not set
};

// Compiles the function's kernel if it is not available.
MTL::ComputePipelineState* make_pipeline(
    const MTL::Function* function,
    std::uint32_t max_threads,
    NS::Error** error);

} // namespace metalsim
