// Runs one compiled kernel over a grid, without MLX and without the device
// runtime, for tests of the compiler and the engine.
//
//   run_kernel KERNEL.so OPTION...
//     buffer INDEX FILE        contents; written back when the kernel is done
//     bytes INDEX HEX          like setBytes
//     local INDEX LENGTH       threadgroup memory
//     constant INDEX TYPE RAW  function constant, MTLDataType's number
//     groups X Y Z | threads X Y Z   the grid, in threadgroups or in threads
//     group X Y Z              threads per threadgroup
//     workers N                operating-system threads
//     order NAME               of simd_sum
//     reverse                  schedule
//     limit SECONDS            of processor time, then the program dies
//     written INDEX FILE       bytes marked as written (metered kernels)
//     describe                 print the descriptor instead of running
//     repeat N                 run the grid N times and print the best time
//     track                    for checked and tracked kernels
//
// If a threadgroup faults, prints `fault CODE LANE GX GY GZ SLOT OFFSET
// MESSAGE` and exits with 2; else prints `loaded INDEX BYTES` and `stored INDEX
// BYTES`.
#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine.h"

namespace {

[[noreturn]] void die(const std::string& message) {
  fprintf(stderr, "run_kernel: %s\n", message.c_str());
  exit(1);
}

std::vector<uint8_t> read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    die(std::string("cannot read ") + path);
  std::vector<uint8_t> data(std::istreambuf_iterator<char>(file), {});
  data.shrink_to_fit(); // so that a sanitizer sees where it ends
  return data;
}

void write(const std::string& path, const std::vector<uint8_t>& data) {
  std::ofstream file(path, std::ios::binary);
  file.write(
      reinterpret_cast<const char*>(data.data()), std::streamsize(data.size()));
  if (!file)
    die("cannot write " + path);
}

void describe(const mtlsim_kernel& k) {
  printf("kernel %s from %s variant %u\n", k.host_name, k.source, k.variant);
  printf(
      "max_threads %u local_bytes %u\n",
      k.max_threads,
      k.static_threadgroup_bytes());
  for (uint32_t i = 0; i < k.argument_count; ++i) {
    auto& a = k.arguments[i];
    printf(
        "argument %s index %u space %u const %u bytes %u reference %u constant %d\n",
        a.name,
        a.index,
        a.address_space,
        a.is_const,
        a.minimum_bytes,
        a.is_reference,
        a.function_constant);
  }
  for (uint32_t i = 0; i < k.constant_count; ++i) {
    auto& c = k.constants[i];
    printf(
        "constant %s index %u type %u size %u\n",
        c.name,
        c.index,
        c.type,
        c.size);
  }
}

thread_local mtlsim_engine* current = nullptr;

void handle(int signal, siginfo_t* info, void*) {
  if (current)
    mtlsim_engine_abandon(current, signal, info->si_code, info->si_addr);
  _exit(3);
}

// Bad addresses, divisions and traps in a kernel of this thread become faults
// of its threadgroup.
class Handler {
 public:
  explicit Handler(mtlsim_engine* engine) {
    current = engine;
    stack_t stack{};
    stack.ss_sp = memory_.data();
    stack.ss_size = memory_.size();
    sigaltstack(&stack, &previous_);
    struct sigaction action {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP})
      sigaction(signal, &action, nullptr);
  }
  ~Handler() {
    current = nullptr;
    sigaltstack(&previous_, nullptr);
  }

 private:
  std::vector<unsigned char> memory_ = std::vector<unsigned char>(65536);
  stack_t previous_{};
};

} // namespace

int main(int argc, char** argv) {
  if (argc < 2)
    die("no kernel given");
  void* handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    die(dlerror());
  auto* kernel =
      static_cast<const mtlsim_kernel*>(dlsym(handle, MTLSIM_KERNEL_SYMBOL));
  if (!kernel)
    die("no kernel in the shared object");

  std::map<int, std::string> files, marks;
  std::map<int, std::vector<uint8_t>> data, shadow;
  std::vector<mtlsim_constant> constants;
  mtlsim_dispatch d{};
  mtlsim_engine_options options{};
  unsigned workers = 1, repeat = 1;
  uint32_t grid[3] = {1, 1, 1};
  bool in_threads = false;
  for (auto& n : d.threads_per_threadgroup)
    n = 1;
  int at = 2;
  auto word = [&] {
    return at < argc ? argv[at++] : (die("an option lacks a value"), nullptr);
  };
  auto number = [&] { return uint32_t(strtoul(word(), nullptr, 0)); };
  while (at < argc) {
    std::string option = word();
    if (option == "buffer") {
      int i = int(number());
      files[i] = word();
      data[i] = read(files[i].c_str());
    } else if (option == "bytes") {
      auto& bytes = data[int(number())];
      bytes.clear();
      std::string hex = word();
      for (size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes.push_back(
            uint8_t(strtoul(hex.substr(i, 2).c_str(), nullptr, 16)));
    } else if (option == "local") {
      auto i = number();
      d.threadgroup_length[i] = number();
    } else if (option == "constant") {
      mtlsim_constant c{};
      c.index = number();
      c.type = number();
      c.raw = number();
      constants.push_back(c);
    } else if (option == "groups" || option == "threads") {
      in_threads = option == "threads";
      for (auto& n : grid)
        n = number();
    } else if (option == "group") {
      for (auto& n : d.threads_per_threadgroup)
        n = number();
    } else if (option == "limit") {
      rlimit limit{};
      limit.rlim_cur = limit.rlim_max = number();
      setrlimit(RLIMIT_CPU, &limit);
    } else if (option == "workers")
      workers = number();
    else if (option == "track")
      options.track = 1;
    else if (option == "repeat")
      repeat = number();
    else if (option == "order") {
      int o = mtlsim_reduction_from_name(word());
      if (o < 0)
        die("unknown order");
      options.reduction = uint32_t(o);
    } else if (option == "reverse")
      options.schedule = MTLSIM_SCHEDULE_REVERSE;
    else if (option == "written") {
      int i = int(number());
      marks[i] = word();
    } else if (option == "describe") {
      describe(*kernel);
      return 0;
    } else
      die("unknown option " + option);
  }
  for (auto& [i, bytes] : data) {
    d.buffer[i] = bytes.data();
    d.buffer_length[i] = bytes.size();
  }
  for (auto& [i, path] : marks) {
    shadow[i].resize(data[i].size());
    d.written[i] = shadow[i].data();
  }
  std::map<int, std::vector<uint64_t>> history;
  if (options.track)
    for (auto& [i, bytes] : data) {
      history[i].resize(2 * bytes.size());
      d.history[i] = history[i].data();
    }
  d.constants = constants.data();
  d.constant_count = uint32_t(constants.size());
  for (int i = 0; i < 3; ++i) {
    uint32_t group = d.threads_per_threadgroup[i];
    d.threadgroups[i] = in_threads ? (grid[i] + group - 1) / group : grid[i];
    d.threads[i] = in_threads ? grid[i] : grid[i] * group;
  }

  uint32_t total = d.threadgroups[0] * d.threadgroups[1] * d.threadgroups[2];
  std::vector<mtlsim_report> reports(workers);
  double best = 1e30;
  for (unsigned r = 0; r < repeat; ++r) {
    std::atomic<uint32_t> next{0};
    auto work = [&](mtlsim_report& report) {
      auto* engine = mtlsim_engine_create(&options);
      if (!engine)
        die("no memory for an engine");
      Handler handler(engine);
      for (uint32_t g; (g = next++) < total;) {
        uint32_t position[3] = {
            g % d.threadgroups[0],
            g / d.threadgroups[0] % d.threadgroups[1],
            g / d.threadgroups[0] / d.threadgroups[1]};
        if (kernel->run(&d, position, engine, &report))
          break;
      }
      mtlsim_engine_destroy(engine);
    };
    auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (unsigned w = 1; w < workers; ++w)
      threads.emplace_back(work, std::ref(reports[w]));
    work(reports[0]);
    for (auto& t : threads)
      t.join();
    best = std::min(
        best,
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count());
  }
  if (repeat > 1)
    printf("seconds %.6f\n", best);

  for (auto& [i, path] : files)
    write(path, data[i]);
  for (auto& [i, path] : marks)
    write(path, shadow[i]);
  for (auto& r : reports)
    if (r.fault) {
      printf(
          "fault %u %u %u %u %u %d %llu %s\n",
          r.fault,
          r.lane,
          r.threadgroup[0],
          r.threadgroup[1],
          r.threadgroup[2],
          r.slot,
          static_cast<unsigned long long>(r.offset),
          r.message);
      return 2;
    }
  for (int i = 0; i < MTLSIM_BUFFER_SLOTS; ++i) {
    unsigned long long loaded = 0, stored = 0;
    for (auto& r : reports) {
      loaded += r.loaded[i];
      stored += r.stored[i];
    }
    if (loaded)
      printf("loaded %d %llu\n", i, loaded);
    if (stored)
      printf("stored %d %llu\n", i, stored);
  }
}
