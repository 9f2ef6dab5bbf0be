#pragma once

#include <Foundation/NSObject.hpp>
#include <Foundation/NSString.hpp>

namespace NS {

class Error : public Referencing<Error> {
 public:
  Integer code() const;
  String* domain() const;
  String* localizedDescription() const;

 protected:
  Error() = default;
};

} // namespace NS
