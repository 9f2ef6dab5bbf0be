#include "mlx/backend/metal/kernel_fingerprint.h"

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "mlx/backend/common/utils.h"
#include "mlx/backend/metal/device.h"
#include "mlx/backend/metal/metal.h"

// The git tree of the sources, from rows.cmake.
#ifndef MLX_OVERLAY_TREE
#define MLX_OVERLAY_TREE ""
#endif

namespace mlx::core {

namespace {

constexpr std::string_view host_tree = MLX_OVERLAY_TREE;

// The paths that load_default_library (device.cpp) tries, in its order.
std::vector<std::string> library_paths() {
  if (const auto& path = metal::get_metallib_path(); !path.empty()) {
    return {path};
  }
  const auto folder = current_binary_dir();
  return {
      folder / "mlx.metallib",
      folder / "Resources/mlx.metallib",
      folder / "Resources/default.metallib",
      METAL_PATH};
}

std::string tree_of(MTL::Library* library) {
  auto* names = library->functionNames();
  for (NS::UInteger i = 0; i < names->count(); i++) {
    const std::string name = names->object<NS::String>(i)->utf8String();
    if (name.compare(0, tree_kernel_prefix.size(), tree_kernel_prefix) == 0) {
      return name.substr(tree_kernel_prefix.size());
    }
  }
  return "";
}

// The device stores neither the path nor the names of its library, so the file
// is found and opened again.
std::string describe_library() {
  auto pool = metal::new_scoped_memory_pool();
  auto* device = metal::device(Device::gpu).mtl_device();
  for (const auto& path : library_paths()) {
    NS::Error* error = nullptr;
    auto library = NS::TransferPtr(device->newLibrary(
        NS::String::string(path.c_str(), NS::UTF8StringEncoding), &error));
    if (library) {
      const auto tree = tree_of(library.get());
      return path + (tree.empty() ? " names no tree" : " from tree " + tree);
    }
  }
  return "the library that was loaded is no longer found";
}

bool check_kernels() {
  if (host_tree.empty()) {
    return true;
  }
  try {
    std::string name(tree_kernel_prefix);
    metal::device(Device::gpu).get_kernel(name.append(host_tree));
  } catch (const std::exception& e) {
    std::ostringstream msg;
    msg << "[row policy] The kernels are not those of this build: the "
        << "host library was built from tree " << host_tree << ", "
        << describe_library()
        << ". Install the mlx.metallib of the same build there, or take that "
        << "file away. (" << e.what() << ")";
    throw std::runtime_error(msg.str());
  }
  return true;
}

} // namespace

void check_kernels_of_build() {
  // After an exception the next call tries again.
  [[maybe_unused]] static const bool checked = check_kernels();
}

} // namespace mlx::core
