#include "runtime/compiler.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "runtime/options.h"

extern char** environ;

namespace metalsim {
namespace {

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe");
    }
  }
  ~Pipe() {
    close(0);
    close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int reader() const {
    return ends_[0];
  }
  int writer() const {
    return ends_[1];
  }
  void close(int end) {
    if (ends_[end] >= 0) {
      ::close(ends_[end]);
      ends_[end] = -1;
    }
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

class FileActions {
 public:
  FileActions() {
    posix_spawn_file_actions_init(&actions_);
  }
  ~FileActions() {
    posix_spawn_file_actions_destroy(&actions_);
  }
  void place(int from, int to) {
    posix_spawn_file_actions_adddup2(&actions_, from, to);
  }
  const posix_spawn_file_actions_t* get() const {
    return &actions_;
  }

 private:
  posix_spawn_file_actions_t actions_;
};

// Feeds and drains the child until it has closed both of its outputs.
void talk(
    Pipe& in,
    Pipe& out,
    Pipe& err,
    const std::string& input,
    CompilerAnswer& answer) {
  std::size_t sent = 0;
  if (input.empty()) {
    in.close(1);
  }
  std::array<char, 4096> chunk;
  while (out.reader() >= 0 || err.reader() >= 0) {
    std::array<pollfd, 3> ends{{
        {in.writer(), POLLOUT, 0},
        {out.reader(), POLLIN, 0},
        {err.reader(), POLLIN, 0},
    }};
    if (::poll(ends.data(), ends.size(), -1) < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw std::system_error(errno, std::generic_category(), "poll");
    }
    if (ends[0].revents) {
      auto n = ::write(in.writer(), input.data() + sent, input.size() - sent);
      sent += n > 0 ? static_cast<std::size_t>(n) : 0;
      if ((n < 0 && errno != EAGAIN) || sent == input.size()) {
        in.close(1);
      }
    }
    auto drain = [&](pollfd& end, Pipe& pipe, std::string& text) {
      if (end.revents) {
        auto n = ::read(pipe.reader(), chunk.data(), chunk.size());
        if (n > 0) {
          text.append(chunk.data(), static_cast<std::size_t>(n));
        } else {
          pipe.close(0);
        }
      }
    };
    drain(ends[1], out, answer.path);
    drain(ends[2], err, answer.message);
  }
}

// A child that exits early must not end this process with SIGPIPE.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~NoSigpipe() {
    // Consumes a pending signal, then restores the mask.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    timespec now{0, 0};
    if (!sigismember(&before_, SIGPIPE)) {
      sigtimedwait(&pipe, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  const sigset_t& before() const {
    return before_;
  }

 private:
  sigset_t before_;
};

struct Beside {
  std::mutex mutex;
  std::vector<std::string> places;
};

Beside& beside() {
  static auto* instance = new Beside;
  return *instance;
}

// MTL_SIM_COMPILER; else next to the first opened library; else the folder in
// which this library was installed.
std::vector<std::string> places() {
  if (!options().compiler.empty()) {
    return {options().compiler};
  }
  std::vector<std::string> all;
  {
    std::lock_guard lock(beside().mutex);
    all = beside().places;
  }
#ifdef METALSIM_COMPILER
  all.push_back(METALSIM_COMPILER);
#endif
  return all;
}

} // namespace

void look_beside(const std::string& library) {
  auto folder = std::filesystem::absolute(library).parent_path();
  std::lock_guard lock(beside().mutex);
  if (beside().places.empty()) {
    beside().places = {
        folder / "metal-simc", folder.parent_path() / "bin" / "metal-simc"};
  }
}

CompilerAnswer ask_compiler(
    const std::vector<std::string>& arguments,
    const std::string& input) {
  CompilerAnswer answer{-1, {}, {}};
  std::string program, tried;
  for (auto& place : places()) {
    if (::access(place.c_str(), X_OK) == 0) {
      program = place;
      break;
    }
    tried += (tried.empty() ? "" : ", ") + place;
  }
  if (program.empty()) {
    answer.message = "no kernel compiler found (tried: " + tried +
        "): set MTL_SIM_COMPILER to metal-simc";
    return answer;
  }
  NoSigpipe quiet;
  Pipe in, out, err;
  FileActions actions;
  actions.place(in.reader(), STDIN_FILENO);
  actions.place(out.writer(), STDOUT_FILENO);
  actions.place(err.writer(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &quiet.before());

  std::vector<char*> argv{program.data()};
  for (auto& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  pid_t child;
  int error = ::posix_spawn(
      &child,
      program.c_str(),
      actions.get(),
      &attributes,
      argv.data(),
      environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    answer.message = program + ": " + std::strerror(error);
    return answer;
  }
  in.close(0);
  out.close(1);
  err.close(1);
  ::fcntl(in.writer(), F_SETFL, O_NONBLOCK);
  talk(in, out, err, input, answer);
  in.close(1);

  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (WIFSIGNALED(status)) {
    answer.message +=
        program + " was ended by signal " + std::to_string(WTERMSIG(status));
  }
  auto trim = [](std::string& text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
      text.pop_back();
    }
  };
  trim(answer.path);
  trim(answer.message);
  return answer;
}

} // namespace metalsim
