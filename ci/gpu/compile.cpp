// Compiles MLX's one-row kernels and the overlay's streamed ones for a GPU with
// NVRTC, the compiler of CUDA that takes kernel text as it is. Needs no GPU.
//
//   compile --mlx vendor/mlx --shim crates/metal-sim/msl-cuda --out folder
//           [--what all|timed|mutants] [--arch sm_90] [--jobs n]
//           [--header file --label name] [--defines "-DA=1 ..."]
//           [--outputs 8] [--simdgroups 2]
//
// --header takes other text in the place of qmv_streamed.h.
#include <nvrtc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <set>
#include <thread>

#include "common.h"

namespace fs = std::filesystem;
using qmv::Kernel;

namespace {

std::string read_file(const fs::path& path) {
  std::ifstream in(path);
  if (!in) {
    throw std::runtime_error(path.string() + ": cannot be read");
  }
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_file(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << content;
  if (!out.flush()) {
    throw std::runtime_error(path.string() + ": cannot be written");
  }
}

void check(nvrtcResult result, const std::string& what) {
  if (result != NVRTC_SUCCESS) {
    throw std::runtime_error(what + ": " + nvrtcGetErrorString(result));
  }
}

struct Compiled {
  std::string cubin, log;
};

Compiled compile(
    const std::string& name,
    const std::string& source,
    const std::vector<std::string>& options) {
  nvrtcProgram program;
  check(
      nvrtcCreateProgram(
          &program, source.c_str(), name.c_str(), 0, nullptr, nullptr),
      name);
  std::vector<const char*> arguments;
  for (const auto& option : options) {
    arguments.push_back(option.c_str());
  }
  const auto result =
      nvrtcCompileProgram(program, int(arguments.size()), arguments.data());
  size_t size = 0;
  check(nvrtcGetProgramLogSize(program, &size), name);
  Compiled compiled;
  compiled.log.resize(size);
  check(nvrtcGetProgramLog(program, compiled.log.data()), name);
  if (result != NVRTC_SUCCESS) {
    throw std::runtime_error(name + ": does not compile\n" + compiled.log);
  }
  check(nvrtcGetCUBINSize(program, &size), name);
  compiled.cubin.resize(size);
  check(nvrtcGetCUBIN(program, compiled.cubin.data()), name);
  nvrtcDestroyProgram(&program);
  return compiled;
}

// Reads what `ptxas -v` says of each kernel.
void read_resources(const std::string& log, std::vector<Kernel>& kernels) {
  std::istringstream lines(log);
  Kernel* current = nullptr;
  for (std::string line; std::getline(lines, line);) {
    const auto quote = line.find("entry function '");
    if (quote != std::string::npos) {
      const auto from = quote + 16;
      const auto name = line.substr(from, line.find('\'', from) - from);
      current = nullptr;
      for (auto& kernel : kernels) {
        if (kernel.name == name) {
          current = &kernel;
        }
      }
    } else if (current) {
      int a = 0, b = 0, c = 0;
      const auto digits = line.find_first_of("0123456789");
      if (digits == std::string::npos) {
        continue;
      }
      if (line.find("bytes stack frame") != std::string::npos &&
          sscanf(
              line.c_str() + digits,
              "%d bytes stack frame, %d bytes spill stores, %d",
              &a,
              &b,
              &c) == 3) {
        current->stack_bytes = a;
        current->spilled_bytes = b + c;
      } else if (
          line.find("Used ") != std::string::npos &&
          sscanf(line.c_str() + digits, "%d registers", &a) == 1) {
        current->registers = a;
      }
    }
  }
}

struct Text {
  std::string label;
  fs::path header;
  std::vector<std::string> options;
  int outputs = 8, simdgroups = 2;
};

// All kernels of one type, group size and width.
void build_program(
    const Text& text,
    const std::string& type,
    int group_size,
    int bits,
    bool fast,
    const fs::path& out) {
  std::ostringstream source;
  source << "#include \"mlx/backend/metal/kernels/quantized.h\"\n"
         << "#include \"" << text.header.string() << "\"\n"
         << "#include \"entry.h\"\n";
  std::ostringstream file;
  file << text.label << "/" << type << "_gs_" << group_size << "_b_" << bits
       << (fast ? "_fast" : "") << ".cubin";
  std::vector<Kernel> kernels;
  auto add = [&](const std::string& name, int tile, int outputs, int groups) {
    kernels.push_back(
        {text.label,
         file.str(),
         name,
         type,
         group_size,
         bits,
         fast,
         tile,
         outputs,
         groups,
         -1,
         -1,
         -1});
  };
  auto one_row = [&](const char* name, const char* function, bool partial) {
    source << "QMV_ONE_ROW(" << name << ", " << function << ", " << type << ", "
           << group_size << ", " << bits << ", " << partial << ")\n";
    add(name, partial ? qmv::one_row_partial : qmv::one_row, 8, 2);
  };
  one_row("one_row", fast ? "affine_qmv_fast" : "affine_qmv", false);
  if (fast) {
    one_row("one_row_partial", "affine_qmv_fast", true);
  }
  for (int tile = 2; tile <= 8; tile++) {
    const auto name = "streamed_" + std::to_string(tile);
    source << "QMV_STREAMED(" << name << ", " << type << ", " << group_size
           << ", " << bits << ", " << tile << ", " << fast << ")\n";
    add(name, tile, text.outputs, text.simdgroups);
  }
  const auto compiled = compile(file.str(), source.str(), text.options);
  read_resources(compiled.log, kernels);
  write_file(out / file.str(), compiled.cubin);
  std::ostringstream table;
  for (const auto& kernel : kernels) {
    if (kernel.registers < 0 || kernel.spilled_bytes < 0) {
      throw std::runtime_error(
          file.str() + ": ptxas names no registers\n" + compiled.log);
    }
    table << kernel << "\n";
  }
  write_file(out / (file.str() + ".tsv"), table.str());
}

// Runs the jobs in as many processes: NVRTC compiles one program at a time.
void run_all(const std::vector<std::function<void()>>& jobs, unsigned workers) {
  std::vector<pid_t> children;
  for (unsigned worker = 0; worker < workers; worker++) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    try {
      for (size_t i = worker; i < jobs.size(); i += workers) {
        jobs[i]();
      }
    } catch (const std::exception& error) {
      std::cerr << "compile: " << error.what() << std::endl;
      _exit(1);
    }
    _exit(0);
  }
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed |= status != 0;
  }
  if (failed) {
    throw std::runtime_error("not all programs compile");
  }
}

// Copies of the header that differ from it in the order of sums, one each.
struct Mutant {
  const char* what;
  std::vector<std::pair<std::string, std::string>> edits;
};

#include "mutants.inc"

fs::path plant(const Mutant& mutant, const std::string& header, fs::path out) {
  std::string text = header;
  for (const auto& [from, to] : mutant.edits) {
    size_t found = 0;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
      text.replace(at, from.size(), to);
      at += to.size();
      found++;
    }
    if (found == 0) {
      throw std::runtime_error(
          std::string(mutant.what) + ": qmv_streamed.h has no longer: " + from);
    }
  }
  out /= "qmv_streamed.h";
  write_file(out, text);
  return fs::absolute(out);
}

void run(const qmv::Options& options) {
  const fs::path out = options.get("out");
  const fs::path mlx = options.get("mlx");
  const std::string what = options.get("what", "all");
  const unsigned jobs = std::stoi(options.get(
      "jobs",
      std::to_string(std::max(1u, std::thread::hardware_concurrency()))));
  const fs::path streamed = mlx / "mlx/backend/metal/kernels/qmv_streamed.h";

  Text shipped;
  shipped.label = options.get("label", "shipped");
  shipped.header = fs::absolute(options.get("header", streamed.string()));
  shipped.outputs = std::stoi(options.get("outputs", "8"));
  shipped.simdgroups = std::stoi(options.get("simdgroups", "2"));
  const std::string architecture = options.get("arch", "sm_90");
  // 1097, 161: attributes and pragmas that only Metal knows.
  shipped.options = {
      "-arch=" + architecture,
      "-std=c++20",
      "-default-device",
      "-diag-suppress=1097,161",
      "--ptxas-options=-v",
      "-I" + options.get("shim"),
      "-I" + mlx.string(),
      "-I" + fs::path(__FILE__).parent_path().string()};
  std::istringstream defines(options.get("defines", ""));
  for (std::string define; defines >> define;) {
    shipped.options.push_back(define);
  }

  std::vector<Text> texts;
  if (what == "mutants") {
    const auto header = read_file(streamed);
    for (size_t i = 0; i < mutants.size(); i++) {
      Text text = shipped;
      text.label = "mutant-" + std::to_string(i + 1);
      text.header = plant(mutants[i], header, out / text.label);
      texts.push_back(text);
      std::cout << text.label << ": " << mutants[i].what << std::endl;
    }
  } else {
    texts.push_back(shipped);
  }

  std::vector<std::function<void()>> programs;
  for (const auto& text : texts) {
    for (const char* type : {"float", "half", "bfloat"}) {
      for (int group_size : {32, 64, 128}) {
        for (int bits : {1, 2, 3, 4, 5, 6, 8}) {
          for (bool fast : {true, false}) {
            // Differences hide in 16 bits: those kernels in float as well.
            const bool timed = type != std::string("half") &&
                group_size == 64 && (bits == 4 || bits == 8);
            const bool mutated = type != std::string("half") &&
                group_size == 64 && bits == 4 && fast;
            if (what == "all" || (what == "timed" && timed) ||
                (what == "mutants" && mutated)) {
              programs.push_back([=] {
                build_program(text, type, group_size, bits, fast, out);
              });
            }
          }
        }
      }
    }
  }
  if (programs.empty()) {
    throw std::runtime_error("--what " + what + ": all, timed or mutants");
  }
  run_all(programs, jobs);

  const auto tools = compile(
      "tools.cu",
      read_file(fs::path(__FILE__).parent_path() / "tools.cu"),
      {"-arch=" + architecture});
  write_file(out / "tools.cubin", tools.cubin);

  std::set<fs::path> tables;
  for (const auto& entry : fs::recursive_directory_iterator(out)) {
    if (entry.path().extension() == ".tsv" &&
        entry.path().filename() != "manifest.tsv") {
      tables.insert(entry.path());
    }
  }
  std::ostringstream manifest;
  for (const auto& table : tables) {
    manifest << read_file(table);
  }
  write_file(out / "manifest.tsv", manifest.str());
  int major = 0, minor = 0;
  nvrtcVersion(&major, &minor);
  std::cout << programs.size() << " programs for " << architecture << ", NVRTC "
            << major << "." << minor << std::endl;
}

} // namespace

int main(int count, char** arguments) {
  try {
    run(qmv::Options(count - 1, arguments + 1));
  } catch (const std::exception& error) {
    std::cerr << "compile: " << error.what() << std::endl;
    return 1;
  }
}
