#include "runtime/resource.h"

#include "runtime/foundation.h"

namespace metalsim {
namespace {

std::atomic<std::size_t> allocated{0};

// Objective-C answers a message to nil with zero, and MLX asks the buffer of
// an empty array, which is nil, for its length. To ask it of `this` takes
// -fno-delete-null-pointer-checks.
#define METALSIM_MAY_BE_NIL __attribute__((no_sanitize("null")))
bool is_nil(const MTL::Buffer* buffer) {
  return buffer == nullptr;
}

} // namespace

BufferObject::BufferObject(
    std::shared_ptr<Region> region,
    MTL::ResourceOptions options,
    NS::SharedPtr<MTL::Heap> heap,
    MTL::Device::Deallocator deallocator)
    : region(std::move(region)),
      options(options),
      heap(std::move(heap)),
      deallocator_(std::move(deallocator)) {
  allocated += this->region->length();
}

BufferObject::~BufferObject() {
  allocated -= region->length();
  region->free();
  if (deallocator_) {
    deallocator_(region->data(), region->length());
  }
  if (heap) {
    static_cast<HeapObject*>(heap.get())->give_back(region->length());
  }
}

bool HeapObject::take(std::size_t length) {
  auto before = used.load();
  do {
    if (length > size - before) {
      return false;
    }
  } while (!used.compare_exchange_weak(before, before + length));
  return true;
}

void HeapObject::give_back(std::size_t length) {
  used -= length;
}

MTL::Buffer* make_buffer(
    std::size_t length,
    MTL::ResourceOptions options,
    NS::SharedPtr<MTL::Heap> heap) {
  auto region = length > 0 ? Region::allocate(length) : nullptr;
  if (!region) {
    return nullptr;
  }
  return new BufferObject(
      std::move(region), options, std::move(heap), MTL::Device::Deallocator());
}

MTL::Buffer* wrap_buffer(
    void* data,
    std::size_t length,
    MTL::ResourceOptions options,
    MTL::Device::Deallocator deallocator) {
  return new BufferObject(
      Region::wrap(data, length), options, {}, std::move(deallocator));
}

std::size_t allocated_bytes() {
  return allocated.load();
}

} // namespace metalsim

namespace MTL {

using namespace metalsim;

NS::UInteger Allocation::allocatedSize() const {
  if (auto* buffer = dynamic_cast<const BufferObject*>(this)) {
    return buffer->region->length();
  }
  return static_cast<const HeapObject*>(this)->size;
}

// Buffers are the only resources here.
NS::String* Resource::label() const {
  return make_string(static_cast<const BufferObject*>(this)->label);
}

void Resource::setLabel(const NS::String* label) {
  static_cast<BufferObject*>(this)->label = text_of(label);
}

ResourceOptions Resource::resourceOptions() const {
  return static_cast<const BufferObject*>(this)->options;
}

StorageMode Resource::storageMode() const {
  return static_cast<StorageMode>((resourceOptions() >> 4) & 0xf);
}

Heap* Resource::heap() const {
  return static_cast<const BufferObject*>(this)->heap.get();
}

// Private memory belongs to the GPU.
METALSIM_MAY_BE_NIL void* Buffer::contents() {
  return is_nil(this) || storageMode() == StorageModePrivate
      ? nullptr
      : as_object(this)->region->data();
}

METALSIM_MAY_BE_NIL NS::UInteger Buffer::length() const {
  return is_nil(this) ? 0 : as_object(this)->region->length();
}

HeapDescriptor* HeapDescriptor::alloc() {
  return new HeapDescriptorObject;
}

void HeapDescriptor::setResourceOptions(ResourceOptions options) {
  static_cast<HeapDescriptorObject*>(this)->options = options;
}

void HeapDescriptor::setSize(NS::UInteger size) {
  static_cast<HeapDescriptorObject*>(this)->size = size;
}

NS::UInteger Heap::size() const {
  return static_cast<const HeapObject*>(this)->size;
}

NS::UInteger Heap::usedSize() const {
  return static_cast<const HeapObject*>(this)->used.load();
}

Buffer* Heap::newBuffer(NS::UInteger length, ResourceOptions options) {
  auto* heap = static_cast<HeapObject*>(this);
  if (!heap->take(length)) {
    return nullptr;
  }
  auto* buffer =
      make_buffer(length, options, NS::RetainPtr(static_cast<Heap*>(heap)));
  if (!buffer) {
    heap->give_back(length);
  }
  return buffer;
}

ResidencySetDescriptor* ResidencySetDescriptor::alloc() {
  return new ResidencySetDescriptorObject;
}

void ResidencySetDescriptor::setInitialCapacity(NS::UInteger) {}

void ResidencySet::addAllocation(const Allocation* allocation) {
  auto* set = static_cast<ResidencySetObject*>(this);
  std::lock_guard lock(set->mutex);
  set->pending.insert(allocation);
}

void ResidencySet::removeAllocation(const Allocation* allocation) {
  auto* set = static_cast<ResidencySetObject*>(this);
  std::lock_guard lock(set->mutex);
  set->pending.erase(allocation);
}

void ResidencySet::removeAllAllocations() {
  auto* set = static_cast<ResidencySetObject*>(this);
  std::lock_guard lock(set->mutex);
  set->pending.clear();
}

bool ResidencySet::containsAllocation(const Allocation* allocation) const {
  auto* set = static_cast<const ResidencySetObject*>(this);
  std::lock_guard lock(set->mutex);
  return set->pending.count(allocation) != 0;
}

NS::UInteger ResidencySet::allocationCount() const {
  auto* set = static_cast<const ResidencySetObject*>(this);
  std::lock_guard lock(set->mutex);
  return set->pending.size();
}

NS::UInteger ResidencySet::allocatedSize() const {
  auto* set = static_cast<const ResidencySetObject*>(this);
  std::lock_guard lock(set->mutex);
  NS::UInteger bytes = 0;
  for (auto* allocation : set->committed) {
    bytes += allocation->allocatedSize();
  }
  return bytes;
}

void ResidencySet::commit() {
  auto* set = static_cast<ResidencySetObject*>(this);
  std::lock_guard lock(set->mutex);
  set->committed = set->pending;
}

void ResidencySet::requestResidency() {}

void ResidencySet::endResidency() {}

} // namespace MTL
