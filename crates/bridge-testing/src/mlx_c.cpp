#include "bridge-testing/src/mlx_c.h"

#include <vector>

#include "mlx/device.h"
#include "mlx/stream.h"

namespace {

namespace core = mlx::core;

// A handle of mlx-c: a value on the heap, or null.
template <typename T>
struct Handle {
  void* ctx;

  T& get() {
    return *static_cast<T*>(ctx);
  }

  int set(const T& value) {
    if (ctx) {
      get() = value;
    } else {
      ctx = new T(value);
    }
    return 0;
  }

  int free() {
    delete static_cast<T*>(ctx);
    return 0;
  }
};

using Device = Handle<core::Device>;
using Stream = Handle<core::Stream>;
using Streams = Handle<std::vector<core::Stream>>;

} // namespace

extern "C" {

int mlx_get_streams(Streams* streams) {
  return streams->set(core::get_streams());
}

size_t mlx_vector_stream_size(Streams streams) {
  return streams.get().size();
}

int mlx_vector_stream_get(Stream* stream, Streams streams, size_t i) {
  return stream->set(streams.get().at(i));
}

int mlx_vector_stream_free(Streams streams) {
  return streams.free();
}

int mlx_stream_free(Stream stream) {
  return stream.free();
}

int mlx_stream_get_index(int* index, Stream stream) {
  *index = stream.get().index;
  return 0;
}

int mlx_stream_get_device(Device* device, Stream stream) {
  return device->set(stream.get().device);
}

int mlx_get_default_stream(Stream* stream, Device device) {
  return stream->set(core::default_stream(device.get()));
}

int mlx_set_default_stream(Stream stream) {
  core::set_default_stream(stream.get());
  return 0;
}

int mlx_get_default_device(Device* device) {
  return device->set(core::default_device());
}

int mlx_device_free(Device device) {
  return device.free();
}

bool mlx_device_equal(Device a, Device b) {
  return a.get() == b.get();
}

} // extern "C"

namespace mlx_overlay::testing {

void link_mlx_c() {}

} // namespace mlx_overlay::testing
