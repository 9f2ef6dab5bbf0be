// The objects behind MTL::Library, MTL::Function and their descriptors.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <Metal/Metal.hpp>

#include "kernel_abi.h"

namespace metalsim {

// The index of a library made by metal-simc: its path and the names in it.
class Container {
 public:
  // Null, with the reason, if the file is not an index.
  static std::shared_ptr<const Container> open(
      const std::string& path,
      std::string& error);

  const std::string& path() const {
    return path_;
  }
  bool contains(std::string_view name) const;
  const std::vector<std::string>& names() const {
    return names_;
  }

 private:
  std::string path_;
  std::vector<std::string> names_; // sorted
};

class LibraryObject final : public MTL::Library {
 public:
  explicit LibraryObject(std::shared_ptr<const Container> container)
      : container(std::move(container)) {}
  const std::shared_ptr<const Container> container;
};

class FunctionObject final : public MTL::Function {
 public:
  FunctionObject(
      std::shared_ptr<const Container> container,
      std::string name,
      std::string specialized_name,
      std::vector<mtlsim_constant> constants)
      : container(std::move(container)),
        name(std::move(name)),
        specialized_name(std::move(specialized_name)),
        constants(std::move(constants)) {}
  const std::shared_ptr<const Container> container;
  const std::string name; // host name
  const std::string specialized_name;
  const std::vector<mtlsim_constant> constants;
};

class FunctionConstantValuesObject final : public MTL::FunctionConstantValues {
 public:
  std::vector<mtlsim_constant> values;
};

class FunctionDescriptorObject final : public MTL::FunctionDescriptor {
 public:
  std::string name;
  std::string specialized_name;
  std::vector<mtlsim_constant> constants;
};

class CompileOptionsObject final : public MTL::CompileOptions {
 public:
  MTL::MathMode math_mode{MTL::MathModeFast};
  MTL::LanguageVersion language_version{MTL::LanguageVersion4_0};
  bool logging{false};
};

class LinkedFunctionsObject final : public MTL::LinkedFunctions {};

MTL::Library* open_library(const std::string& path, NS::Error** error);
MTL::Library* compile_library(
    const std::string& source,
    MTL::LanguageVersion version,
    NS::Error** error);

} // namespace metalsim
