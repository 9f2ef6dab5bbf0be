#pragma once

#include <Metal/MTLAllocation.hpp>

namespace MTL {

class ResidencySetDescriptor : public NS::Referencing<ResidencySetDescriptor> {
 public:
  static ResidencySetDescriptor* alloc();
  void setInitialCapacity(NS::UInteger capacity);

 protected:
  ResidencySetDescriptor() = default;
};

// Changes take effect with commit().
class ResidencySet : public NS::Referencing<ResidencySet> {
 public:
  void addAllocation(const Allocation* allocation);
  void removeAllocation(const Allocation* allocation);
  void removeAllAllocations();
  bool containsAllocation(const Allocation* allocation) const;
  NS::UInteger allocationCount() const;
  NS::UInteger allocatedSize() const;
  void commit();
  void requestResidency();
  void endResidency();

 protected:
  ResidencySet() = default;
};

} // namespace MTL
