#include <algorithm>
#include <random>

#include "runtime/commands.h"

namespace metalsim {
namespace {

// The progress of a random order in one encoder.
struct Progress {
  std::vector<std::size_t> after; // encoders that must be through before it
  std::size_t epoch{0};
  std::vector<const Dispatch*> left; // of the epoch

  void enter(const Encoded& encoded, std::mt19937_64& random) {
    while (left.empty() && epoch < encoded.epochs.size()) {
      for (auto& dispatch : encoded.epochs[epoch]) {
        left.push_back(dispatch.get());
      }
      epoch++;
    }
    std::shuffle(left.begin(), left.end(), random);
  }
};

bool updates(const Encoded& encoded, const MTL::Fence* fence) {
  return std::any_of(
      encoded.updates.begin(), encoded.updates.end(), [&](auto& other) {
        return other.get() == fence;
      });
}

} // namespace

std::vector<const Dispatch*> order(
    std::span<const std::shared_ptr<Encoded>> encoders,
    std::optional<std::uint64_t> seed) {
  std::vector<const Dispatch*> result;
  if (!seed) {
    for (auto& encoded : encoders) {
      for (auto& epoch : encoded->epochs) {
        for (auto& dispatch : epoch) {
          result.push_back(dispatch.get());
        }
      }
    }
    return result;
  }

  // A fence waits for earlier encoders only; nothing else orders two encoders,
  // since MLX's buffers are not tracked.
  std::mt19937_64 random(*seed);
  std::vector<Progress> progress(encoders.size());
  for (std::size_t i = 0; i < encoders.size(); i++) {
    for (auto& fence : encoders[i]->waits) {
      for (std::size_t j = 0; j < i; j++) {
        if (updates(*encoders[j], fence.get())) {
          progress[i].after.push_back(j);
        }
      }
    }
    progress[i].enter(*encoders[i], random);
  }
  auto through = [&](std::size_t i) { return progress[i].left.empty(); };
  for (;;) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < progress.size(); i++) {
      auto& after = progress[i].after;
      if (!through(i) && std::all_of(after.begin(), after.end(), through)) {
        ready.push_back(i);
      }
    }
    if (ready.empty()) {
      return result;
    }
    auto pick = ready[std::uniform_int_distribution<std::size_t>(
        0, ready.size() - 1)(random)];
    auto& left = progress[pick].left;
    result.push_back(left.back());
    left.pop_back();
    progress[pick].enter(*encoders[pick], random);
  }
}

} // namespace metalsim
