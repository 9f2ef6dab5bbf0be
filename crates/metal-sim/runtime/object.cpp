// NS::Object and autorelease pools.
#include <pthread.h>
#include <cstddef>
#include <vector>

#include <Foundation/Foundation.hpp>

#include "runtime/misuse.h"

namespace metalsim {
namespace {

// The autoreleased objects of one thread, all pools in one stack. It lives
// behind a pthread key, not in a thread_local: key destructors run after
// those of thread_local objects, and MLX makes and drains pools in the latter.
// On the main thread it is never destroyed, for the same reason.
struct PoolStack {
  std::vector<NS::Object*> objects;

  void drain_to(std::size_t mark) {
    // A release may autorelease more.
    while (objects.size() > mark) {
      auto* object = objects.back();
      objects.pop_back();
      object->release();
    }
  }
};

pthread_key_t pool_key() {
  static const pthread_key_t key = [] {
    pthread_key_t made;
    if (pthread_key_create(&made, [](void* data) {
          auto* stack = static_cast<PoolStack*>(data);
          stack->drain_to(0);
          delete stack;
        }) != 0) {
      misuse("the process has no pthread key left for autorelease pools");
    }
    return made;
  }();
  return key;
}

PoolStack& pool_stack() {
  auto key = pool_key();
  auto* stack = static_cast<PoolStack*>(pthread_getspecific(key));
  if (!stack) {
    stack = new PoolStack;
    pthread_setspecific(key, stack);
  }
  return *stack;
}

class AutoreleasePoolObject final : public NS::AutoreleasePool {
 public:
  ~AutoreleasePoolObject() override {
    if (stack_) {
      if (stack_ != &pool_stack()) {
        misuse("an autorelease pool was released on another thread");
      }
      stack_->drain_to(mark_);
    }
  }

  void push() {
    stack_ = &pool_stack();
    mark_ = stack_->objects.size();
  }

 private:
  PoolStack* stack_{nullptr};
  std::size_t mark_{0};
};

} // namespace
} // namespace metalsim

namespace NS {

Object::~Object() = default;

Object* Object::retain() {
  references_.fetch_add(1, std::memory_order_relaxed);
  return this;
}

void Object::release() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    delete this;
  }
}

// Without a pool the object waits for the end of its thread, as in
// Objective-C.
Object* Object::autorelease() {
  metalsim::pool_stack().objects.push_back(this);
  return this;
}

UInteger Object::retainCount() const {
  return static_cast<UInteger>(references_.load(std::memory_order_relaxed));
}

AutoreleasePool* AutoreleasePool::alloc() {
  return new metalsim::AutoreleasePoolObject;
}

AutoreleasePool* AutoreleasePool::init() {
  static_cast<metalsim::AutoreleasePoolObject*>(this)->push();
  return this;
}

void AutoreleasePool::drain() {
  release();
}

void AutoreleasePool::addObject(Object* object) {
  object->autorelease();
}

} // namespace NS
