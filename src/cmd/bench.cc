// loch bench: runs loch-bench, which is a program of its own so that its peers' libraries are not needed
// here.
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

#include "cmd/command.h"

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

Exit run_bench(Context& context, std::vector<std::string> arguments) {
  const char* inherited = std::getenv("LOCH_DIRECTORY");
  const bool directory_told =
      context.globals.directory != (inherited && *inherited ? inherited : Globals{}.directory);
  if (context.globals.json || directory_told || context.globals.timeout) {
    return context.complain(Exit::usage, "options for loch-bench go after 'bench'");
  }
  const std::string program = bench_program();
  std::string program_name = bench_name;
  std::vector<char*> argument_pointers{program_name.data()};
  for (std::string& argument : arguments) argument_pointers.push_back(argument.data());
  argument_pointers.push_back(nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::execvp(program.c_str(), argument_pointers.data());
  const int error = errno;
  ::signal(SIGPIPE, SIG_IGN);
  if (error == ENOENT) {
    return context.complain(Exit::failed,
                            "loch-bench is not installed: it was not beside this program nor on PATH. "
                            "Build with -DLOCH_BUILD_BENCH=ON (the release preset does)");
  }
  return context.complain(Exit::failed, fmt::format("cannot run {}: {}", program, std::strerror(error)));
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  CLI::App& command =
      add_foreign_command(app, context, "bench", "Run loch-bench with the arguments that follow", run_bench);
  add_footer(command, "Example:\n  loch bench --help");
}

}  // namespace loch::cmd
