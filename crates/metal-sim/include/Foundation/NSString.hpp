#pragma once

#include <Foundation/NSObject.hpp>

namespace NS {

enum StringEncoding : UInteger {
  ASCIIStringEncoding = 1,
  UTF8StringEncoding = 4,
};

class String : public Referencing<String> {
 public:
  static String* string();
  static String* string(const char* text, StringEncoding encoding);

  const char* utf8String() const;
  UInteger length() const;
  bool isEqualToString(const String* other) const;

 protected:
  String() = default;
};

} // namespace NS
