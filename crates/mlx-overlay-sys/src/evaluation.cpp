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

// The streams on which an evaluation of the arrays would run something. MLX
// waits for the first output's alone.
std::vector<core::Stream> streams_of(const std::vector<core::array>& outputs) {
  std::vector<core::Stream> streams;
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
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
      streams.push_back(stream);
    }
    open.insert(open.end(), array.inputs().begin(), array.inputs().end());
  }
  return streams;
}

// An event that the stream signals when all work put on it so far is done.
core::Event mark(core::Stream stream) {
  core::Event event(stream);
  event.set_value(1);
  event.signal(stream);
  if (stream.device == core::Device::gpu) {
    core::gpu::finalize(stream);
  }
  return event;
}

// Waits for the streams, and takes their errors away: they would fail whoever
// uses the streams next.
void clear(const std::vector<core::Stream>& streams) noexcept {
  // On the process's main thread MLX throws an earlier error instead of
  // waiting. Each is thrown once.
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
    const std::vector<core::Stream>& streams) {
  std::vector<core::Event> events;
  try {
    core::async_eval(fresh);
    for (auto stream : streams) {
      auto own = [&](const core::array& output) {
        return output.event().valid() && output.event().stream() == stream;
      };
      auto output = std::find_if(fresh.begin(), fresh.end(), own);
      events.push_back(output == fresh.end() ? mark(stream) : output->event());
    }
  } catch (...) {
    clear(streams);
    throw;
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
    // An error is thrown once, to whoever waits first; this stays.
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
      why.empty() ? "mlx-overlay: work on this stream failed before" : why);
}

// A new array over memory that `keep` owns. MLX reuses the memory of an
// array's inputs only where it owns that memory; this view does not, so nothing
// writes to it.
core::array view(
    std::shared_ptr<core::array::Data> keep,
    const core::array& like) {
  auto buffer = keep->buffer();
  // The deleter frees nothing; it holds on to the owner.
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

Flight::~Flight() {
  Release release;
  if (release.allowed()) {
    events_.~vector();
  }
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
  auto used = streams_of(fresh);
  for (auto stream : used) {
    streams.push_back(from_mlx(stream));
  }
  return take_off(fresh, used);
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
    land(*take_off(fresh, streams_of(fresh)));
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
