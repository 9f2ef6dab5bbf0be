#pragma once

#include <Foundation/NSObject.hpp>
#include <Foundation/NSString.hpp>

namespace NS {

class URL : public Referencing<URL> {
 public:
  static URL* fileURLWithPath(const String* path);
  const char* fileSystemRepresentation() const;

 protected:
  URL() = default;
};

} // namespace NS
