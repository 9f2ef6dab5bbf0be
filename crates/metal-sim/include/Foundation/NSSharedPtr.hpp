#pragma once

#include <cstddef>
#include <utility>

namespace NS {

// Owns one reference.
template <class Class>
class SharedPtr {
 public:
  SharedPtr() = default;
  SharedPtr(std::nullptr_t) {}
  SharedPtr(const SharedPtr& other) : SharedPtr(other.object_, Share{}) {}
  SharedPtr(SharedPtr&& other) noexcept : object_(other.detach()) {}
  template <class Other>
  SharedPtr(const SharedPtr<Other>& other) : SharedPtr(other.get(), Share{}) {}
  template <class Other>
  SharedPtr(SharedPtr<Other>&& other) noexcept : object_(other.detach()) {}
  ~SharedPtr() {
    reset();
  }

  SharedPtr& operator=(SharedPtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  Class* get() const {
    return object_;
  }
  Class* operator->() const {
    return object_;
  }
  explicit operator bool() const {
    return object_ != nullptr;
  }

  void reset() {
    if (auto* object = detach()) {
      object->release();
    }
  }
  // Gives the reference up without releasing it.
  Class* detach() {
    return std::exchange(object_, nullptr);
  }

  friend bool operator==(const SharedPtr& a, const SharedPtr& b) {
    return a.object_ == b.object_;
  }

 private:
  struct Share {};
  SharedPtr(Class* object, Share) : object_(object) {
    if (object_) {
      object_->retain();
    }
  }

  template <class Other>
  friend SharedPtr<Other> TransferPtr(Other* object);

  Class* object_{nullptr};
};

// Takes ownership of the caller's reference.
template <class Class>
SharedPtr<Class> TransferPtr(Class* object) {
  SharedPtr<Class> result;
  result.object_ = object;
  return result;
}

// Adds a reference to an object with another owner.
template <class Class>
SharedPtr<Class> RetainPtr(Class* object) {
  if (object) {
    object->retain();
  }
  return TransferPtr(object);
}

} // namespace NS
