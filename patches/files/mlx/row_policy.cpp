#include "mlx/row_policy.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace mlx::core {

namespace {

constexpr std::array<std::string_view, MLX_ROW_POLICY_COUNT> kind_names = {
    "default",
    "exact",
    "narrow",
    "wide"};

constexpr const char* known_policies =
    "default, exact, narrow or wide, with \":R\" for blocks of R rows (1 or "
    "more, 16 if not given) or \":all\" for blocks without limit";

thread_local std::string last_error;
thread_local bool in_hook = false;

// By stream index. Indices are dense and never reused.
struct StreamPolicy {
  mlx_row_policy policy{MLX_ROW_DECLINE, 0};
  bool asked{false}; // an operation was decided without a stream policy
};

struct Streams {
  std::mutex mutex;
  std::vector<StreamPolicy> entries;

  StreamPolicy& at(int index) {
    if (index >= static_cast<int>(entries.size())) {
      entries.resize(index + 1);
    }
    return entries[index];
  }
};

struct Hook {
  mlx_row_hook function{nullptr};
  void* context{nullptr};
  void (*release)(void*){nullptr};
};

struct Hooks {
  std::shared_mutex mutex; // held shared during calls of the hook
  Hook hook;
};

// Never destroyed: threads may evaluate while the process exits.
Streams& streams() {
  static auto* streams = new Streams;
  return *streams;
}

Hooks& hooks() {
  static auto* hooks = new Hooks;
  return *hooks;
}

bool is_policy(mlx_row_policy p) {
  return mlx_row_policy_name(p.kind) && p.rows >= 0;
}

std::string text_of(mlx_row_policy p) {
  std::string text(kind_names[p.kind]);
  if (p.kind == MLX_ROW_POLICY_DEFAULT || p.rows == MLX_ROW_BLOCK_ROWS) {
    return text;
  }
  return text + (p.rows == 0 ? ":all" : ":" + std::to_string(p.rows));
}

// Earlier spellings of policies, and the current ones.
std::string_view respelt(std::string_view name) {
  return name == "streamed" ? "exact" : "";
}

mlx_row_policy parse(std::string_view text) {
  const auto colon = text.find(':');
  const auto name = text.substr(0, colon);
  auto fail = [&](const std::string& why) {
    throw std::invalid_argument(
        "found \"" + std::string(text) + "\"" + why + "; a policy is " +
        known_policies);
  };
  mlx_row_policy policy{MLX_ROW_DECLINE, MLX_ROW_BLOCK_ROWS};
  for (size_t i = 0; i < kind_names.size(); i++) {
    if (name == kind_names[i]) {
      policy.kind = static_cast<int32_t>(i);
    }
  }
  if (policy.kind == MLX_ROW_DECLINE) {
    const auto now = respelt(name);
    fail(now.empty() ? "" : ", which is now \"" + std::string(now) + "\"");
  }
  if (colon == std::string_view::npos) {
    return policy;
  }
  const auto rows = text.substr(colon + 1);
  if (rows == "all") {
    policy.rows = 0;
  } else {
    const bool is_number = !rows.empty() &&
        rows.find_first_not_of("0123456789") == std::string_view::npos;
    const char* end = rows.data() + rows.size();
    const auto error = std::from_chars(rows.data(), end, policy.rows).ec;
    if (is_number && error == std::errc::result_out_of_range) {
      fail(", with more rows than fit");
    }
    if (!is_number || policy.rows < 1) {
      fail(", where R is not a whole number from 1");
    }
  }
  if (policy.kind == MLX_ROW_POLICY_DEFAULT) {
    policy.rows = MLX_ROW_BLOCK_ROWS; // it has no blocks
  }
  return policy;
}

struct HookCall {
  HookCall() {
    in_hook = true;
  }
  ~HookCall() {
    in_hook = false;
  }
};

mlx_row_policy of_hook(const mlx_row_problem& problem) {
  constexpr mlx_row_policy declines{MLX_ROW_DECLINE, 0};
  auto& h = hooks();
  HookCall call;
  std::shared_lock lock(h.mutex);
  mlx_row_policy answer = declines;
  try {
    const auto& hook = h.hook;
    answer = hook.function ? hook.function(problem, hook.context) : declines;
  } catch (const std::exception& e) {
    throw std::runtime_error(
        std::string("[row policy] The policy hook failed: ") + e.what());
  } catch (...) {
    throw std::runtime_error(
        "[row policy] The policy hook failed with an exception of a foreign "
        "type");
  }
  if (answer.kind != MLX_ROW_DECLINE) {
    check_row_policy("[row policy] The answer of the policy hook", answer);
  }
  return answer;
}

mlx_row_policy of_process() {
  static const std::string text = [] {
    const char* value = std::getenv("MLX_ROW_POLICY");
    return std::string(value ? value : "default");
  }();
  // A failure is not cached: every operation reports it.
  static const mlx_row_policy policy = [] {
    if (const char* old = std::getenv("MLX_QMV_POLICY")) {
      throw std::invalid_argument(
          std::string("[row policy] MLX_QMV_POLICY is set (to \"") + old +
          "\") and is no longer read: set MLX_ROW_POLICY, where \"streamed\" "
          "is now \"exact\" and the former \"exact\" is \"exact:all\"");
    }
    try {
      return parse(text);
    } catch (const std::invalid_argument& e) {
      throw std::invalid_argument(
          std::string("[row policy] MLX_ROW_POLICY is no policy: ") + e.what());
    }
  }();
  return policy;
}

} // namespace

int row_fail(std::string message) {
  last_error = std::move(message);
  return -1;
}

void check_row_policy(const std::string& what, mlx_row_policy policy) {
  if (!is_policy(policy)) {
    throw std::invalid_argument(
        what + " must be a kind from 0 to " +
        std::to_string(MLX_ROW_POLICY_COUNT - 1) +
        " and a number of rows (0 for no limit), found " +
        std::to_string(policy.kind) + " and " + std::to_string(policy.rows));
  }
}

int row_kind(mlx_row_policy policy, const mlx_row_problem& p) {
  const bool gathers = p.op == MLX_ROW_OP_GATHER_QMM ||
      p.op == MLX_ROW_OP_GATHER_QQMM || p.op == MLX_ROW_OP_GATHER_MM;
  const int64_t rows = gathers ? int64_t(p.batch) * p.m : p.m;
  const int64_t most =
      policy.rows * int64_t(gathers ? MLX_ROW_PICKS_PER_ROW : 1);
  return most == 0 || rows <= most ? policy.kind : MLX_ROW_POLICY_DEFAULT;
}

mlx_row_policy row_policy_of(const mlx_row_problem& problem) {
  if (in_hook) {
    throw std::runtime_error(
        "[row policy] The policy hook evaluates or builds attention; a hook "
        "must only answer");
  }
  if (problem.stream >= 0) {
    auto& s = streams();
    std::lock_guard lock(s.mutex);
    auto& entry = s.at(problem.stream);
    if (entry.policy.kind != MLX_ROW_DECLINE) {
      return entry.policy;
    }
    entry.asked = true;
  }
  const auto policy = of_hook(problem);
  return policy.kind == MLX_ROW_DECLINE ? of_process() : policy;
}

mlx_row_policy row_stream_policy(int index) {
  auto& s = streams();
  std::lock_guard lock(s.mutex);
  const bool known = index >= 0 && index < static_cast<int>(s.entries.size());
  return known ? s.entries[index].policy : StreamPolicy{}.policy;
}

void set_row_stream_policy(int index, mlx_row_policy policy) {
  const std::string stream = "stream " + std::to_string(index);
  check_row_policy("the policy of " + stream, policy);
  auto& s = streams();
  std::lock_guard lock(s.mutex);
  auto& entry = s.at(index);
  if (entry.policy.kind != MLX_ROW_DECLINE) {
    throw std::invalid_argument(
        stream + " has a policy already, " + text_of(entry.policy) +
        ", which holds for the life of the process");
  }
  if (entry.asked) {
    throw std::invalid_argument(
        stream + " has computed without a policy of its own; give a stream " +
        "its policy before its first work");
  }
  entry.policy = policy;
}

} // namespace mlx::core

using namespace mlx::core;

extern "C" {

const char* mlx_row_last_error(void) {
  return last_error.c_str();
}

int mlx_row_policy_from_text(const char* text, mlx_row_policy* policy) {
  return row_guarded([&] { *policy = parse(text); });
}

int mlx_row_policy_text(mlx_row_policy policy, char text[MLX_ROW_TEXT_SIZE]) {
  return row_guarded([&] {
    check_row_policy("the policy", policy);
    std::snprintf(text, MLX_ROW_TEXT_SIZE, "%s", text_of(policy).c_str());
  });
}

const char* mlx_row_policy_name(int32_t kind) {
  const bool known = kind >= 0 && kind < MLX_ROW_POLICY_COUNT;
  return known ? kind_names[kind].data() : nullptr;
}

int mlx_row_kind_of(
    const mlx_row_problem* problem,
    mlx_row_policy policy,
    int32_t* kind) {
  return row_guarded([&] {
    check_row_policy("the policy", policy);
    *kind = row_kind(policy, *problem);
  });
}

int mlx_row_process_policy(mlx_row_policy* policy) {
  return row_guarded([&] { *policy = of_process(); });
}

int mlx_row_set_hook(mlx_row_hook function, void* context) {
  return mlx_row_set_owned_hook(function, context, nullptr);
}

int mlx_row_set_owned_hook(
    mlx_row_hook function,
    void* context,
    void (*release)(void*)) {
  return row_guarded([&] {
    if (in_hook) {
      throw std::runtime_error(
          "[row policy] The policy hook registers a hook; a hook must only "
          "answer");
    }
    Hook former{function, context, release};
    auto& h = hooks();
    {
      std::unique_lock lock(h.mutex);
      std::swap(former, h.hook);
    }
    if (former.release) {
      former.release(former.context);
    }
  });
}

int32_t mlx_row_in_hook(void) {
  return in_hook;
}

} // extern "C"
