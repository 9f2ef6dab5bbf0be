#include "runtime/trace.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>

#include "runtime/options.h"

namespace metalsim {
namespace {

struct Counts {
  std::string host_name;
  std::uint64_t dispatches{0};
};

struct State {
  std::mutex mutex;
  std::map<std::string, Counts> counts; // by specialised name
  std::uint64_t index{0};
  bool in_memory{false};
  std::string records;
  std::ofstream file;
};

State& state() {
  static auto* state = new State;
  return *state;
}

// The device is in use by now, so the settings are known.
std::ofstream& trace_file(State& s) {
  auto& path = options().trace;
  if (!path.empty() && !s.file.is_open()) {
    s.file.open(path, std::ios::app);
  }
  return s.file;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      result += escape;
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string array(const Extent& extent) {
  return "[" + std::to_string(extent[0]) + "," + std::to_string(extent[1]) +
      "," + std::to_string(extent[2]) + "]";
}

std::string hex(const std::vector<std::byte>& bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (auto byte : bytes) {
    text += digits[std::to_integer<int>(byte) >> 4];
    text += digits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

std::string binding_json(
    const mtlsim_argument& argument,
    const Binding& binding,
    const Outcome& outcome) {
  std::string json = "{\"index\":" + std::to_string(argument.index) +
      ",\"name\":" + quoted(argument.name);
  switch (binding.kind) {
    case Binding::Kind::Buffer:
      json += ",\"buffer\":" + std::to_string(binding.region->id()) +
          ",\"offset\":" + std::to_string(binding.offset) +
          ",\"length\":" + std::to_string(binding.length());
      break;
    case Binding::Kind::Bytes:
      json += ",\"bytes\":\"" + hex(*binding.bytes) + "\"";
      break;
    default:
      break;
  }
  if (options().meter) {
    json += ",\"loaded\":" + std::to_string(outcome.loaded[argument.index]) +
        ",\"stored\":" + std::to_string(outcome.stored[argument.index]);
  }
  return json + "}";
}

std::string dispatch_json(
    const Dispatch& dispatch,
    const Outcome& outcome,
    std::uint64_t index,
    std::uint64_t queue,
    std::uint64_t command_buffer) {
  auto& pipeline = dispatch.state();
  auto& kernel = pipeline.kernel;
  std::string json = "{\"dispatch\":" + std::to_string(index) +
      ",\"queue\":" + std::to_string(queue) +
      ",\"command_buffer\":" + std::to_string(command_buffer) +
      ",\"kernel\":" + quoted(kernel.host_name) +
      ",\"function\":" + quoted(pipeline.name) +
      ",\"grid\":" + array(dispatch.threadgroups) +
      ",\"group\":" + array(dispatch.threads_per_threadgroup) +
      ",\"threads\":" + array(dispatch.threads) + ",\"arguments\":[";
  std::string buffers;
  std::string threadgroup;
  for (std::uint32_t i = 0; i < kernel.argument_count; i++) {
    auto& argument = kernel.arguments[i];
    if (argument.address_space == MTLSIM_THREADGROUP) {
      threadgroup += (threadgroup.empty() ? "" : ",") +
          std::to_string(dispatch.threadgroup_length[argument.index]);
    } else if (pipeline.takes(argument)) {
      buffers += (buffers.empty() ? "" : ",") +
          binding_json(argument, dispatch.bindings[argument.index], outcome);
    }
  }
  json += buffers + "],\"threadgroup_memory\":[" + threadgroup + "]";
  if (outcome.fault) {
    json += ",\"fault\":" + quoted(outcome.fault->text);
  }
  return json + "}\n";
}

} // namespace

void record(
    const Dispatch& dispatch,
    const Outcome& outcome,
    std::uint64_t queue,
    std::uint64_t command_buffer) {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  auto& counts = s.counts[dispatch.state().name];
  counts.host_name = dispatch.state().kernel.host_name;
  counts.dispatches++;
  s.index++;
  auto& file = trace_file(s);
  if (!s.in_memory && !file.is_open()) {
    return;
  }
  auto json = dispatch_json(dispatch, outcome, s.index, queue, command_buffer);
  if (s.in_memory) {
    s.records += json;
  }
  if (file.is_open()) {
    file << json << std::flush;
  }
}

std::uint64_t dispatch_count(const char* kernel) {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  std::uint64_t count = 0;
  for (auto& [name, counts] : s.counts) {
    if (!kernel || name == kernel || counts.host_name == kernel) {
      count += counts.dispatches;
    }
  }
  return count;
}

std::string dispatch_counts() {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  std::string json;
  for (auto& [name, counts] : s.counts) {
    json += (json.empty() ? "" : ",") + quoted(name) + ":" +
        std::to_string(counts.dispatches);
  }
  return "{" + json + "}";
}

void reset_counts() {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  s.counts.clear();
}

void trace_start() {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  s.in_memory = true;
  s.records.clear();
}

std::string trace_take() {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  return std::move(s.records);
}

void trace_stop() {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  s.in_memory = false;
  s.records.clear();
}

} // namespace metalsim
