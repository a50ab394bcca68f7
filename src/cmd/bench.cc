// loch bench: runs loch-bench, which is a program of its own so that its peers' libraries are not needed
// here. As a child: interrupted, it ends in order by an exit code, and only who waits for it can end by the
// signal.
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "cmd/command.h"
#include "cmd/terminal.h"

namespace loch::cmd {
namespace {

constexpr const char* bench_name = "loch-bench";

// The folder of this program's file, with a slash; empty if the kernel does not say.
std::string own_folder() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return "";
  const std::string_view own(path.data(), static_cast<std::size_t>(length));
  return std::string(own.substr(0, own.rfind('/') + 1));
}

// Beside this program, in the bench folder of a build tree, or by PATH.
std::string bench_program() {
  const std::string folder = own_folder();
  for (const char* place : {"", "../../bench/"}) {
    std::string candidate = folder + place + bench_name;
    if (!folder.empty() && ::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return bench_name;
}

// The signals that are waited for, blocked while this lives, so that none comes before it is waited for.
class AwaitedSignals {
 public:
  AwaitedSignals() {
    ::sigemptyset(&awaited_);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&awaited_, number);
    ::signal(SIGCHLD, SIG_DFL);  // who started us may have it ignored, and then there is nothing to wait for
    ::sigprocmask(SIG_BLOCK, &awaited_, &before_);
  }
  AwaitedSignals(const AwaitedSignals&) = delete;
  AwaitedSignals& operator=(const AwaitedSignals&) = delete;
  ~AwaitedSignals() { unblock(); }

  void unblock() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  [[nodiscard]] int next() const {
    int number = 0;
    while (::sigwait(&awaited_, &number) != 0) {
    }
    return number;
  }

 private:
  sigset_t awaited_{};
  sigset_t before_{};
};

// Between fork and exec: becomes the program, or says by errno through the pipe why not.
[[noreturn]] void become(const char* program, char* const* arguments, int report_end) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // so that it goes on no longer than we, however we end
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  ::execvp(program, arguments);
  const int error = errno;
  (void)!::write(report_end, &error, sizeof error);
  ::_exit(static_cast<int>(Exit::failed));
}

// A child that runs the program, or the errno that kept it from that.
std::expected<pid_t, int> start(const std::string& program, char* const* arguments,
                                const AwaitedSignals& signals) {
  std::array<int, 2> report{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0) return std::unexpected(errno);
  const pid_t child = ::fork();
  if (child == 0) {
    signals.unblock();
    become(program.c_str(), arguments, report[1]);
  }
  int error = child < 0 ? errno : 0;
  ::close(report[1]);
  if (child > 0 && ::read(report[0], &error, sizeof error) > 0) ::waitpid(child, nullptr, 0);
  ::close(report[0]);
  if (error != 0) return std::unexpected(error);
  return child;
}

struct Ended {
  int status = 0;     // as waitpid gives it
  int interrupt = 0;  // the signal that came to us meanwhile, if any
};

// Waits for the child's end, and passes on to it what interrupts us: a terminal tells it too, others do not.
Ended await_end(pid_t child, const AwaitedSignals& signals) {
  Ended ended;
  while (true) {
    const int number = signals.next();
    if (number != SIGCHLD) {
      ended.interrupt = number;
      ::kill(child, number);
    } else if (::waitpid(child, &ended.status, WNOHANG) == child) {
      return ended;
    }
  }
}

// Runs the program to its end; an errno if it could not be run.
std::expected<Ended, int> run_program(const std::string& program, char* const* arguments) {
  const AwaitedSignals signals;
  const auto child = start(program, arguments, signals);
  if (!child) return std::unexpected(child.error());
  return await_end(*child, signals);
}

Exit can_not_run(const Context& context, const std::string& program, int error) {
  if (error == ENOENT) {
    return context.complain(Exit::failed,
                            "loch-bench is not installed: it was not beside this program nor on PATH. "
                            "Build with -DLOCH_BUILD_BENCH=ON (the release preset does)");
  }
  return context.complain(Exit::failed, fmt::format("cannot run {}: {}", program, std::strerror(error)));
}

Exit run_bench(Context& context, std::vector<std::string> arguments) {
  const char* inherited = std::getenv("LOCH_DIRECTORY");
  const bool directory_told =
      context.globals.directory != (inherited && *inherited ? inherited : Globals{}.directory);
  const Globals& globals = context.globals;
  if (globals.read_only) return context.complain(Exit::failed, "with --read-only nothing is measured");
  if (globals.json || directory_told || globals.timeout || globals.quiet || globals.yes) {
    return context.complain(Exit::usage, "options for loch-bench go after 'bench'");
  }
  const std::string program = bench_program();
  std::string program_name = bench_name;
  std::vector<char*> argument_pointers{program_name.data()};
  for (std::string& argument : arguments) argument_pointers.push_back(argument.data());
  argument_pointers.push_back(nullptr);
  watch_for_interrupts();
  const auto ended = run_program(program, argument_pointers.data());
  if (!ended) return can_not_run(context, program, ended.error());
  if (ended->interrupt != 0) ::raise(ended->interrupt);  // noted now, and the end of this program too
  if (WIFEXITED(ended->status)) return static_cast<Exit>(WEXITSTATUS(ended->status));
  return context.complain(Exit::failed, fmt::format("{} was ended by a signal: {}", program,
                                                    ::strsignal(WTERMSIG(ended->status))));
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  CLI::App& command =
      add_foreign_command(app, context, "bench", "Run loch-bench with the arguments that follow", run_bench);
  add_footer(command, "Example:\n  loch bench --help");
}

}  // namespace loch::cmd
