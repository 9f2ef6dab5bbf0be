// The objects behind MTL::Buffer, MTL::Heap and MTL::ResidencySet.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include <Metal/Metal.hpp>

#include "runtime/memory.h"

namespace metalsim {

class HeapObject;

class BufferObject final : public MTL::Buffer {
 public:
  BufferObject(
      std::shared_ptr<Region> region,
      MTL::ResourceOptions options,
      NS::SharedPtr<MTL::Heap> heap,
      MTL::Device::Deallocator deallocator);
  ~BufferObject() override;

  const std::shared_ptr<Region> region;
  const MTL::ResourceOptions options;
  const NS::SharedPtr<MTL::Heap> heap;
  std::string label;

 private:
  const MTL::Device::Deallocator deallocator_;
};

inline BufferObject* as_object(MTL::Buffer* buffer) {
  return static_cast<BufferObject*>(buffer);
}
inline const BufferObject* as_object(const MTL::Buffer* buffer) {
  return static_cast<const BufferObject*>(buffer);
}

class HeapObject final : public MTL::Heap {
 public:
  explicit HeapObject(std::size_t size) : size(size) {}

  // False if `length` does not fit.
  bool take(std::size_t length);
  void give_back(std::size_t length);

  const std::size_t size;
  std::atomic<std::size_t> used{0};
};

class HeapDescriptorObject final : public MTL::HeapDescriptor {
 public:
  std::size_t size{0};
  MTL::ResourceOptions options{0};
};

// Only records: memory of the host is always resident.
class ResidencySetObject final : public MTL::ResidencySet {
 public:
  mutable std::mutex mutex;
  std::set<const MTL::Allocation*> pending;
  std::set<const MTL::Allocation*> committed;
};

class ResidencySetDescriptorObject final : public MTL::ResidencySetDescriptor {
};

// Null if the host has no memory left or the length is zero.
MTL::Buffer* make_buffer(
    std::size_t length,
    MTL::ResourceOptions options,
    NS::SharedPtr<MTL::Heap> heap = {});
MTL::Buffer* wrap_buffer(
    void* data,
    std::size_t length,
    MTL::ResourceOptions options,
    MTL::Device::Deallocator deallocator);

std::size_t allocated_bytes();

} // namespace metalsim
