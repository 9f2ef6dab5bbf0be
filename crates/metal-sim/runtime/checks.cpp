#include "runtime/checks.h"

#include <algorithm>
#include <unordered_set>

#include "runtime/options.h"

namespace metalsim {
namespace {

// "affine_qmv…: buffer 3 (x)"
std::string subject(const Dispatch& dispatch, const mtlsim_argument& argument) {
  return dispatch.state().name + ": buffer " + std::to_string(argument.index) +
      " (" + argument.name + ")";
}

Fault invalid(std::string text) {
  return {MTL::CommandBufferErrorInvalidResource, std::move(text)};
}

template <class Check>
std::optional<Fault> for_each_buffer(const Dispatch& dispatch, Check check) {
  auto& kernel = dispatch.state().kernel;
  for (std::uint32_t i = 0; i < kernel.argument_count; i++) {
    auto& argument = kernel.arguments[i];
    if (argument.address_space != MTLSIM_THREADGROUP &&
        argument.index < MTLSIM_BUFFER_SLOTS &&
        dispatch.state().takes(argument)) {
      if (auto fault = check(argument, dispatch.bindings[argument.index])) {
        return fault;
      }
    }
  }
  return std::nullopt;
}

std::optional<Fault> check_threadgroup_memory(const Dispatch& dispatch) {
  auto& kernel = dispatch.state().kernel;
  std::uint64_t bytes = kernel.static_threadgroup_bytes();
  for (std::uint32_t i = 0; i < kernel.argument_count; i++) {
    auto& argument = kernel.arguments[i];
    if (argument.address_space == MTLSIM_THREADGROUP &&
        argument.index < MTLSIM_THREADGROUP_SLOTS) {
      bytes += dispatch.threadgroup_length[argument.index];
    }
  }
  if (bytes > options().threadgroup_memory) {
    return Fault{
        MTL::CommandBufferErrorInternal,
        dispatch.state().name + ": " + std::to_string(bytes) +
            " bytes of threadgroup memory, the device has " +
            std::to_string(options().threadgroup_memory)};
  }
  return std::nullopt;
}

// The smallest allocation of MLX for a reduction, for every type.
constexpr std::size_t least_output = 4;

// Bytes from `from` onwards that MLX may have added to an output.
bool is_rounding(const Region& region, std::size_t from) {
  auto page = options().page;
  auto to_pages = region.length() > page && region.length() % page == 0 &&
      region.length() - from < page;
  auto to_least = region.length() == least_output && from > 0;
  // MLX's cache hands out a buffer of less than twice the size, and of less
  // than two pages more; the size is that of whole pages, or less than one.
  auto rest = region.length() - from;
  auto from_cache = region.reused && rest < (from > page ? 3 * page : from);
  return (to_pages || to_least || from_cache) && region.untouched_from(from);
}

std::optional<Fault> check_output(
    const Dispatch& dispatch,
    const mtlsim_argument& argument,
    Region& region) {
  auto element = std::max<std::size_t>(argument.minimum_bytes, 1);
  auto hole = region.unwritten(0, region.length(), element);
  if (!hole || is_rounding(region, *hole)) {
    // A smaller output that uses the buffer later may leave the old contents.
    region.written = hole.value_or(region.length());
    return std::nullopt;
  }
  region.has_hole = true;
  return invalid(
      subject(dispatch, argument) + " is unwritten at byte " +
      std::to_string(*hole) + " of " + std::to_string(region.length()));
}

} // namespace

std::optional<Fault> check_before(const Dispatch& dispatch) {
  if (auto fault = check_threadgroup_memory(dispatch)) {
    return fault;
  }
  return for_each_buffer(
      dispatch,
      [&](const mtlsim_argument& argument,
          const Binding& binding) -> std::optional<Fault> {
        // Kernels may have arguments that they do not use: the engine reports a
        // fault when a missing one is accessed.
        if (binding.kind == Binding::Kind::Unset) {
          return std::nullopt;
        }
        if (options().stale && !binding.fresh) {
          return invalid(
              subject(dispatch, argument) +
              " was bound before the pipeline state was set");
        }
        if (binding.kind == Binding::Kind::Buffer && binding.region->freed()) {
          return invalid(
              subject(dispatch, argument) +
              " was freed before the command buffer ran");
        }
        if (argument.is_reference &&
            binding.length() < argument.minimum_bytes) {
          return invalid(
              subject(dispatch, argument) + " has " +
              std::to_string(binding.length()) + " bytes, the argument " +
              std::to_string(argument.minimum_bytes));
        }
        return std::nullopt;
      });
}

std::optional<Fault> check_after(const Dispatch& dispatch) {
  return for_each_buffer(
      dispatch,
      [&](const mtlsim_argument& argument,
          const Binding& binding) -> std::optional<Fault> {
        if (binding.kind != Binding::Kind::Buffer) {
          return std::nullopt;
        }
        if (binding.region->freed()) {
          return invalid(
              subject(dispatch, argument) +
              " was freed while the command buffer ran");
        }
        if (auto at =
                argument.is_const ? std::nullopt : binding.region->trespass()) {
          return invalid(
              subject(dispatch, argument) + " was left by a store: byte " +
              std::to_string(*at) + " of " +
              std::to_string(binding.region->length()));
        }
        return std::nullopt;
      });
}

void note_data(const Dispatch& dispatch, std::uint64_t fresh) {
  for_each_buffer(
      dispatch,
      [&](const mtlsim_argument& argument,
          const Binding& binding) -> std::optional<Fault> {
        if (!argument.is_const && binding.kind == Binding::Kind::Buffer &&
            !binding.region->freed()) {
          auto& region = *binding.region;
          if (region.id() < fresh) {
            region.reused = true;
          }
          region.take_as_written();
        }
        return std::nullopt;
      });
}

// A buffer that is read before any kernel wrote it has the host's data. These
// may have the bits of the poison by chance, and stay in the buffer when it
// serves a smaller output later: MLX reuses buffers.
void note_use(const Dispatch& dispatch) {
  auto note = [&](bool read) {
    for_each_buffer(
        dispatch,
        [&](const mtlsim_argument& argument,
            const Binding& binding) -> std::optional<Fault> {
          if (binding.kind == Binding::Kind::Buffer &&
              read == (argument.is_const != 0)) {
            auto& region = *binding.region;
            if (!read) {
              region.output = true;
            } else if (!region.output) {
              region.written = region.length();
            }
          }
          return std::nullopt;
        });
  };
  // If it reads and writes one buffer, it reads the earlier contents.
  note(true);
  note(false);
}

std::optional<Fault> check_outputs(
    const std::vector<const Dispatch*>& dispatches) {
  if (!options().unwritten || !options().run) {
    return std::nullopt;
  }
  std::unordered_set<const Region*> seen;
  // Backwards, so that the last kernel to write a buffer is named.
  for (auto it = dispatches.rbegin(); it != dispatches.rend(); it++) {
    auto fault = for_each_buffer(
        **it,
        [&](const mtlsim_argument& argument,
            const Binding& binding) -> std::optional<Fault> {
          if (argument.is_const || binding.kind != Binding::Kind::Buffer ||
              !seen.insert(binding.region.get()).second) {
            return std::nullopt;
          }
          return check_output(**it, argument, *binding.region);
        });
    if (fault) {
      return fault;
    }
  }
  return std::nullopt;
}

} // namespace metalsim
