#pragma once

#include <Metal/MTLAllocation.hpp>

namespace MTL {

class Device;
class Heap;

enum StorageMode : NS::UInteger {
  StorageModeShared = 0,
  StorageModeManaged = 1,
  StorageModePrivate = 2,
  StorageModeMemoryless = 3,
};

using ResourceOptions = NS::UInteger;
enum : NS::UInteger {
  ResourceCPUCacheModeDefaultCache = 0,
  ResourceStorageModeShared = 0,
  ResourceStorageModeManaged = 1 << 4,
  ResourceStorageModePrivate = 2 << 4,
  ResourceHazardTrackingModeDefault = 0,
  ResourceHazardTrackingModeUntracked = 1 << 8,
  ResourceHazardTrackingModeTracked = 2 << 8,
};

class Resource : public NS::Referencing<Resource, Allocation> {
 public:
  NS::String* label() const;
  void setLabel(const NS::String* label);
  StorageMode storageMode() const;
  ResourceOptions resourceOptions() const;
  // Null for a resource that was not allocated from a heap.
  Heap* heap() const;

 protected:
  Resource() = default;
};

} // namespace MTL
