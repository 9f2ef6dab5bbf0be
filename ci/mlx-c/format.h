// mlx-c uses std::format for messages, only with the format "{}", and does not
// include it. GCC has it from version 13 on. Not __cpp_lib_format: libc++ has
// std::format without that macro.
#pragma once

#if __has_include(<format>)
#include <format>
#else
#include <sstream>
#include <string>
#include <string_view>

namespace std {

template <typename... T>
string format(string_view text, const T&... values) {
  ostringstream out;
  auto put = [&](const auto& value) {
    const auto place = text.find("{}");
    out << text.substr(0, place);
    if (place != string_view::npos) {
      out << value;
      text.remove_prefix(place + 2);
    }
  };
  (put(values), ...);
  out << text;
  return out.str();
}

} // namespace std
#endif
