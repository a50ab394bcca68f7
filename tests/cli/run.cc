#include "tests/cli/run.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <grp.h>
#include <poll.h>
#include <pty.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

namespace loch::cli {
namespace {

using Clock = std::chrono::steady_clock;

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(left < 0 ? 0 : left);
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read_end = ends[0];
    write_end = ends[1];
  }
};

void close_end(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

// What stands between fork and exec; prepared before, as nothing may be allocated there.
struct Launch {
  std::vector<std::string> words;
  std::vector<char*> argument_pointers;
  std::vector<std::string> variables;
  std::vector<char*> variable_pointers;
  int program = -1;

  Launch(const std::string& program_path, const Arguments& arguments, const std::vector<std::string>& extra)
      : variables(extra) {
    words.push_back(program_path);
    words.insert(words.end(), arguments.begin(), arguments.end());
    for (std::string& word : words) argument_pointers.push_back(word.data());
    argument_pointers.push_back(nullptr);
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      const std::string_view name = text.substr(0, text.find('=') + 1);
      bool replaced = text.starts_with("LOCH_");  // what the caller's own loch is told is not for the test's
      for (const std::string& given : extra) replaced = replaced || given.starts_with(name);
      if (!replaced) variables.emplace_back(text);
    }
    for (std::string& variable : variables) variable_pointers.push_back(variable.data());
    variable_pointers.push_back(nullptr);
    // Opened here: an unprivileged child may not be able to walk to it.
    program = ::open(program_path.c_str(), O_RDONLY | O_CLOEXEC);
    if (program < 0) throw std::runtime_error("cannot open " + program_path + ": " + std::strerror(errno));
  }
  ~Launch() { ::close(program); }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  // What runs ends with the thread that started it: to a lochd, the end of its terminal is only a SIGHUP.
  [[noreturn]] void execute() const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::fexecve(program, argument_pointers.data(), variable_pointers.data());
    // A script can not be run from a descriptor that closes at exec.
    ::execve(words.front().c_str(), argument_pointers.data(), variable_pointers.data());
    ::_exit(126);
  }
};

void drop_privileges() {
  constexpr unsigned nobody = 65534;
  if (::geteuid() != 0) return;
  if (::setgroups(0, nullptr) != 0 || ::setgid(nobody) != 0 || ::setuid(nobody) != 0) ::_exit(125);
}

// Feeds and drains a child until it has closed both outputs. False once the deadline has passed.
bool exchange(std::string_view input, int& input_end, int& out_end, int& err_end, Outcome& outcome,
              Clock::time_point deadline) {
  ::fcntl(input_end, F_SETFL, O_NONBLOCK);
  std::array<char, 65536> buffer{};
  while (out_end >= 0 || err_end >= 0) {
    if (input.empty()) close_end(input_end);
    std::array<pollfd, 3> polled{{{input_end, POLLOUT, 0}, {out_end, POLLIN, 0}, {err_end, POLLIN, 0}}};
    const int ready = ::poll(polled.data(), polled.size(), milliseconds_until(deadline));
    if (ready == 0 || Clock::now() > deadline) return false;
    if (polled[0].revents != 0) {
      const ssize_t written = ::write(input_end, input.data(), input.size());
      if (written >= 0) input.remove_prefix(static_cast<std::size_t>(written));
      if (written < 0 && errno == EPIPE) input = {};
    }
    const auto drain = [&](int& end, short events, std::string& into) {
      if (events == 0) return;
      const ssize_t got = ::read(end, buffer.data(), buffer.size());
      if (got > 0) into.append(buffer.data(), static_cast<std::size_t>(got));
      if (got == 0) close_end(end);
    };
    drain(out_end, polled[1].revents, outcome.out);
    drain(err_end, polled[2].revents, outcome.err);
  }
  return true;
}

// Waits for a child that is about to end; kills it if it does not.
int reap(pid_t process, Clock::time_point deadline) {
  int status = 0;
  while (::waitpid(process, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "loch did not end in time; killed";
      ::kill(process, SIGKILL);
      ::waitpid(process, &status, 0);
      break;
    }
    ::poll(nullptr, 0, 1);
  }
  return exit_code_of(status);
}

}  // namespace

std::string loch_program() { return LOCH_PROGRAM; }

Outcome run(const Arguments& arguments, const RunOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  const Launch launch(options.program.empty() ? loch_program() : options.program, arguments,
                      options.variables);
  Pipe in;
  Pipe out;
  Pipe err;
  const pid_t process = ::fork();
  LOCH_CHECK(process >= 0);
  if (process == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(in.read_end, STDIN_FILENO);
    ::dup2(out.write_end, STDOUT_FILENO);
    ::dup2(err.write_end, STDERR_FILENO);
    if (!options.output_path.empty()) {
      const int file = ::open(options.output_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      if (file < 0 || ::dup2(file, STDOUT_FILENO) < 0) ::_exit(127);
    }
    if (options.output_closed) ::close(STDOUT_FILENO);
    if (options.unprivileged) drop_privileges();
    launch.execute();
  }
  close_end(in.read_end);
  close_end(out.write_end);
  close_end(err.write_end);
  const auto deadline = Clock::now() + patience;
  Outcome outcome;
  if (!exchange(options.input, in.write_end, out.read_end, err.read_end, outcome, deadline)) {
    ADD_FAILURE() << "loch printed nothing for too long; killed";
    ::kill(process, SIGKILL);
  }
  close_end(in.write_end);
  close_end(out.read_end);
  close_end(err.read_end);
  outcome.exit_code = reap(process, deadline);
  return outcome;
}

Running::Running(const Arguments& arguments, bool on_terminal, const std::string& program,
                 bool unprivileged) {
  ::signal(SIGPIPE, SIG_IGN);
  const Launch launch(program.empty() ? loch_program() : program, arguments, {});
  if (on_terminal) {
    int terminal = -1;
    process_ = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    LOCH_CHECK(process_ >= 0);
    if (process_ == 0 && unprivileged) drop_privileges();
    if (process_ == 0) launch.execute();
    ::fcntl(terminal, F_SETFD, FD_CLOEXEC);
    input_ = terminal;
    output_descriptor_ = ::dup(terminal);
    return;
  }
  Pipe in;
  Pipe out;
  process_ = ::fork();
  LOCH_CHECK(process_ >= 0);
  if (process_ == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(in.read_end, STDIN_FILENO);
    ::dup2(out.write_end, STDOUT_FILENO);
    if (unprivileged) drop_privileges();
    launch.execute();
  }
  close_end(in.read_end);
  close_end(out.write_end);
  input_ = in.write_end;
  output_descriptor_ = out.read_end;
}

Running::~Running() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  close_end(input_);
  close_end(output_descriptor_);
}

void Running::type(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = ::write(input_, text.data(), text.size());
    if (written < 0) {
      ADD_FAILURE() << "cannot type: " << std::strerror(errno);
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

bool Running::read_some(std::chrono::steady_clock::time_point deadline) {
  pollfd polled{output_descriptor_, POLLIN, 0};
  if (output_descriptor_ < 0 || Clock::now() > deadline ||
      ::poll(&polled, 1, milliseconds_until(deadline)) <= 0)
    return false;
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(output_descriptor_, buffer.data(), buffer.size());
  if (got <= 0) return false;  // EIO: the terminal's other end is closed
  output_.append(buffer.data(), static_cast<std::size_t>(got));
  return true;
}

bool Running::await(std::string_view text, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (output_.find(text) == std::string::npos) {
    if (!read_some(deadline)) return false;
  }
  return true;
}

void Running::close_output() { close_end(output_descriptor_); }

void Running::close_input() { close_end(input_); }

void Running::send_signal(int number) const {
  LOCH_CHECK(process_ > 0);  // -1 would be every process there is
  ::kill(process_, number);
}

int Running::wait() {
  LOCH_CHECK(process_ > 0);
  const auto deadline = Clock::now() + patience;
  while (read_some(deadline)) {
  }
  const int code = reap(process_, deadline);
  process_ = -1;
  return code;
}

CliTest::CliTest() {
  const auto make = [](std::string pattern) {
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
    return pattern;
  };
  folder_ = make("/dev/shm/loch-cli-XXXXXX");
  files_ = make(testing::TempDir() + "loch-cli-XXXXXX");
}

CliTest::~CliTest() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  std::filesystem::remove_all(files_, ignored);
}

Arguments CliTest::in_folder(Arguments arguments) const {
  arguments.insert(arguments.begin(), {"--directory", folder_});
  return arguments;
}

std::unique_ptr<Running> CliTest::run_all_said(const Arguments& arguments) const {
  Arguments words{"-c", R"(exec "$0" "$@" 2>&1)", loch_program()};
  std::ranges::copy(in_folder(arguments), std::back_inserter(words));
  return std::make_unique<Running>(words, false, "/bin/sh");
}

bool CliTest::await_count(const std::string& store, const std::string& count) const {
  const auto deadline = Clock::now() + patience;
  while (Clock::now() < deadline) {
    if (loch({"count", store}).out == count + "\n") return true;
  }
  return false;
}

Outcome CliTest::loch(Arguments arguments, const RunOptions& options) const {
  return run(in_folder(std::move(arguments)), options);
}

std::string CliTest::ok(Arguments arguments, const RunOptions& options) const {
  const Outcome outcome = loch(std::move(arguments), options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.out;
}

nlohmann::json CliTest::json(Arguments arguments) const {
  arguments.insert(arguments.begin(), "--json");
  const std::string text = ok(std::move(arguments));
  auto parsed = nlohmann::json::parse(text, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << text;
  return parsed;
}

nlohmann::json CliTest::finding(const nlohmann::json& report, std::string_view subject) {
  for (const auto& each : report["findings"])
    if (each["subject"] == subject) return each;
  ADD_FAILURE() << "nothing about '" << subject << "' in " << report;
  return nlohmann::json::object();
}

std::string CliTest::write_file(const std::string& file_name, std::string_view content) const {
  const std::string path = file_path(file_name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string CliTest::read_file(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

}  // namespace loch::cli
