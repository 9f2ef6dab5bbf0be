#include "runtime/pipeline.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "runtime/compiler.h"
#include "runtime/foundation.h"
#include "runtime/library.h"
#include "runtime/options.h"

namespace metalsim {
namespace {

class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : descriptor_(::open(
            path.c_str(),
            O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const {
    return descriptor_;
  }

 private:
  const int descriptor_;
};

// Why another user could change the file; empty if none could.
std::string risk_of(int descriptor) {
  struct stat file {};
  if (descriptor < 0 || ::fstat(descriptor, &file) != 0) {
    return std::strerror(errno);
  }
  if (!S_ISREG(file.st_mode)) {
    return "it is not a regular file";
  }
  if (file.st_uid != ::geteuid() && file.st_uid != 0) {
    return "it belongs to user " + std::to_string(file.st_uid);
  }
  if (file.st_mode & (S_IWGRP | S_IWOTH)) {
    return "other users can write it";
  }
  return "";
}

// A name of the open file that is new to dlopen: descriptor numbers are reused,
// and dlopen identifies a library by its name.
std::string fresh_name(int descriptor) {
  static std::atomic<std::uint32_t> next{0};
  std::string name = "/proc/self/";
  for (auto n = next++; n != 0; n /= 2) {
    name += n % 2 ? "./" : "/";
  }
  return name + "fd/" + std::to_string(descriptor);
}

// Loads the file that was checked, even if another file has its path now.
// Kernels are never unloaded: at process exit one may still run.
const mtlsim_kernel* load_kernel(const std::string& path, std::string& error) {
  OpenFile file(path);
  if (auto risk = risk_of(file.descriptor()); !risk.empty()) {
    error = path + " is not loaded: " + risk;
    return nullptr;
  }
  void* handle =
      ::dlopen(fresh_name(file.descriptor()).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    error = path + " cannot be loaded: " + ::dlerror();
    return nullptr;
  }
  auto* kernel =
      static_cast<const mtlsim_kernel*>(::dlsym(handle, MTLSIM_KERNEL_SYMBOL));
  if (!kernel) {
    error = path + " does not contain a kernel";
    return nullptr;
  }
  if (kernel->abi_version != MTLSIM_ABI_VERSION) {
    error = path + " has version " + std::to_string(kernel->abi_version) +
        " of the kernel interface, this library version " +
        std::to_string(MTLSIM_ABI_VERSION) +
        ": rebuild the back-end and metal-simc together";
    return nullptr;
  }
  return kernel;
}

const char* variant() {
  switch (options().check) {
    case Check::Access:
      return "checked";
    case Check::Init:
      return "tracked";
    default:
      return options().meter ? "metered" : "plain";
  }
}

} // namespace

PipelineObject::PipelineObject(
    const mtlsim_kernel* kernel,
    std::string name,
    std::vector<mtlsim_constant> constants,
    std::uint32_t max_threads)
    : kernel(*kernel),
      name(std::move(name)),
      constants(std::move(constants)),
      max_threads(max_threads) {}

bool PipelineObject::takes(const mtlsim_argument& argument) const {
  if (argument.function_constant < 0) {
    return true;
  }
  auto index = static_cast<std::uint32_t>(argument.function_constant);
  return std::any_of(constants.begin(), constants.end(), [&](auto& constant) {
    return constant.index == index && constant.raw != 0;
  });
}

MTL::ComputePipelineState* make_pipeline(
    const MTL::Function* function,
    std::uint32_t max_threads,
    NS::Error** error) {
  auto& wanted = *static_cast<const FunctionObject*>(function);
  auto answer = ask_compiler(
      {"kernel",
       "--library",
       wanted.container->path(),
       "--name",
       wanted.name,
       "--variant",
       variant()});
  if (answer.status != 0) {
    set_error(error, 3, answer.message);
    return nullptr;
  }
  std::string reason;
  auto* kernel = load_kernel(answer.path, reason);
  if (!kernel) {
    set_error(error, 3, reason);
    return nullptr;
  }
  if (kernel->host_name != wanted.name) {
    set_error(
        error,
        3,
        answer.path + " holds the kernel " + kernel->host_name + ", expected " +
            wanted.name);
    return nullptr;
  }
  auto used = kernel->static_threadgroup_bytes();
  if (used > options().threadgroup_memory) {
    set_error(
        error,
        3,
        wanted.name + " uses " + std::to_string(used) +
            " bytes of threadgroup memory, the device has " +
            std::to_string(options().threadgroup_memory));
    return nullptr;
  }
  auto limit = std::min(kernel->max_threads, options().max_threads);
  if (max_threads != 0) {
    limit = std::min(limit, max_threads);
  }
  return new PipelineObject(
      kernel, wanted.specialized_name, wanted.constants, limit);
}

} // namespace metalsim

namespace MTL {

using namespace metalsim;

ComputePipelineDescriptor* ComputePipelineDescriptor::alloc() {
  return new PipelineDescriptorObject;
}

void ComputePipelineDescriptor::setComputeFunction(const Function* function) {
  static_cast<PipelineDescriptorObject*>(this)->function =
      NS::RetainPtr(const_cast<Function*>(function));
}

// Kernels here cannot call functions of other libraries; nothing in MLX links
// any.
void ComputePipelineDescriptor::setLinkedFunctions(const LinkedFunctions*) {}

void ComputePipelineDescriptor::setLabel(const NS::String*) {}

void ComputePipelineDescriptor::setMaxTotalThreadsPerThreadgroup(
    NS::UInteger threads) {
  static_cast<PipelineDescriptorObject*>(this)->max_threads =
      static_cast<std::uint32_t>(threads);
}

NS::String* ComputePipelineState::label() const {
  return make_string(static_cast<const PipelineObject*>(this)->name);
}

NS::UInteger ComputePipelineState::maxTotalThreadsPerThreadgroup() const {
  return static_cast<const PipelineObject*>(this)->max_threads;
}

NS::UInteger ComputePipelineState::threadExecutionWidth() const {
  return MTLSIM_SIMD_WIDTH;
}

NS::UInteger ComputePipelineState::staticThreadgroupMemoryLength() const {
  return static_cast<const PipelineObject*>(this)
      ->kernel.static_threadgroup_bytes();
}

} // namespace MTL
