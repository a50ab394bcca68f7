#include "tests/process.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace loch::tests {
namespace {

using Clock = std::chrono::steady_clock;

// SIGCHLD has to be blocked to be awaited; children start without it blocked.
const sigset_t& child_signal() {
  static const sigset_t set = [] {
    sigset_t only_child{};
    sigemptyset(&only_child);
    sigaddset(&only_child, SIGCHLD);
    return only_child;
  }();
  return set;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

std::optional<Ending> look(pid_t id) {
  int status = 0;
  const pid_t changed = waitpid(id, &status, WNOHANG | WUNTRACED);
  if (changed != id) return std::nullopt;
  if (WIFSTOPPED(status)) return Ending{.stopped = true, .signal = WSTOPSIG(status)};
  if (WIFEXITED(status)) return Ending{.exit_code = WEXITSTATUS(status)};
  return Ending{.signal = WTERMSIG(status)};
}

}  // namespace

Process::Process(const Command& command) : output_(command.output) {
  sigprocmask(SIG_BLOCK, &child_signal(), nullptr);
  std::vector<std::string> arguments = command.arguments;
  arguments.insert(arguments.begin(), command.program.string());
  std::vector<std::string> environment = command.environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);

  posix_spawn_file_actions_t files{};
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output_.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes{};
  sigset_t nothing_blocked{};
  sigemptyset(&nothing_blocked);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &nothing_blocked);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = posix_spawn(&id_, command.program.c_str(), &files, &attributes,
                                pointers(arguments).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) return;
  fmt::print(stderr, "could not start {}: {}\n", command.program.string(), std::strerror(error));
  std::abort();
}

Process::Process(Process&& other) noexcept
    : id_(std::exchange(other.id_, -1)), output_(std::move(other.output_)), ended_(other.ended_) {}

Process::~Process() {
  if (id_ < 0 || ended_) return;
  kill(id_, SIGKILL);
  waitpid(id_, nullptr, 0);
}

std::optional<Ending> Process::wait(std::chrono::microseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    if (ended_) return ended_;
    if (const auto seen = look(id_)) {
      if (!seen->stopped) ended_ = seen;
      return seen;
    }
    const auto left_ns = std::chrono::nanoseconds(deadline - Clock::now()).count();
    if (left_ns <= 0) return std::nullopt;
    const timespec left{.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
    sigtimedwait(&child_signal(), nullptr, &left);
  }
}

void Process::signal(int number) const {
  if (id_ > 0 && !ended_) kill(id_, number);
}

std::string Process::output() const {
  std::ifstream file(output_);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace loch::tests
