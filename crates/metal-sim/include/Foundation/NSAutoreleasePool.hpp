#pragma once

#include <Foundation/NSObject.hpp>

namespace NS {

// Pools nest on the thread that creates them; releasing one drains it and every
// pool above it.
class AutoreleasePool : public Referencing<AutoreleasePool> {
 public:
  static AutoreleasePool* alloc();
  AutoreleasePool* init();
  void drain();
  void addObject(Object* object);

 protected:
  AutoreleasePool() = default;
};

} // namespace NS
