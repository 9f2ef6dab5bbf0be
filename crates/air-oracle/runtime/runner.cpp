#include "runner.h"

#include "engine.h"
#include "kernel_abi.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <memory>

namespace {

const oracle_binding* find(const oracle_launch& launch, const char* name) {
  for (uint32_t i = 0; i < launch.binding_count; ++i)
    if (!strcmp(launch.bindings[i].name, name))
      return &launch.bindings[i];
  return nullptr;
}

// A parameter without a binding (the shapes and strides of batches) stays null:
// a kernel that reads it crashes.
bool bind(
    const oracle_launch& launch,
    const mtlsim_kernel& kernel,
    mtlsim_dispatch& dispatch,
    char* message,
    size_t size) {
  uint32_t bound = 0;
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    const mtlsim_argument& a = kernel.arguments[i];
    if (a.address_space == MTLSIM_THREADGROUP) {
      snprintf(
          message,
          size,
          "%s takes threadgroup memory, which is not provided here",
          kernel.host_name);
      return false;
    }
    if (const oracle_binding* b = find(launch, a.name)) {
      dispatch.buffer[a.index] = b->data;
      dispatch.buffer_length[a.index] = b->length;
      ++bound;
    }
  }
  if (bound == launch.binding_count)
    return true;
  snprintf(
      message,
      size,
      "%s has parameters for %u of %u bindings",
      kernel.host_name,
      bound,
      launch.binding_count);
  return false;
}

struct Close {
  void operator()(void* library) const {
    dlclose(library);
  }
};
struct Destroy {
  void operator()(mtlsim_engine* engine) const {
    mtlsim_engine_destroy(engine);
  }
};

} // namespace

int oracle_run(const oracle_launch* launch, char* message, size_t size) {
  std::unique_ptr<void, Close> library(
      dlopen(launch->object, RTLD_NOW | RTLD_LOCAL));
  if (!library)
    return snprintf(message, size, "%s", dlerror()), 1;
  auto* kernel = static_cast<const mtlsim_kernel*>(
      dlsym(library.get(), MTLSIM_KERNEL_SYMBOL));
  if (!kernel || kernel->abi_version != MTLSIM_ABI_VERSION)
    return snprintf(
               message,
               size,
               "%s: no kernel of interface version %u",
               launch->object,
               MTLSIM_ABI_VERSION),
           1;

  mtlsim_dispatch dispatch{};
  for (int i = 0; i < 3; ++i) {
    dispatch.threadgroups[i] = launch->threadgroups[i];
    dispatch.threads_per_threadgroup[i] = launch->threads[i];
    dispatch.threads[i] = launch->threadgroups[i] * launch->threads[i];
  }
  if (!bind(*launch, *kernel, dispatch, message, size))
    return 1;

  mtlsim_engine_options options{};
  options.reduction = launch->reduction;
  std::unique_ptr<mtlsim_engine, Destroy> engine(
      mtlsim_engine_create(&options));
  if (!engine)
    return snprintf(message, size, "no memory for the engine"), 1;
  mtlsim_report report{};
  uint32_t position[3];
  for (position[2] = 0; position[2] < launch->threadgroups[2]; ++position[2])
    for (position[1] = 0; position[1] < launch->threadgroups[1]; ++position[1])
      for (position[0] = 0; position[0] < launch->threadgroups[0];
           ++position[0])
        if (kernel->run(&dispatch, position, engine.get(), &report))
          return snprintf(
                     message,
                     size,
                     "%s: fault %u: %s",
                     kernel->host_name,
                     report.fault,
                     report.message),
                 1;
  return 0;
}
