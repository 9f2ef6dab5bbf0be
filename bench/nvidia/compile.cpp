// Compiles MLX's kernels for one row and for several, and the overlay's
// streamed kernels, for a GPU with NVRTC, CUDA's run-time compiler. Needs no
// GPU.
//
//   compile --mlx vendor/mlx --shim crates/metal-sim/msl-cuda --out folder
//           [--modes affine|fp] [--what all|timed|arrangements|mutants]
//           [--arch sm_90] [--jobs n] [--defines "-DA=1 ..."]
//
// `all`: the kernels that the plan can choose, in every type, width and group
// size. `timed`: those of one group size, without float16. `arrangements`:
// other arrangements of the same source, in bfloat16, from which the plan was
// chosen. `mutants`: copies that add in another order.
#include <elf.h>
#include <nvrtc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <set>
#include <thread>

#include "common.h"

namespace fs = std::filesystem;
using qmv::Arrangement;
using qmv::Kernel;
using qmv::Mode;
using qmv::modes_of;
using qmv::planned;

namespace {

std::string read_file(const fs::path& path) {
  std::ifstream in(path);
  if (!in) {
    throw std::runtime_error(path.string() + ": cannot read the file");
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
    throw std::runtime_error(path.string() + ": cannot write the file");
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

// Reads the report of `ptxas -v` about each kernel.
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

// Reads the code size of each kernel: the size of the section named after it.
void read_code(const std::string& cubin, std::vector<Kernel>& kernels) {
  auto read = [&](auto& to, size_t at) {
    if (at + sizeof to > cubin.size()) {
      throw std::runtime_error("the cubin ends too early");
    }
    std::memcpy(&to, cubin.data() + at, sizeof to);
  };
  Elf64_Ehdr header;
  Elf64_Shdr names, section;
  read(header, 0);
  auto at = [&](int i) { return header.e_shoff + i * sizeof section; };
  read(names, at(header.e_shstrndx));
  for (int i = 0; i < header.e_shnum; i++) {
    read(section, at(i));
    const char* name = cubin.c_str() + names.sh_offset + section.sh_name;
    for (auto& kernel : kernels) {
      if (name == ".text." + kernel.name) {
        kernel.code_bytes = int(section.sh_size);
      }
    }
  }
}

struct Text {
  std::string label;
  fs::path headers; // the folder of the streamed kernels, by MLX's paths
  std::vector<std::string> options;
};

std::set<Arrangement> others() {
  std::set<Arrangement> all;
  for (const int tile : {2, 4, 8}) {
    for (const auto& [rows, sharing] : std::vector<std::pair<int, int>>{
             {4, 0}, {4, 4}, {4, 8}, {2, 0}, {2, 4}, {1, 4}}) {
      all.insert({tile, rows, sharing});
    }
  }
  return all;
}

bool is_timed(const Mode& mode) {
  return !mode.matrix_scale && (mode.name != "affine" || mode.group_size == 64);
}

// All kernels of one type and mode.
void build_program(
    const Text& text,
    const std::string& type,
    const Mode& mode,
    bool fast,
    const std::set<Arrangement>& arrangements,
    const fs::path& out) {
  const bool shipped = text.label == "shipped";
  const bool fp = mode.name != "affine";
  const std::string family = fp ? "fp_qmv" : "affine_qmv";
  std::ostringstream source;
  source << "#include \"mlx/backend/metal/kernels/" << (fp ? "fp_" : "")
         << "quantized.h\"\n"
         << "#include \"mlx/backend/metal/kernels/" << (fp ? "fp_" : "")
         << "qmv_streamed.h\"\n"
         << "#include \"entry.h\"\n";
  std::ostringstream file;
  file << text.label << "/" << (fp ? mode.name + "_" : "") << type << "_gs_"
       << mode.group_size << "_b_" << mode.bits << (fast ? "_fast" : "")
       << ".cubin";
  std::vector<Kernel> kernels;
  auto add = [&](const std::string& label,
                 const std::string& name,
                 const Arrangement& arrangement) {
    kernels.push_back(
        {label,
         file.str(),
         name,
         mode.name,
         type,
         mode.group_size,
         mode.bits,
         fast,
         arrangement.tile,
         arrangement.rows,
         arrangement.sharing,
         -1,
         -1,
         -1,
         -1});
  };
  // The first arguments of an entry, which are the same for all kinds.
  auto entry = [&](const char* macro,
                   const std::string& name,
                   const std::string& function) -> std::ostream& {
    source << (fp ? "QMV_FP_" : "QMV_") << macro << "(" << name << ", ";
    if (!function.empty()) {
      source << function << ", ";
    }
    return source << type << ", " << mode.group_size << ", " << mode.bits;
  };
  auto one_row =
      [&](const char* name, bool partial, bool batched, int tile, int rows) {
        entry("ONE_ROW", name, family + (fast ? "_fast" : ""))
            << ", " << partial << ", " << batched;
        if (fp) {
          source << ", " << mode.matrix_scale << ", " << rows;
        }
        source << ")\n";
        add(batched ? "batched" : text.label, name, {tile, rows, 0});
      };
  one_row("one_row", false, false, qmv::one_row, 4);
  if (fast) {
    one_row("one_row_partial", true, false, qmv::one_row_partial, 4);
  }
  if (fast && shipped && mode.name.rfind("nvfp4", 0) == 0) {
    one_row("one_row_narrow", true, false, qmv::one_row_narrow, 2);
  }
  auto streamed = [&](const Arrangement& arrangement, bool batched) {
    const auto& [tile, rows, sharing] = arrangement;
    const auto name = "streamed_" + std::to_string(tile) + "_r_" +
        std::to_string(rows) + "_s_" + std::to_string(sharing) +
        (batched ? "_batched" : "");
    entry("STREAMED", name, "") << ", " << tile << ", " << rows << ", "
                                << sharing << ", " << fast << ", " << batched;
    if (fp) {
      source << ", " << mode.matrix_scale;
    }
    source << ")\n";
    add(batched                            ? "batched"
            : text.label == "arrangements" ? arrangement.name()
                                           : text.label,
        name,
        arrangement);
  };
  for (const auto& arrangement : arrangements) {
    streamed(arrangement, false);
  }
  // The batched versions of the timed products.
  if (shipped && fast && is_timed(mode) && type == "bfloat") {
    one_row("one_row_batched", false, true, qmv::one_row, 4);
    for (const auto& arrangement : planned(mode, 2)) {
      streamed(arrangement, true);
    }
  }
  // qmv_wide supports any K, so one program contains it. It does not support a
  // global scale.
  if (fast && shipped && !mode.matrix_scale) {
    for (int tile = 2; tile <= 8; tile++) {
      const auto name = "wide_" + std::to_string(tile);
      entry("WIDE", name, "") << ", " << tile << ")\n";
      add("wide", name, {tile, fp ? 2 : 4, 0});
    }
  }
  auto options = text.options;
  options.insert(options.begin(), "-I" + text.headers.string());
  const auto compiled = compile(file.str(), source.str(), options);
  read_resources(compiled.log, kernels);
  read_code(compiled.cubin, kernels);
  write_file(out / file.str(), compiled.cubin);
  std::ostringstream table;
  for (const auto& kernel : kernels) {
    if (kernel.registers < 0 || kernel.spilled_bytes < 0 ||
        kernel.code_bytes < 0) {
      throw std::runtime_error(
          file.str() + ": no registers or no code of " + kernel.name + "\n" +
          compiled.log);
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

// Copies of the header that differ in the order of sums, one per mutant.
struct Mutant {
  const char* what;
  std::vector<std::pair<std::string, std::string>> edits;
};

#include "mutants.inc"

// The headers of the streamed kernels, with the edits of a mutant, each of
// which must apply. Threadgroup memory gets CUDA's name for it.
fs::path
place(const Mutant& mutant, bool fp, const fs::path& mlx, fs::path out) {
  const fs::path folder = "mlx/backend/metal/kernels";
  std::vector<std::pair<fs::path, std::string>> texts;
  for (const fs::path name :
       {fp ? "fp_qmv_streamed.h" : "qmv_streamed.h", "streamed_tile.h"}) {
    texts.emplace_back(folder / name, read_file(mlx / folder / name));
  }
  auto replace = [&](const std::string& from, const std::string& to) {
    size_t found = 0;
    for (auto& [path, text] : texts) {
      for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
        text.replace(at, from.size(), to);
        at += to.size();
        found++;
      }
    }
    if (found == 0) {
      throw std::runtime_error(
          std::string(mutant.what) +
          ": the headers no longer contain: " + from);
    }
  };
  replace("\n  threadgroup float4 shared[", "\n  __shared__ float4 shared[");
  for (const auto& [from, to] : mutant.edits) {
    replace(from, to);
  }
  for (const auto& [path, text] : texts) {
    write_file(out / path, text);
  }
  return fs::absolute(out);
}

void run(const qmv::Options& options) {
  const fs::path out = options.get("out");
  const fs::path mlx = options.get("mlx");
  const std::string what = options.get("what", "all");
  const unsigned jobs = std::stoi(options.get(
      "jobs",
      std::to_string(std::max(1u, std::thread::hardware_concurrency()))));
  const std::string family = options.get("modes", "affine");
  const bool fp = family == "fp";
  if (!fp && family != "affine") {
    throw std::runtime_error("--modes " + family + ": expected affine or fp");
  }

  Text shipped;
  shipped.label = what == "arrangements" ? what : "shipped";
  shipped.headers = place({"shipped", {}}, fp, mlx, out / "headers");
  const std::string architecture = options.get("arch", "sm_90");
  // 1097, 161: attributes and pragmas that only Metal supports.
  shipped.options = {
      "-arch=" + architecture,
      "-std=c++20",
      "-default-device",
      "-diag-suppress=1097,161",
      "--ptxas-options=-v",
      // A cached program comes without the report of ptxas.
      "-no-cache",
      "-I" + options.get("shim"),
      "-I" + mlx.string(),
      "-I" + fs::path(__FILE__).parent_path().string()};
  std::istringstream defines(options.get("defines", ""));
  for (std::string define; defines >> define;) {
    shipped.options.push_back(define);
  }

  std::vector<Text> texts;
  if (what == "mutants") {
    const auto& mutants = fp ? fp_mutants : affine_mutants;
    for (size_t i = 0; i < mutants.size(); i++) {
      Text text = shipped;
      text.label = "mutant-" + std::to_string(i + 1);
      text.headers = place(mutants[i], fp, mlx, out / text.label / "headers");
      texts.push_back(text);
      std::cout << text.label << ": " << mutants[i].what << std::endl;
    }
  } else {
    texts.push_back(shipped);
  }

  std::vector<std::function<void()>> programs;
  for (const auto& text : texts) {
    for (const char* type : {"float", "half", "bfloat"}) {
      for (const auto& mode : modes_of(fp)) {
        for (bool fast : {true, false}) {
          // 16 bits can hide differences, so these kernels are also compiled in
          // float.
          const bool timed = is_timed(mode) && type != std::string("half");
          const bool bfloat = timed && type == std::string("bfloat");
          const bool mutated = timed && (fp || mode.bits == 4) && fast;
          if (what == "all" || (what == "timed" && timed) ||
              (what == "arrangements" && bfloat) ||
              (what == "mutants" && mutated)) {
            programs.push_back([=] {
              build_program(
                  text,
                  type,
                  mode,
                  fast,
                  what == "arrangements" ? others() : planned(mode),
                  out);
            });
          }
        }
      }
    }
  }
  if (programs.empty()) {
    throw std::runtime_error(
        "--what " + what + ": expected all, timed, arrangements or mutants");
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
