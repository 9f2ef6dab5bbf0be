#include "mlx-overlay-sys/src/evaluation.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "mlx-overlay-sys/src/convert.h"
#include "mlx-overlay-sys/src/lib.rs.h"
#include "mlx/backend/gpu/eval.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace mlx_overlay {

namespace {

namespace core = mlx::core;

bool is_lazy(const core::array& array) {
  return array.status() == core::array::Status::unscheduled;
}

// The part of an evaluation that runs on one stream.
struct Part {
  core::Stream stream;
  std::size_t arrays = 0;
  bool begun = false;
};

// The parts of an evaluation of the arrays. MLX itself only waits for the
// stream of the first output.
std::vector<Part> parts_of(const std::vector<core::array>& outputs) {
  std::vector<Part> parts;
  std::unordered_set<std::uintptr_t> seen;
  std::vector<std::reference_wrapper<const core::array>> open(
      outputs.begin(), outputs.end());
  while (!open.empty()) {
    const core::array& array = open.back();
    open.pop_back();
    if (!is_lazy(array) || !array.has_primitive() ||
        !seen.insert(array.id()).second) {
      continue;
    }
    auto stream = array.primitive().stream();
    auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& part) {
      return part.stream == stream;
    });
    if (part == parts.end()) {
      part = parts.insert(part, Part{stream});
    }
    ++part->arrays;
    part->begun |= array.event().valid();
    open.insert(open.end(), array.inputs().begin(), array.inputs().end());
  }
  return parts;
}

// The streams on which a failed evaluation started something. Other streams may
// never have run anything, and waiting would make MLX create a thread for them.
std::vector<core::Stream> begun(
    const std::vector<Part>& before,
    const std::vector<core::array>& outputs) {
  std::vector<core::Stream> streams;
  const auto now = parts_of(outputs);
  for (const auto& part : before) {
    const bool untouched =
        std::any_of(now.begin(), now.end(), [&](const Part& left) {
          return left.stream == part.stream && left.arrays == part.arrays &&
              !left.begun;
        });
    if (!untouched) {
      streams.push_back(part.stream);
    }
  }
  return streams;
}

// An event that the stream signals after all work submitted to it so far.
core::Event mark(core::Stream stream) {
  core::Event event(stream);
  event.set_value(1);
  event.signal(stream);
  if (stream.device == core::Device::gpu) {
    core::gpu::finalize(stream);
  }
  return event;
}

// Waits for the streams and discards their errors, which would otherwise fail
// the next user of the streams.
void clear(const std::vector<core::Stream>& streams) noexcept {
  // On the process's main thread MLX throws an earlier error instead of
  // waiting. Each error is thrown once.
  constexpr int most_errors = 100;
  for (auto stream : streams) {
    for (int i = 0; i < most_errors; ++i) {
      try {
        core::synchronize(stream);
        break;
      } catch (...) {
      }
    }
  }
}

std::vector<core::array> lazy_ones(const std::vector<core::array>& outputs) {
  std::vector<core::array> fresh;
  std::copy_if(
      outputs.begin(), outputs.end(), std::back_inserter(fresh), is_lazy);
  return fresh;
}

std::unique_ptr<Flight> take_off(
    const std::vector<core::array>& fresh,
    const std::vector<Part>& parts) {
  std::shared_lock lock(starts());
  std::vector<core::Event> events;
  try {
    core::async_eval(fresh);
    for (const auto& [stream, arrays, is_begun] : parts) {
      auto own = [&](const core::array& output) {
        return output.event().valid() && output.event().stream() == stream;
      };
      auto output = std::find_if(fresh.begin(), fresh.end(), own);
      events.push_back(output == fresh.end() ? mark(stream) : output->event());
    }
  } catch (...) {
    auto streams = begun(parts, fresh);
    std::for_each(streams.begin(), streams.end(), note_use);
    clear(streams);
    throw;
  }
  for (const auto& part : parts) {
    note_use(part.stream);
  }
  return std::make_unique<Flight>(std::move(events));
}

void land(const Flight& flight) {
  std::string why;
  bool failed = false;
  for (auto event : flight.events()) {
    try {
      event.wait();
    } catch (const std::exception& error) {
      why = failed ? why : error.what();
      failed = true;
    }
    // MLX throws an error once, to the first thread that waits; this one stays.
    failed |= event.load_error() != nullptr;
  }
  if (!failed) {
    return;
  }
  std::vector<core::Stream> streams;
  for (const auto& event : flight.events()) {
    streams.push_back(event.stream());
  }
  clear(streams);
  throw std::runtime_error(
      why.empty() ? "mlx-overlay: earlier work on this stream failed" : why);
}

// A new array over memory that `keep` owns. MLX reuses the memory of an
// array's inputs only if it owns that memory. It does not own this view, so
// nothing writes to it.
core::array view(
    std::shared_ptr<core::array::Data> keep,
    const core::array& like) {
  auto buffer = keep->buffer();
  // The deleter frees nothing; it keeps the owner alive.
  core::allocator::Data data(
      buffer, [keep = std::move(keep)](core::allocator::Buffer) {});
  core::array out(std::move(data), like.shape(), like.dtype());
  out.copy_shared_buffer(
      out,
      like.strides(),
      like.flags(),
      like.data_size(),
      like.offset() / static_cast<std::int64_t>(like.itemsize()));
  return out;
}

const core::array& settled_value(const Array& array) {
  if (!array.settled()) {
    throw std::logic_error("mlx-overlay: the array is not settled");
  }
  return array.get();
}

// A settled array over the memory of an evaluated one.
std::unique_ptr<Array> settled_view(const core::array& value) {
  auto memory = value.data_shared_ptr();
  if (!memory) {
    throw std::logic_error("mlx-overlay: the array has no memory");
  }
  return std::make_unique<Array>(view(std::move(memory), value), true);
}

} // namespace

std::shared_mutex& starts() {
  static auto* const mutex = new std::shared_mutex;
  return *mutex;
}

Flight::~Flight() {
  Release release;
  if (release.allowed()) {
    events_.~vector();
  }
}

rust::Vec<bool> uses(const Array& result, rust::Slice<const ArrayRef> inputs) {
  std::unordered_set<std::uintptr_t> ends;
  for (const auto& reference : inputs) {
    ends.insert(reference.array.get().id());
  }
  std::unordered_set<std::uintptr_t> seen;
  std::vector<std::reference_wrapper<const core::array>> open{result.get()};
  while (!open.empty()) {
    const core::array& array = open.back();
    open.pop_back();
    if (seen.insert(array.id()).second && !ends.contains(array.id()) &&
        is_lazy(array)) {
      open.insert(open.end(), array.inputs().begin(), array.inputs().end());
    }
  }
  rust::Vec<bool> used;
  for (const auto& reference : inputs) {
    used.push_back(seen.contains(reference.array.get().id()));
  }
  return used;
}

bool is_same(const Array& a, const Array& b) {
  return a.get().id() == b.get().id();
}

std::unique_ptr<Flight> start(
    rust::Slice<const ArrayRef> arrays,
    rust::Vec<RawStream>& streams) {
  std::vector<core::array> outputs;
  outputs.reserve(arrays.size());
  for (const auto& reference : arrays) {
    outputs.push_back(reference.array.get());
  }
  auto fresh = lazy_ones(outputs);
  auto parts = parts_of(fresh);
  for (const auto& part : parts) {
    streams.push_back(from_mlx(part.stream));
  }
  return take_off(fresh, parts);
}

bool is_over(const Flight& flight) {
  const auto& events = flight.events();
  return std::all_of(events.begin(), events.end(), [](const auto& event) {
    return event.is_signaled();
  });
}

void finish(const Flight& flight) {
  land(flight);
}

void eval(rust::Slice<const ArrayRef> arrays) {
  rust::Vec<RawStream> streams;
  land(*start(arrays, streams));
  for (const auto& reference : arrays) {
    auto output = reference.array.get();
    output.wait();
  }
}

std::unique_ptr<Array> settle(const Array& array, RawStream stream) {
  auto value = array.get();
  auto evaluate = [&] {
    auto fresh = lazy_ones({value});
    land(*take_off(fresh, parts_of(fresh)));
    value.wait();
  };
  evaluate();
  if (!value.flags().row_contiguous) {
    value = core::contiguous(value, false, to_mlx(stream));
    evaluate();
  }
  return settled_view(value);
}

std::unique_ptr<Array> share(const Array& settled) {
  return settled_view(settled_value(settled));
}

rust::Slice<const std::uint8_t> bytes(const Array& settled) {
  const auto& value = settled_value(settled);
  if (value.size() == 0) {
    return {};
  }
  return {value.data<std::uint8_t>(), value.nbytes()};
}

} // namespace mlx_overlay
