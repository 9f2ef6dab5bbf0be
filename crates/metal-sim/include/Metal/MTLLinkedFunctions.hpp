#pragma once

#include <Foundation/Foundation.hpp>

namespace MTL {

class LinkedFunctions : public NS::Referencing<LinkedFunctions> {
 public:
  static LinkedFunctions* linkedFunctions();
  static LinkedFunctions* alloc();
  void setFunctions(const NS::Array* functions);
  void setPrivateFunctions(const NS::Array* functions);

 protected:
  LinkedFunctions() = default;
};

} // namespace MTL
