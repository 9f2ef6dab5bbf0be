// The kernel compiler, metal-simc: a separate program, run once for each kernel
// and once for each library made from source text.
#pragma once

#include <string>
#include <vector>

namespace metalsim {

struct CompilerAnswer {
  int status{0}; // exit code, -1 if it could not be run
  std::string path; // its output
  std::string message; // its error message
};

// A library was opened: the compiler that made it may be next to it, so that a
// folder with both can be moved.
void look_beside(const std::string& library);

// Runs it with these arguments; `input` becomes its standard input.
CompilerAnswer ask_compiler(
    const std::vector<std::string>& arguments,
    const std::string& input = {});

} // namespace metalsim
