#include "mlx-overlay-sys/src/metallib.h"

#include <dlfcn.h>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "mlx/backend/metal/metal.h"

namespace mlx_overlay {

#ifdef MLX_OVERLAY_PREFIX_METALLIB

namespace {

namespace fs = std::filesystem;

// The folder of the program, or of the dynamic library that contains this
// code.
fs::path own_folder() {
  Dl_info image;
  if (!dladdr(reinterpret_cast<void*>(&choose_metallib), &image)) {
    return {};
  }
  fs::path file = image.dli_fname;
  std::error_code error;
  // On Linux, dladdr() gives the name with which the program was called, for
  // example "program" if the shell found it on PATH.
  if (!file.is_absolute()) {
    if (auto program = fs::read_symlink("/proc/self/exe", error); !error) {
      file = program;
    }
  }
  return file.parent_path();
}

} // namespace

std::string choose_metallib() {
  namespace metal = mlx::core::metal;
  if (!metal::get_metallib_path().empty()) {
    return "set_metallib_path named " + metal::get_metallib_path();
  }
  std::error_code error;
  if (const char* named = std::getenv("MLX_OVERLAY_METALLIB")) {
    if (!fs::is_regular_file(named, error)) {
      throw std::runtime_error(
          std::string("mlx-overlay: MLX_OVERLAY_METALLIB names ") + named +
          ", and there is no such file");
    }
    metal::set_metallib_path(named);
    return std::string("MLX_OVERLAY_METALLIB named ") + named;
  }
  auto folder = own_folder();
  std::vector<fs::path> places{
      folder / "mlx.metallib",
      folder / "Resources" / "mlx.metallib",
      MLX_OVERLAY_PREFIX_METALLIB};
  std::string tried;
  for (auto& place : places) {
    tried += (tried.empty() ? "tried " : ", ") + place.string();
    if (fs::is_regular_file(place, error)) {
      metal::set_metallib_path(place);
      return tried;
    }
  }
  return tried +
      ", and the path that MLX was built with; MLX_OVERLAY_METALLIB can name it";
}

#else

std::string choose_metallib() {
  return {};
}

#endif

} // namespace mlx_overlay
