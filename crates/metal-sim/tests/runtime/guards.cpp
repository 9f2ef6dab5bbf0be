// If the system allows no more mappings, lanes run without guard pages, with a
// warning.
#include "harness.h"

#include <cerrno>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine.h"
#include "lane_abi.h"

namespace {

bool no_more_mappings = false;

} // namespace

// Replaces the system's function.
extern "C" int mprotect(void* at, size_t bytes, int protection) noexcept {
  if (no_more_mappings) {
    errno = ENOMEM;
    return -1;
  }
  return int(syscall(SYS_mprotect, at, bytes, protection));
}

namespace {

void run_lanes(mtlsim_engine* engine) {
  auto* lanes = reinterpret_cast<mtlsim_lanes*>(engine);
  mtlsim_dispatch dispatch{};
  mtlsim_report report{};
  uint32_t ran = 0;
  auto body = [](void* count, uint32_t) { ++*static_cast<uint32_t*>(count); };
  CHECK(
      lanes->run(lanes, &dispatch, nullptr, 0, 64, 0, body, &ran, &report) ==
      0);
  CHECK(ran == 64);
}

// What `work` writes to stderr.
template <typename Work>
std::string said(Work work) {
  auto* file = std::tmpfile();
  CHECK(file);
  const int before = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  work();
  dup2(before, STDERR_FILENO);
  close(before);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

} // namespace

int main() {
  mtlsim_engine* engines[] = {
      mtlsim_engine_create(nullptr), mtlsim_engine_create(nullptr)};
  CHECK(engines[0] && engines[1]);
  no_more_mappings = true;
  auto text = said([&] { run_lanes(engines[0]); });
  CHECK_TEXT(text, "metal-sim: ", "guard page", "vm.max_map_count");
  // Only one warning.
  CHECK(said([&] {
          run_lanes(engines[0]);
          run_lanes(engines[1]);
        }) == "");
  no_more_mappings = false;
  for (auto* engine : engines) {
    mtlsim_engine_destroy(engine);
  }
}
