// The objects behind NS::String, NS::Error, NS::Array and NS::URL.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <Foundation/Foundation.hpp>

namespace metalsim {

// Autoreleased, like the result of a getter.
NS::String* make_string(std::string text);
NS::Error* make_error(NS::Integer code, std::string text);
// Takes over the caller's references.
NS::Array* make_array(std::vector<NS::Object*> objects);

// Empty for null.
std::string text_of(const NS::String* string);

inline void set_error(NS::Error** error, NS::Integer code, std::string text) {
  if (error) {
    *error = make_error(code, std::move(text));
  }
}

} // namespace metalsim
