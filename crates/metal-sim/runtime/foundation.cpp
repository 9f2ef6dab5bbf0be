#include "runtime/foundation.h"

#include "runtime/misuse.h"

namespace metalsim {
namespace {

class StringObject final : public NS::String {
 public:
  explicit StringObject(std::string text) : text(std::move(text)) {}
  const std::string text;
};

class ErrorObject final : public NS::Error {
 public:
  ErrorObject(NS::Integer code, std::string text)
      : code(code), text(std::move(text)) {}
  const NS::Integer code;
  const std::string text;
};

class ArrayObject final : public NS::Array {
 public:
  explicit ArrayObject(std::vector<NS::Object*> objects)
      : objects(std::move(objects)) {}
  ~ArrayObject() override {
    for (auto* object : objects) {
      object->release();
    }
  }
  const std::vector<NS::Object*> objects;
};

class UrlObject final : public NS::URL {
 public:
  explicit UrlObject(std::string path) : path(std::move(path)) {}
  const std::string path;
};

const StringObject& as_object(const NS::String* string) {
  return *static_cast<const StringObject*>(string);
}

} // namespace

NS::String* make_string(std::string text) {
  return (new StringObject(std::move(text)))->autorelease();
}

NS::Error* make_error(NS::Integer code, std::string text) {
  return (new ErrorObject(code, std::move(text)))->autorelease();
}

NS::Array* make_array(std::vector<NS::Object*> objects) {
  return new ArrayObject(std::move(objects));
}

std::string text_of(const NS::String* string) {
  return string ? as_object(string).text : std::string();
}

} // namespace metalsim

namespace NS {

using namespace metalsim;

String* String::string() {
  return make_string("");
}

String* String::string(const char* text, StringEncoding) {
  return make_string(text);
}

const char* String::utf8String() const {
  return as_object(this).text.c_str();
}

UInteger String::length() const {
  return as_object(this).text.size();
}

bool String::isEqualToString(const String* other) const {
  return other && as_object(this).text == as_object(other).text;
}

Integer Error::code() const {
  return static_cast<const ErrorObject*>(this)->code;
}

String* Error::domain() const {
  return make_string("metal-sim");
}

String* Error::localizedDescription() const {
  return make_string(static_cast<const ErrorObject*>(this)->text);
}

Array* Array::array() {
  return make_array({})->autorelease();
}

Array* Array::array(const Object* const* objects, UInteger count) {
  std::vector<Object*> kept;
  kept.reserve(count);
  for (UInteger i = 0; i < count; i++) {
    kept.push_back(const_cast<Object*>(objects[i])->retain());
  }
  return make_array(std::move(kept))->autorelease();
}

UInteger Array::count() const {
  return static_cast<const ArrayObject*>(this)->objects.size();
}

Object* Array::at(UInteger index) const {
  auto& objects = static_cast<const ArrayObject*>(this)->objects;
  if (index >= objects.size()) {
    misuse("an array was read past its end");
  }
  return objects[index];
}

URL* URL::fileURLWithPath(const String* path) {
  return (new UrlObject(text_of(path)))->autorelease();
}

const char* URL::fileSystemRepresentation() const {
  return static_cast<const UrlObject*>(this)->path.c_str();
}

} // namespace NS
