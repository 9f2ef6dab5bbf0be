#pragma once

#include <Foundation/NSObject.hpp>

namespace NS {

// Retains its elements.
class Array : public Referencing<Array> {
 public:
  static Array* array();
  static Array* array(const Object* const* objects, UInteger count);

  UInteger count() const;
  template <class Class = Object>
  Class* object(UInteger index) const {
    return static_cast<Class*>(at(index));
  }

 protected:
  Array() = default;

 private:
  Object* at(UInteger index) const;
};

} // namespace NS
