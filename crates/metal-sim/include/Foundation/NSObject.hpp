// Reference counting as in Objective-C: an object is created with one
// reference; the caller of alloc, new… or copy… owns one; all other objects are
// returned autoreleased.
#pragma once

#include <atomic>

#include <Foundation/NSTypes.hpp>

namespace NS {

class Object {
 public:
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  Object* retain();
  void release();
  Object* autorelease();
  UInteger retainCount() const;

 protected:
  Object() = default;
  virtual ~Object();

 private:
  std::atomic<Integer> references_{1};
};

// Adds retain, autorelease and init that return the class's own type.
template <class Class, class Base = Object>
class Referencing : public Base {
 public:
  Class* init() {
    return self();
  }
  Class* retain() {
    Object::retain();
    return self();
  }
  Class* autorelease() {
    Object::autorelease();
    return self();
  }

 protected:
  Referencing() = default;

 private:
  Class* self() {
    return static_cast<Class*>(this);
  }
};

} // namespace NS
