// Shared by the drivers: types by name, random numbers, bits and the records of
// the simulated device.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "metal_sim.h"
#include "mlx/backend/metal/metal.h"
#include "mlx/mlx.h"

namespace mx = mlx::core;
using nlohmann::json;

inline mx::Dtype dtype_of(const std::string& name) {
  if (name == "float32") {
    return mx::float32;
  }
  if (name == "float16") {
    return mx::float16;
  }
  if (name == "bfloat16") {
    return mx::bfloat16;
  }
  throw std::invalid_argument("not a type: " + name);
}

// The value rounded to the type.
inline float rounded(float value, mx::Dtype dtype) {
  if (dtype == mx::float16) {
    return static_cast<float>(static_cast<mx::float16_t>(value));
  }
  if (dtype == mx::bfloat16) {
    return static_cast<float>(static_cast<mx::bfloat16_t>(value));
  }
  return value;
}

class Random {
 public:
  explicit Random(std::uint64_t seed, bool idle = false)
      : state_(seed), idle_(idle) {}

  // Whether values do not matter: nothing will be computed with them.
  bool idle() const {
    return idle_;
  }

  // splitmix64
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  float real(float low, float high) {
    const float unit = static_cast<float>(next() >> 40) * 0x1p-24f;
    return low + (high - low) * unit;
  }

 private:
  std::uint64_t state_;
  bool idle_;
};

inline std::vector<std::uint32_t> bits_of(mx::array& array) {
  std::vector<std::uint32_t> bits(array.size());
  if (array.itemsize() == 4) {
    std::memcpy(bits.data(), array.data<float>(), array.nbytes());
  } else {
    auto narrow = array.data<std::uint16_t>();
    bits.assign(narrow, narrow + array.size());
  }
  return bits;
}

// The number that bits of a type represent.
inline double value_of(std::uint32_t bits, mx::Dtype dtype) {
  if (dtype == mx::float32) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  const auto low = static_cast<std::uint16_t>(bits);
  if (dtype == mx::bfloat16) {
    mx::bfloat16_t value;
    std::memcpy(static_cast<void*>(&value), &low, sizeof(low));
    return static_cast<float>(value);
  }
  mx::float16_t value;
  std::memcpy(static_cast<void*>(&value), &low, sizeof(low));
  return static_cast<float>(value);
}

inline std::string hex(const std::vector<std::uint32_t>& bits, int digits) {
  std::string text;
  char word[9];
  for (auto value : bits) {
    std::snprintf(word, sizeof(word), "%0*x", digits, value);
    text += word;
  }
  return text;
}

inline std::string take(char* text) {
  std::string taken(text);
  metal_sim_free(text);
  return taken;
}

// The records of a trace, one per line.
inline json dispatches(const std::string& lines) {
  auto all = json::array();
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    all.push_back(json::parse(line));
  }
  return all;
}

// Answers the cases on standard input, one per line. The only, optional
// argument is a library of kernels that replaces the build's own.
template <typename Answer>
int serve(int argc, char** argv, Answer answer) {
  std::string line;
  try {
    if (argc == 2) {
      mx::metal::set_metallib_path(argv[1]);
    }
    while (std::getline(std::cin, line)) {
      std::cout << answer(line) << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << line << ": " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
