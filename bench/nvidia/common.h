// Shared by compile.cpp and measure: the table of compiled kernels, one per
// line, and the plan that ships for a product.
#pragma once

#include <climits>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlx/row_policy.h"

namespace qmv {

// Rows of x are multiplied in tiles of at most `tile` rows. 0 stands for MLX's
// one-row kernel, 1 for its form for N that is not a multiple of 8, and -1 for
// the form that computes half as many outputs per simdgroup, which MLX uses on
// some GPUs.
constexpr int one_row_narrow = -1;
constexpr int one_row = 0;
constexpr int one_row_partial = 1;

struct Kernel {
  // shipped; batched: the same for a batch; mutant-1; the name of another
  // arrangement; wide: MLX's own tiles (qmv_wide), which add in another order
  std::string label;
  std::string file; // the cubin
  std::string name; // in the cubin
  // affine; mxfp4, mxfp8, nvfp4, and nvfp4_hgs with a global scale
  std::string mode;
  std::string type; // float, half, bfloat
  int group_size, bits;
  bool fast; // counterpart of affine_qmv_fast, otherwise of affine_qmv
  int tile;
  int rows; // outputs of a row of x per simdgroup
  int sharing; // simdgroups that share x; 0: none
  int registers, stack_bytes, spilled_bytes; // as reported by ptxas
  int code_bytes;

  bool is_fp() const {
    return mode != "affine";
  }
  int simdgroups() const {
    return sharing > 0 ? sharing : 2;
  }
  int outputs() const { // per threadgroup
    return rows * simdgroups();
  }
  const char* twin() const {
    return label == "wide" ? "qmv_wide" : fast ? "qmv_fast" : "qmv";
  }
};

inline std::ostream& operator<<(std::ostream& out, const Kernel& k) {
  const char t = '\t';
  return out << k.label << t << k.file << t << k.name << t << k.mode << t
             << k.type << t << k.group_size << t << k.bits << t << k.fast << t
             << k.tile << t << k.rows << t << k.sharing << t << k.registers << t
             << k.stack_bytes << t << k.spilled_bytes << t << k.code_bytes;
}

inline std::istream& operator>>(std::istream& in, Kernel& k) {
  return in >> k.label >> k.file >> k.name >> k.mode >> k.type >>
      k.group_size >> k.bits >> k.fast >> k.tile >> k.rows >> k.sharing >>
      k.registers >> k.stack_bytes >> k.spilled_bytes >> k.code_bytes;
}

inline std::vector<Kernel> read_manifest(const std::string& folder) {
  const auto path = folder + "/manifest.tsv";
  std::ifstream in(path);
  if (!in) {
    throw std::runtime_error(path + ": does not exist; run `compile` first");
  }
  std::vector<Kernel> kernels;
  for (std::string line; std::getline(in, line);) {
    Kernel kernel;
    if (!(std::istringstream(line) >> kernel)) {
      throw std::runtime_error(
          path + ": line does not describe a kernel: " + line);
    }
    kernels.push_back(kernel);
  }
  if (kernels.empty()) {
    throw std::runtime_error(path + ": no kernels");
  }
  return kernels;
}

// The plan of a product of m rows under `exact`, or with a route to the other
// arrangement. The plan depends on the GPU only through MLX's answers about it,
// which are those for a recent one.
inline mlx_row_plan plan_of(
    const std::string& mode,
    int group_size,
    int bits,
    int n,
    int k,
    int m,
    bool alternative,
    int batch = 1) {
  mlx_row_problem problem = {};
  problem.mode = mode == "affine" ? MLX_ROW_MODE_AFFINE
      : mode == "mxfp4"           ? MLX_ROW_MODE_MXFP4
      : mode == "mxfp8"           ? MLX_ROW_MODE_MXFP8
                                  : MLX_ROW_MODE_NVFP4;
  problem.dtype = MLX_ROW_DTYPE_BFLOAT16;
  problem.bits = bits;
  problem.group_size = group_size;
  problem.transpose = 1;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.batch = batch;
  problem.experts = 1;
  problem.stream = -1;
  const mlx_row_upstream upstream = {INT_MAX, 0, 1, 0};
  const mlx_row_policy policy = {MLX_ROW_POLICY_EXACT, 0};
  const mlx_row_route route = {
      MLX_ROW_MODE_ANY,
      0,
      0,
      0,
      INT_MAX,
      0,
      INT_MAX,
      0,
      INT_MAX,
      MLX_ROW_PATH_STREAMED_ALT};
  mlx_row_plan plan = {};
  if (mlx_row_decide(&problem, &upstream, policy, &route, alternative, &plan)) {
    throw std::runtime_error(mlx_row_last_error());
  }
  return plan;
}

// The label for the outputs per simdgroup and the simdgroups that share x.
struct Arrangement {
  int tile, rows, sharing;

  auto operator<=>(const Arrangement&) const = default;
  std::string name() const {
    return "r" + std::to_string(rows) + "-s" + std::to_string(sharing);
  }
};

struct Mode {
  std::string name;
  int group_size, bits;
  bool matrix_scale = false;
};

// The arrangements that the plan chooses for few and many outputs, and with a
// route.
inline std::set<Arrangement> planned(const Mode& mode, int batch = 1) {
  const auto family = mode.name.substr(0, mode.name.find('_'));
  std::set<Arrangement> all;
  for (const int n : {1024, 8192}) {
    for (int m = 2; m <= MLX_ROW_TILE_ROWS; m++) {
      for (const bool alternative : {false, true}) {
        const auto plan = plan_of(
            family, mode.group_size, mode.bits, n, 4096, m, alternative, batch);
        all.insert({plan.tile, plan.outputs, plan.sharing});
      }
    }
  }
  return all;
}

inline std::vector<Mode> modes_of(bool fp) {
  if (fp) {
    return {
        {"mxfp4", 32, 4},
        {"mxfp8", 32, 8},
        {"nvfp4", 16, 4},
        {"nvfp4_hgs", 16, 4, true}};
  }
  std::vector<Mode> modes;
  for (int group_size : {32, 64, 128}) {
    for (int bits : {1, 2, 3, 4, 5, 6, 8}) {
      modes.push_back({"affine", group_size, bits});
    }
  }
  return modes;
}

// `--name value` pairs after the command.
class Options {
 public:
  Options(int count, char** arguments) {
    for (int i = 0; i < count; i += 2) {
      const std::string name = arguments[i];
      if (name.rfind("--", 0) != 0 || i + 1 == count) {
        throw std::runtime_error(name + ": expected `--option value`");
      }
      values_[name.substr(2)] = arguments[i + 1];
    }
  }
  std::string get(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) {
      throw std::runtime_error(
          "--" + name + " is missing: expected `--option value`");
    }
    return found->second;
  }
  std::string get(const std::string& name, const std::string& otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }

 private:
  std::map<std::string, std::string> values_;
};

} // namespace qmv
