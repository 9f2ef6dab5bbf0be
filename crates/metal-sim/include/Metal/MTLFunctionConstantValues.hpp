#pragma once

#include <Foundation/Foundation.hpp>
#include <Metal/MTLDataType.hpp>

namespace MTL {

class FunctionConstantValues : public NS::Referencing<FunctionConstantValues> {
 public:
  static FunctionConstantValues* alloc();
  // Copies the value.
  void setConstantValue(const void* value, DataType type, NS::UInteger index);
  void reset();

 protected:
  FunctionConstantValues() = default;
};

} // namespace MTL
