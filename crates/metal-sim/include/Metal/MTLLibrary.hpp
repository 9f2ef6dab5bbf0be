#pragma once

#include <Foundation/Foundation.hpp>

namespace MTL {

class FunctionConstantValues;
class FunctionDescriptor;

enum MathMode : NS::Integer {
  MathModeSafe = 0,
  MathModeRelaxed = 1,
  MathModeFast = 2,
};

enum LanguageVersion : NS::UInteger {
  LanguageVersion3_0 = 3 << 16,
  LanguageVersion3_1 = (3 << 16) + 1,
  LanguageVersion3_2 = (3 << 16) + 2,
  LanguageVersion4_0 = 4 << 16,
};

class CompileOptions : public NS::Referencing<CompileOptions> {
 public:
  static CompileOptions* alloc();
  bool fastMathEnabled() const;
  void setFastMathEnabled(bool enabled);
  MathMode mathMode() const;
  void setMathMode(MathMode mode);
  LanguageVersion languageVersion() const;
  void setLanguageVersion(LanguageVersion version);
  bool enableLogging() const;
  void setEnableLogging(bool enabled);

 protected:
  CompileOptions() = default;
};

class Function : public NS::Referencing<Function> {
 public:
  NS::String* name() const;
  NS::String* label() const;

 protected:
  Function() = default;
};

class Library : public NS::Referencing<Library> {
 public:
  NS::Array* functionNames() const;
  // Null if the library has no function of that name.
  Function* newFunction(const NS::String* name);
  Function* newFunction(
      const FunctionDescriptor* descriptor,
      NS::Error** error);

 protected:
  Library() = default;
};

} // namespace MTL
