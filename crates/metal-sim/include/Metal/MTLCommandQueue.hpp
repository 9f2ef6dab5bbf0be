#pragma once

#include <Metal/MTLCommandBuffer.hpp>

namespace MTL {

class ResidencySet;

class CommandQueue : public NS::Referencing<CommandQueue> {
 public:
  NS::String* label() const;
  void setLabel(const NS::String* label);
  CommandBuffer* commandBuffer();
  CommandBuffer* commandBufferWithUnretainedReferences();
  void addResidencySet(const ResidencySet* set);
  void addResidencySets(const ResidencySet* const* sets, NS::UInteger count);
  void removeResidencySet(const ResidencySet* set);

 protected:
  CommandQueue() = default;
};

} // namespace MTL
