#pragma once

#include <Metal/MTLFunctionConstantValues.hpp>

namespace MTL {

class FunctionDescriptor : public NS::Referencing<FunctionDescriptor> {
 public:
  static FunctionDescriptor* functionDescriptor();
  static FunctionDescriptor* alloc();
  void setName(const NS::String* name);
  void setSpecializedName(const NS::String* name);
  void setConstantValues(const FunctionConstantValues* values);

 protected:
  FunctionDescriptor() = default;
};

} // namespace MTL
