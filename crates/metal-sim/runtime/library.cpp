#include "runtime/library.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>

#include "runtime/compiler.h"
#include "runtime/foundation.h"

namespace metalsim {
namespace {

constexpr std::string_view magic = "mtlsim-metallib 1";

// "names <N> sources <S>"
bool read_name_count(const std::string& line, std::size_t& count) {
  constexpr std::string_view key = "names ";
  if (!line.starts_with(key)) {
    return false;
  }
  auto* begin = line.data() + key.size();
  auto* end = line.data() + line.size();
  return std::from_chars(begin, end, count).ec == std::errc();
}

std::size_t constant_bytes(MTL::DataType type) {
  switch (type) {
    case MTL::DataTypeBool:
    case MTL::DataTypeChar:
    case MTL::DataTypeUChar:
      return 1;
    case MTL::DataTypeHalf:
    case MTL::DataTypeBFloat:
    case MTL::DataTypeShort:
    case MTL::DataTypeUShort:
      return 2;
    case MTL::DataTypeLong:
    case MTL::DataTypeULong:
      return 8;
    default:
      return 4;
  }
}

} // namespace

std::shared_ptr<const Container> Container::open(
    const std::string& path,
    std::string& error) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    error = "library not found: " + path;
    return nullptr;
  }
  std::string line;
  std::size_t count = 0;
  if (!std::getline(file, line) || line != magic || !std::getline(file, line) ||
      !read_name_count(line, count)) {
    error = path + " is not a library of the simulated device: expected \"" +
        std::string(magic) + "\" in its first line";
    return nullptr;
  }
  auto container = std::make_shared<Container>();
  container->path_ = path;
  while (container->names_.size() < count && std::getline(file, line)) {
    container->names_.push_back(line.substr(0, line.find('\t')));
  }
  if (container->names_.size() != count) {
    error = path + " ends before its last name";
    return nullptr;
  }
  std::sort(container->names_.begin(), container->names_.end());
  return container;
}

bool Container::contains(std::string_view name) const {
  return std::binary_search(names_.begin(), names_.end(), name);
}

MTL::Library* open_library(const std::string& path, NS::Error** error) {
  std::string reason;
  auto container = Container::open(path, reason);
  if (!container) {
    set_error(error, 1, reason);
    return nullptr;
  }
  look_beside(path);
  return new LibraryObject(std::move(container));
}

// Of the options, only the language version matters: arithmetic here never uses
// the freedom of a faster math mode.
MTL::Library* compile_library(
    const std::string& source,
    MTL::LanguageVersion version,
    NS::Error** error) {
  auto number =
      std::to_string(version >> 16) + "." + std::to_string(version & 0xffff);
  auto answer = ask_compiler(
      {"library", "--source", "-", "--language-version", number}, source);
  if (answer.status != 0) {
    set_error(error, 3, answer.message);
    return nullptr;
  }
  return open_library(answer.path, error);
}

} // namespace metalsim

namespace MTL {

using namespace metalsim;

NS::String* Function::name() const {
  return make_string(static_cast<const FunctionObject*>(this)->name);
}

NS::String* Function::label() const {
  return make_string(
      static_cast<const FunctionObject*>(this)->specialized_name);
}

NS::Array* Library::functionNames() const {
  std::vector<NS::Object*> names;
  for (auto& name :
       static_cast<const LibraryObject*>(this)->container->names()) {
    names.push_back(make_string(name)->retain());
  }
  return make_array(std::move(names))->autorelease();
}

Function* Library::newFunction(const NS::String* name) {
  auto& container = static_cast<LibraryObject*>(this)->container;
  auto text = text_of(name);
  return container->contains(text)
      ? new FunctionObject(container, text, text, {})
      : nullptr;
}

Function* Library::newFunction(
    const FunctionDescriptor* descriptor,
    NS::Error** error) {
  auto& container = static_cast<LibraryObject*>(this)->container;
  auto& wanted = *static_cast<const FunctionDescriptorObject*>(descriptor);
  if (!container->contains(wanted.name)) {
    set_error(
        error, 2, "no function " + wanted.name + " in " + container->path());
    return nullptr;
  }
  return new FunctionObject(
      container,
      wanted.name,
      wanted.specialized_name.empty() ? wanted.name : wanted.specialized_name,
      wanted.constants);
}

FunctionConstantValues* FunctionConstantValues::alloc() {
  return new FunctionConstantValuesObject;
}

void FunctionConstantValues::setConstantValue(
    const void* value,
    DataType type,
    NS::UInteger index) {
  auto& values = static_cast<FunctionConstantValuesObject*>(this)->values;
  mtlsim_constant constant{};
  constant.index = static_cast<std::uint32_t>(index);
  constant.type = static_cast<std::uint32_t>(type);
  std::memcpy(&constant.raw, value, constant_bytes(type));
  auto same = std::find_if(values.begin(), values.end(), [&](auto& other) {
    return other.index == constant.index;
  });
  if (same != values.end()) {
    *same = constant;
  } else {
    values.push_back(constant);
  }
}

void FunctionConstantValues::reset() {
  static_cast<FunctionConstantValuesObject*>(this)->values.clear();
}

FunctionDescriptor* FunctionDescriptor::functionDescriptor() {
  return (new FunctionDescriptorObject)->autorelease();
}

FunctionDescriptor* FunctionDescriptor::alloc() {
  return new FunctionDescriptorObject;
}

void FunctionDescriptor::setName(const NS::String* name) {
  static_cast<FunctionDescriptorObject*>(this)->name = text_of(name);
}

void FunctionDescriptor::setSpecializedName(const NS::String* name) {
  static_cast<FunctionDescriptorObject*>(this)->specialized_name =
      text_of(name);
}

void FunctionDescriptor::setConstantValues(
    const FunctionConstantValues* values) {
  static_cast<FunctionDescriptorObject*>(this)->constants =
      static_cast<const FunctionConstantValuesObject*>(values)->values;
}

CompileOptions* CompileOptions::alloc() {
  return new CompileOptionsObject;
}

MathMode CompileOptions::mathMode() const {
  return static_cast<const CompileOptionsObject*>(this)->math_mode;
}

void CompileOptions::setMathMode(MathMode mode) {
  static_cast<CompileOptionsObject*>(this)->math_mode = mode;
}

bool CompileOptions::fastMathEnabled() const {
  return mathMode() == MathModeFast;
}

void CompileOptions::setFastMathEnabled(bool enabled) {
  setMathMode(enabled ? MathModeFast : MathModeSafe);
}

LanguageVersion CompileOptions::languageVersion() const {
  return static_cast<const CompileOptionsObject*>(this)->language_version;
}

void CompileOptions::setLanguageVersion(LanguageVersion version) {
  static_cast<CompileOptionsObject*>(this)->language_version = version;
}

bool CompileOptions::enableLogging() const {
  return static_cast<const CompileOptionsObject*>(this)->logging;
}

void CompileOptions::setEnableLogging(bool enabled) {
  static_cast<CompileOptionsObject*>(this)->logging = enabled;
}

LinkedFunctions* LinkedFunctions::linkedFunctions() {
  return (new LinkedFunctionsObject)->autorelease();
}

LinkedFunctions* LinkedFunctions::alloc() {
  return new LinkedFunctionsObject;
}

void LinkedFunctions::setFunctions(const NS::Array*) {}

void LinkedFunctions::setPrivateFunctions(const NS::Array*) {}

} // namespace MTL
