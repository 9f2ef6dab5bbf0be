#pragma once

#include <Metal/MTLBuffer.hpp>

namespace MTL {

class HeapDescriptor : public NS::Referencing<HeapDescriptor> {
 public:
  static HeapDescriptor* alloc();
  void setResourceOptions(ResourceOptions options);
  void setSize(NS::UInteger size);

 protected:
  HeapDescriptor() = default;
};

class Heap : public NS::Referencing<Heap, Allocation> {
 public:
  NS::UInteger size() const;
  NS::UInteger usedSize() const;
  // Null if the heap has no room for it.
  Buffer* newBuffer(NS::UInteger length, ResourceOptions options);

 protected:
  Heap() = default;
};

} // namespace MTL
