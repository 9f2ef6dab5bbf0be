// The few functions of CUDA's driver interface that the measurements need.
#pragma once

#include <cuda.h>

#include <memory>

#include "common.h"

namespace qmv {

inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) {
    const char* text = nullptr;
    cuGetErrorString(result, &text);
    throw std::runtime_error(
        std::string(what) + ": " + (text ? text : "unknown error"));
  }
}
#define QMV_CHECK(call) qmv::check(call, #call)

// The first device, with its primary context current.
class Device {
 public:
  Device() {
    QMV_CHECK(cuInit(0));
    QMV_CHECK(cuDeviceGet(&device_, 0));
    QMV_CHECK(cuDevicePrimaryCtxRetain(&context_, device_));
    QMV_CHECK(cuCtxSetCurrent(context_));
    QMV_CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  ~Device() {
    cuStreamDestroy(stream_);
    cuDevicePrimaryCtxRelease(device_);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  CUstream stream() const {
    return stream_;
  }
  void wait() const {
    QMV_CHECK(cuStreamSynchronize(stream_));
  }
  int attribute(CUdevice_attribute which) const {
    int value = 0;
    QMV_CHECK(cuDeviceGetAttribute(&value, which, device_));
    return value;
  }
  std::string name() const {
    char name[256] = {};
    QMV_CHECK(cuDeviceGetName(name, sizeof name, device_));
    return name;
  }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

// Device memory.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    QMV_CHECK(cuMemAlloc(&address_, bytes));
  }
  template <class T>
  explicit Memory(const std::vector<T>& values)
      : Memory(values.size() * sizeof(T)) {
    QMV_CHECK(cuMemcpyHtoD(address_, values.data(), bytes_));
  }
  ~Memory() {
    if (address_) {
      cuMemFree(address_);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory(Memory&& other) : address_(other.address_), bytes_(other.bytes_) {
    other.address_ = 0;
  }

  CUdeviceptr at(size_t offset = 0) const {
    return address_ + offset;
  }
  size_t bytes() const {
    return bytes_;
  }
  void set(unsigned char value, CUstream stream) const {
    QMV_CHECK(cuMemsetD8Async(address_, value, bytes_, stream));
  }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> values(bytes_ / sizeof(T));
    QMV_CHECK(cuMemcpyDtoH(values.data(), address_, bytes_));
    return values;
  }

 private:
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
};

// Cubins, loaded once.
class Modules {
 public:
  explicit Modules(std::string folder) : folder_(std::move(folder)) {}
  ~Modules() {
    for (const auto& [file, module] : modules_) {
      cuModuleUnload(module);
    }
  }
  Modules(const Modules&) = delete;
  Modules& operator=(const Modules&) = delete;

  CUfunction find(const std::string& file, const std::string& name) {
    auto& module = modules_[file];
    if (!module) {
      check(
          cuModuleLoad(&module, (folder_ + "/" + file).c_str()), file.c_str());
    }
    CUfunction function;
    check(cuModuleGetFunction(&function, module, name.c_str()), name.c_str());
    return function;
  }
  CUfunction find(const Kernel& kernel) {
    return find(kernel.file, kernel.name);
  }

 private:
  std::string folder_;
  std::map<std::string, CUmodule> modules_;
};

// The operands of a product: x (m, k), w (n, k), y (m, n). Those of a batch are
// stored one after another. In the fp modes, the global scale takes the place
// of the biases.
struct Operands {
  CUdeviceptr w, scales, biases, x, y;
  int k, n, m;
  int batch = 1;
};

inline int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

inline void
launch(const Kernel& kernel, CUfunction function, Operands o, CUstream stream) {
  const int columns = kernel.tile >= 2 ? ceil_div(o.m, kernel.tile) : o.m;
  // Distributes the rows evenly over the fewest tiles, as in qmv_streamed.cpp.
  int tile_rows = ceil_div(o.m, columns);
  void* arguments[] = {
      &o.w, &o.scales, &o.biases, &o.x, &o.y, &o.k, &o.n, &o.m, &tile_rows};
  check(
      cuLaunchKernel(
          function,
          columns,
          ceil_div(o.n, kernel.outputs()),
          o.batch,
          32,
          kernel.simdgroups(),
          1,
          0,
          stream,
          arguments,
          nullptr),
      kernel.name.c_str());
}

void check_identity(const std::string& folder, std::ostream& out);
void measure_times(const Options& options, std::ostream& out);

} // namespace qmv
