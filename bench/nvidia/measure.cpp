// Runs the kernels that `compile` made on the GPU.
//
//   measure registers|identity|time --kernels folder --out file.csv
//           [--quick 1] [--profile 1]
//
// With --profile, `time` launches each planned kernel once, for M = 1, 2, 4, 8
// and 16, on the large shapes at 4 and 8 bits, so that a profiler can observe
// it.
#include <iostream>

#include "device.h"

namespace {

// Registers and spills as reported by ptxas, and how many simdgroups one
// multiprocessor holds at once.
void list_registers(const std::string& folder, std::ostream& out) {
  const qmv::Device device;
  qmv::Modules modules(folder);
  const int most =
      device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / 32;
  out << "label,type,group_size,bits,twin,tile,rows,sharing,registers,stack_bytes,"
         "spilled_bytes,simdgroups_resident,of,code_bytes,mode\n";
  for (const auto& kernel : qmv::read_manifest(folder)) {
    int groups = 0;
    QMV_CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &groups, modules.find(kernel), 32 * kernel.simdgroups(), 0));
    out << kernel.label << ',' << kernel.type << ',' << kernel.group_size << ','
        << kernel.bits << ',' << kernel.twin() << ',' << kernel.tile << ','
        << kernel.rows << ',' << kernel.sharing << ',' << kernel.registers
        << ',' << kernel.stack_bytes << ',' << kernel.spilled_bytes << ','
        << groups * kernel.simdgroups() << ',' << most << ','
        << kernel.code_bytes << ',' << kernel.mode << '\n';
  }
}

void run(const std::string& command, const qmv::Options& options) {
  const auto folder = options.get("kernels");
  const auto path = options.get("out");
  std::ofstream out(path);
  if (command == "registers") {
    list_registers(folder, out);
  } else if (command == "identity") {
    qmv::check_identity(folder, out);
  } else if (command == "time") {
    qmv::measure_times(options, out);
  } else {
    throw std::runtime_error(
        command + ": expected registers, identity or time");
  }
  if (!out.flush()) {
    throw std::runtime_error(path + ": cannot write the file");
  }
}

} // namespace

int main(int count, char** arguments) {
  try {
    run(count > 1 ? arguments[1] : "", qmv::Options(count - 2, arguments + 2));
  } catch (const std::exception& error) {
    std::cerr << "measure: " << error.what() << std::endl;
    return 1;
  }
}
