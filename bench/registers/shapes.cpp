// The streamed kernels that the plan can choose for single products, one per
// line: mode with width and type, the rest of its name, type, group size, bits,
// rows of x, outputs per simdgroup, simdgroups that share x, whether it is the
// version for whole blocks of K, and whether the weights have a global scale.
// Affine weights have groups of 64.
#include <iostream>

#include "../nvidia/common.h"

int main() {
  std::cout << std::boolalpha;
  for (const bool fp : {false, true}) {
    for (const auto& mode : qmv::modes_of(fp)) {
      if (!fp && mode.group_size != 64) {
        continue;
      }
      for (const char* type : {"half", "bfloat", "float"}) {
        for (const bool fast : {true, false}) {
          for (const auto& [tile, rows, sharing] : qmv::planned(mode)) {
            std::cout << mode.name << "_b" << mode.bits << "_" << type
                      << (fast ? " fast_" : " ") << "v" << tile << "_r" << rows
                      << "_s" << sharing << " " << type << " "
                      << mode.group_size << " " << mode.bits << " " << tile
                      << " " << rows << " " << sharing << " " << fast << " "
                      << mode.matrix_scale << "\n";
          }
        }
      }
    }
  }
}
