#include "bench/server_process.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "bench/clock.h"
#include "bench/interrupt.h"

namespace loch::bench {
namespace {

constexpr int ready_check_ms = 2;  // between two questions whether the server is ready

// In the child, between fork and exec: calls that are safe there, and no others.
[[noreturn]] void become(char* const* arguments, int log, pid_t parent, int network_namespace) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before the line above
  // A Ctrl-C of the terminal is for the benchmark, which then stops its servers.
  setpgid(0, 0);
  if (network_namespace >= 0 && setns(network_namespace, CLONE_NEWNET) != 0) _exit(127);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(arguments[0], arguments);
  _exit(127);
}

std::string end_of(const std::string& log) {
  const std::ifstream file(log);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  constexpr std::size_t shown = 500;
  return all.size() <= shown ? all : all.substr(all.size() - shown);
}

}  // namespace

Result<std::string> find_program(const std::string& program, const std::string& package) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(std::string(path == nullptr ? "" : path) +
                             ":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty()) continue;
    std::string candidate = fmt::format("{}/{}", folder, program);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return fail(Errc::not_found, "bench",
              fmt::format("{} is not installed; install it with: apt-get install {}", program, package));
}

Result<ServerProcess> ServerProcess::launch(const std::vector<std::string>& arguments, const std::string& log,
                                            int network_namespace) {
  std::vector<std::string> copies = arguments;
  std::vector<char*> pointers;
  pointers.reserve(copies.size() + 1);
  for (std::string& copy : copies) pointers.push_back(copy.data());
  pointers.push_back(nullptr);
  const base::FileDescriptor output(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!output.is_open())
    return fail(Errc::io, "bench", fmt::format("open {}: {}", log, std::strerror(errno)));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become(pointers.data(), output.get(), parent, network_namespace);
  if (child < 0) return fail(Errc::io, "bench", fmt::format("fork: {}", std::strerror(errno)));
  ServerProcess server(child, static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  if (!server.handle_.is_open())
    return fail(Errc::io, "bench", fmt::format("pidfd_open: {}", std::strerror(errno)));
  return server;
}

bool ServerProcess::ended_within(int wait_ms) const {
  pollfd ended{.fd = handle_.get(), .events = POLLIN, .revents = 0};
  return poll(&ended, 1, wait_ms) > 0;
}

Result<ServerProcess> ServerProcess::start(const std::vector<std::string>& arguments, const std::string& log,
                                           const std::function<bool()>& ready,
                                           std::chrono::milliseconds timeout, int network_namespace) {
  const std::uint64_t deadline_ns = now_ns() + static_cast<std::uint64_t>(timeout.count()) * 1'000'000;
  auto server = launch(arguments, log, network_namespace);
  if (!server) return server;
  while (!ready()) {
    if (server->ended_within(ready_check_ms)) {
      return fail(Errc::io, "bench",
                  fmt::format("{} ended before it was ready: {}", arguments[0], end_of(log)));
    }
    if (interrupted()) return fail(Errc::cancelled, "bench", "interrupted");
    if (now_ns() > deadline_ns) {
      return fail(Errc::timed_out, "bench",
                  fmt::format("{} was not ready after {} ms: {}", fmt::join(arguments, " "), timeout.count(),
                              end_of(log)));
    }
  }
  return server;
}

Result<void> run_to_end(const std::vector<std::string>& arguments, const std::string& log,
                        std::chrono::milliseconds timeout) {
  auto program = ServerProcess::launch(arguments, log);
  if (!program) return std::unexpected(std::move(program.error()));
  if (!program->ended_within(static_cast<int>(timeout.count()))) {
    return fail(Errc::timed_out, "bench",
                fmt::format("{} did not end within {} ms: {}", fmt::join(arguments, " "), timeout.count(),
                            end_of(log)));
  }
  int status = 0;
  waitpid(std::exchange(program->id_, -1), &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return fail(Errc::io, "bench", fmt::format("{} failed: {}", fmt::join(arguments, " "), end_of(log)));
}

ServerProcess::ServerProcess(ServerProcess&& other) noexcept
    : id_(std::exchange(other.id_, -1)), handle_(std::move(other.handle_)) {}

ServerProcess::~ServerProcess() {
  if (id_ > 0) {
    kill(id_, SIGKILL);
    while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

std::uint64_t resident_bytes(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/statm", process));
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  file >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace loch::bench
