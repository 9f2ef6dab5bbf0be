#include "runtime/options.h"

#include <unistd.h>
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "engine.h"

namespace metalsim {
namespace {

using Set = std::function<bool(Options&, std::string_view)>;

struct Setting {
  const char* expected;
  Set set;
};

template <class Number>
bool parse(std::string_view text, Number& number, std::uint64_t least = 0) {
  Number value{};
  auto end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < Number(least)) {
    return false;
  }
  number = value;
  return true;
}

bool parse_size(std::string_view text, std::size_t& size) {
  constexpr std::string_view units = "KMG";
  int shift = 0;
  if (!text.empty()) {
    if (auto unit = units.find(text.back()); unit != units.npos) {
      shift = 10 * static_cast<int>(unit + 1);
      text.remove_suffix(1);
    }
  }
  std::size_t value;
  if (!parse(text, value, 1) || value > (SIZE_MAX >> shift)) {
    return false;
  }
  size = value << shift;
  return true;
}

// A bare generation and size class, such as g13s, is accepted too.
bool parse_arch(std::string_view text, std::string& arch) {
  constexpr std::string_view prefix = "applegpu_";
  auto tail = text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  int generation = 0;
  if (tail.size() != 4 || tail[0] != 'g' ||
      !parse(tail.substr(1, 2), generation) || generation < 13 ||
      generation > 18 ||
      std::string_view("pgscd").find(tail[3]) == std::string_view::npos) {
    return false;
  }
  arch = std::string(prefix).append(tail);
  return true;
}

bool parse_version(std::string_view text, Version& version) {
  auto dot = text.find('.');
  Version value;
  if (!parse(text.substr(0, dot), value.major) ||
      (dot != text.npos && !parse(text.substr(dot + 1), value.minor)) ||
      value.major < 14 || value.minor < 0) {
    return false;
  }
  version = value;
  return true;
}

bool parse_bool(std::string_view text, bool& value) {
  if (text != "0" && text != "1") {
    return false;
  }
  value = text == "1";
  return true;
}

const std::map<std::string, Setting, std::less<>>& settings() {
  static const auto* all = new std::map<std::string, Setting, std::less<>>{
      {"MTL_SIM_ARCH",
       {"applegpu_gNNc with NN from 13 to 18 and c one of p, g, s, c, d",
        [](auto& o, auto v) { return parse_arch(v, o.arch); }}},
      {"MTL_SIM_OS",
       {"a macOS version from 14 on, such as 26.0",
        [](auto& o, auto v) { return parse_version(v, o.os); }}},
      {"MTL_SIM_MEMORY",
       {"bytes, or a number with K, M or G",
        [](auto& o, auto v) { return parse_size(v, o.memory); }}},
      {"MTL_SIM_MAX_THREADS",
       {"a number of threads from 32 to 1024",
        [](auto& o, auto v) {
          return parse(v, o.max_threads, 32) && o.max_threads <= 1024;
        }}},
      {"MTL_SIM_THREADS",
       {"a number of host threads, at least 1",
        [](auto& o, auto v) { return parse(v, o.threads, 1); }}},
      {"MTL_SIM_PAGE",
       {"a power of two, at least 16",
        [](auto& o, auto v) {
          return parse_size(v, o.page) && o.page >= 16 &&
              std::has_single_bit(o.page);
        }}},
      {"MTL_SIM_SIMD_SUM",
       {"butterfly, neighbours or sequential",
        [](auto& o, auto v) {
          int order = mtlsim_reduction_from_name(std::string(v).c_str());
          o.simd_sum = static_cast<std::uint32_t>(order);
          return order >= 0;
        }}},
      {"MTL_SIM_COMPILER",
       {"the path of metal-simc",
        [](auto& o, auto v) {
          o.compiler = v;
          return ::access(o.compiler.c_str(), X_OK) == 0;
        }}},
      {"MTL_SIM_TRACE",
       {"the path of a file that can be written",
        [](auto& o, auto v) {
          o.trace = v;
          return std::ofstream(o.trace, std::ios::app).is_open();
        }}},
      {"MTL_SIM_GUARD",
       {"0 or 1", [](auto& o, auto v) { return parse_bool(v, o.guard); }}},
      {"MTL_SIM_UNWRITTEN",
       {"0 or 1", [](auto& o, auto v) { return parse_bool(v, o.unwritten); }}},
      {"MTL_SIM_STALE",
       {"0 or 1", [](auto& o, auto v) { return parse_bool(v, o.stale); }}},
      {"MTL_SIM_RUN",
       {"0 or 1", [](auto& o, auto v) { return parse_bool(v, o.run); }}},
      {"MTL_SIM_SHUFFLE",
       {"a number, the seed",
        [](auto& o, auto v) { return parse(v, o.shuffle.emplace()); }}},
      {"MTL_SIM_METER",
       {"0 or 1", [](auto& o, auto v) { return parse_bool(v, o.meter); }}},
      {"MTL_SIM_CHECK",
       {"0, access or init",
        [](auto& o, auto v) {
          o.check = v == "access" ? Check::Access
              : v == "init"       ? Check::Init
                                  : Check::Nothing;
          return v == "0" || o.check != Check::Nothing;
        }}},
      {"MTL_SIM_WATCHDOG",
       {"a number of seconds, 0 for no limit",
        [](auto& o, auto v) { return parse(v, o.watchdog); }}},
  };
  return *all;
}

struct State {
  std::mutex mutex;
  std::map<std::string, std::string> configured;
  bool frozen{false};
  Options options;
};

State& state() {
  static auto* state = new State;
  return *state;
}

std::string complaint(
    std::string_view name,
    std::string_view value,
    const Setting& setting) {
  return std::string(name) + "=\"" + std::string(value) + "\": expected " +
      setting.expected;
}

Options read_options(const std::map<std::string, std::string>& configured) {
  Options made;
  made.threads = std::max(1u, std::thread::hardware_concurrency());
  made.memory = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
      static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (auto& [name, setting] : settings()) {
    std::string value;
    if (auto it = configured.find(name); it != configured.end()) {
      value = it->second;
    } else if (auto* text = std::getenv(name.c_str())) {
      value = text;
    }
    if (!value.empty() && !setting.set(made, value)) {
      throw std::invalid_argument(complaint(name, value, setting));
    }
  }
  if (made.meter && made.check == Check::Init) {
    throw std::invalid_argument(
        "MTL_SIM_METER=\"1\" with MTL_SIM_CHECK=\"init\": kernels that follow "
        "values count no bytes; set one of the two, or MTL_SIM_CHECK=access, "
        "which counts");
  }
  return made;
}

} // namespace

const Options& options() {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  if (!s.frozen) {
    s.options = read_options(s.configured);
    s.frozen = true;
  }
  return s.options;
}

std::string configure(const std::string& name, const std::string& value) {
  auto setting = settings().find(name);
  if (setting == settings().end()) {
    std::string known;
    for (auto& [other, _] : settings()) {
      known += (known.empty() ? "" : ", ") + other;
    }
    return "no setting \"" + name + "\"; there are " + known;
  }
  if (Options scratch; !setting->second.set(scratch, value)) {
    return complaint(name, value, setting->second);
  }
  auto& s = state();
  std::lock_guard lock(s.mutex);
  if (s.frozen) {
    return name + " can no longer be changed: the device is in use";
  }
  s.configured[name] = value;
  return "";
}

} // namespace metalsim
