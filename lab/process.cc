#include "lab/process.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sstream>
#include <string_view>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "base/check.h"
#include "lab/interrupt.h"

namespace loch::lab {
namespace {

using Clock = std::chrono::steady_clock;

// Between two questions whether a process is ready, or was stopped, of which no descriptor tells.
constexpr std::chrono::milliseconds look_pause{2};
// Between two looks whether the user wants out.
constexpr std::chrono::milliseconds interrupt_pause{100};
constexpr int exit_not_begun = 127;

std::unexpected<Error> failure(std::string_view step) {
  return fail(Errc::io, "process", fmt::format("{}: {}", step, std::strerror(errno)));
}

void end_with(pid_t maker) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != maker) _exit(exit_not_begun);  // it died before the line above
}

// In the child, before it is a program: says there why it is none. Safe between fork and exec.
int not_begun(std::string_view step) {
  const std::string_view why = strerrordesc_np(errno);
  for (const std::string_view part : {step, std::string_view(": "), why, std::string_view("\n")})
    std::ignore = ::write(STDERR_FILENO, part.data(), part.size());
  return exit_not_begun;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_of(const Command& command) {
  std::vector<std::string> environment = command.environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view own = *entry;
    const std::string_view name = own.substr(0, own.find('=') + 1);
    const bool is_hidden = !command.hidden.empty() && own.starts_with(command.hidden);
    const auto replaces = [name](const std::string& given) { return given.starts_with(name); };
    if (!is_hidden && std::ranges::none_of(command.environment, replaces)) environment.emplace_back(own);
  }
  return environment;
}

}  // namespace

Result<Process> Process::start(const Command& command) { return launch(command, false); }

Result<Process> Process::fork(const std::function<int()>& work) {
  const pid_t maker = getpid();
  const pid_t id = ::fork();
  if (id < 0) return failure("fork");
  if (id == 0) {
    end_with(maker);
    _exit(work());
  }
  Process child(id, base::FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, id, 0))));
  if (!child.handle_.is_open()) return failure("pidfd_open");
  return child;
}

Result<Process> Process::launch(const Command& command, bool has_own_group) {
  std::vector<std::string> words = command.words;
  std::vector<std::string> environment = environment_of(command);
  const std::vector<char*> arguments = pointers(words);
  const std::vector<char*> variables = pointers(environment);
  // Opened here: who gives up privileges may not be able to walk to it.
  const base::FileDescriptor program(open(arguments[0], O_PATH | O_CLOEXEC));
  if (!program.is_open()) return failure("open " + words[0]);
  base::FileDescriptor log;
  if (!command.log.empty()) {
    log = base::FileDescriptor(open(command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!log.is_open()) return failure("open " + command.log);
  }
  const pid_t maker = getpid();
  auto started = fork([&] {  // calls that are safe between fork and exec, and no others
    if (has_own_group) setpgid(0, 0);
    if (log.is_open()) {
      dup2(log.get(), STDOUT_FILENO);
      dup2(log.get(), STDERR_FILENO);
    }
    if (command.network_namespace >= 0 && setns(command.network_namespace, CLONE_NEWNET) != 0)
      return not_begun("setns");
    if (command.become) command.become();
    end_with(maker);  // again: the kernel forgets it of who gives up privileges
    execve(arguments[0], arguments.data(), variables.data());
    fexecve(program.get(), arguments.data(), variables.data());
    return not_begun(arguments[0]);
  });
  if (started) started->log_ = command.log;
  return started;
}

Result<Process> Process::start_until(const Command& command, const std::function<bool()>& ready,
                                     std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  auto started = launch(command, true);
  if (!started) return started;
  while (!ready()) {
    if (started->wait_for_end(look_pause)) {
      return fail(
          Errc::io, "process",
          fmt::format("{} ended before it was ready: {}", command.words[0], started->end_of_output()));
    }
    if (interrupted()) return fail(Errc::cancelled, "process", "interrupted");
    if (Clock::now() > deadline) {
      return fail(Errc::timed_out, "process",
                  fmt::format("{} was not ready after {} ms: {}", fmt::join(command.words, " "),
                              timeout.count(), started->end_of_output()));
    }
  }
  return started;
}

Result<void> Process::run_to_end(const Command& command, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  auto started = launch(command, true);
  if (!started) return std::unexpected(std::move(started.error()));
  std::optional<Ending> ended;
  while (!ended) {
    const std::chrono::nanoseconds left = deadline - Clock::now();
    ended = started->wait_for_end(std::min<std::chrono::nanoseconds>(left, interrupt_pause));
    if (ended) break;
    if (interrupted()) return fail(Errc::cancelled, "process", "interrupted");
    if (Clock::now() >= deadline) {
      return fail(Errc::timed_out, "process",
                  fmt::format("{} did not end within {} ms: {}", fmt::join(command.words, " "),
                              timeout.count(), started->end_of_output()));
    }
  }
  if (ended->exit_code == 0) return {};
  return fail(Errc::io, "process",
              fmt::format("{} failed: {}", fmt::join(command.words, " "), started->end_of_output()));
}

Process::Process(Process&& other) noexcept
    : id_(std::exchange(other.id_, -1)),
      handle_(std::move(other.handle_)),
      log_(std::move(other.log_)),
      ended_(other.ended_) {}

Process::~Process() {
  if (id_ > 0) kill();
}

std::optional<Ending> Process::look(int options) {
  if (ended_) return ended_;
  int status = 0;
  const pid_t changed = waitpid(id_, &status, options);
  if (changed < 0) LOCH_CHECK(errno == EINTR);
  if (changed != id_) return std::nullopt;
  if (WIFSTOPPED(status)) return Ending{.stopped = true, .signal = WSTOPSIG(status)};
  ended_ = WIFEXITED(status) ? Ending{.exit_code = WEXITSTATUS(status)} : Ending{.signal = WTERMSIG(status)};
  return ended_;
}

std::optional<Ending> Process::look_until(std::chrono::nanoseconds timeout, int options) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    if (const auto seen = look(options | WNOHANG)) return seen;
    std::chrono::nanoseconds left = deadline - Clock::now();
    if (left.count() <= 0) return std::nullopt;
    if (options == WUNTRACED) left = std::min<std::chrono::nanoseconds>(left, look_pause);
    const timespec pause{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
    pollfd end{.fd = handle_.get(), .events = POLLIN, .revents = 0};
    ppoll(&end, 1, &pause, nullptr);
  }
}

std::optional<Ending> Process::wait(std::chrono::nanoseconds timeout) {
  return look_until(timeout, WUNTRACED);
}

std::optional<Ending> Process::wait_for_end(std::chrono::nanoseconds timeout) {
  return look_until(timeout, 0);
}

void Process::signal(int number) const {
  LOCH_CHECK(id_ > 0);  // -1 would be every process there is
  if (!ended_) ::kill(id_, number);
}

Ending Process::kill() {
  signal(SIGKILL);
  while (!look(0)) {
  }
  return *ended_;
}

std::string Process::output() const {
  std::ifstream file(log_);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Process::end_of_output() const {
  constexpr std::size_t shown = 500;
  const std::string all = output();
  return all.size() <= shown ? all : all.substr(all.size() - shown);
}

std::optional<std::string> find_program(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(std::string(path == nullptr ? "" : path) +
                             ":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty()) continue;
    std::string candidate = fmt::format("{}/{}", folder, program);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

Result<std::string> find_program(const std::string& program, const std::string& package) {
  if (auto found = find_program(program)) return std::move(*found);
  return fail(Errc::not_found, "process",
              fmt::format("{} is not installed; install it with: apt-get install {}", program, package));
}

}  // namespace loch::lab
