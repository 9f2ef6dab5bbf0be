// Stands in for metal-simc in the runtime's tests: it knows the kernels next to
// it. "broken" does not compile, nor does source text with "error", and for
// "wrong" it returns another kernel.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>

namespace fs = std::filesystem;

int main(int argc, char** argv) {
  const fs::path here = TEST_KERNEL_DIR;
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "library") {
    std::string source(std::istreambuf_iterator<char>(std::cin), {});
    if (source.find("error") != std::string::npos) {
      std::cerr << "program_source:1: error: planted\n";
      return 1;
    }
    std::cout << (here / "test.metallib").string() << "\n";
    return 0;
  }
  std::string name;
  for (int i = 2; i + 1 < argc; i++) {
    if (std::string(argv[i]) == "--name") {
      name = argv[i + 1];
    }
  }
  auto kernel = here / ("kernel_" + (name == "wrong" ? "fill" : name) + ".so");
  if (command != "kernel" || !fs::exists(kernel)) {
    std::cerr << "kernel " << name << " does not compile\n";
    return 1;
  }
  // As in the cache of metal-simc, with any umask.
  fs::permissions(
      kernel,
      name == "writable" ? fs::perms::all : fs::perms::owner_all,
      fs::perm_options::replace);
  std::cout << kernel.string() << "\n";
}
