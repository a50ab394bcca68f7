#include "tests/cli/run.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <pty.h>
#include <sstream>
#include <stdexcept>
#include <unistd.h>
#include <utility>
#include <utmp.h>

#include "base/check.h"
#include "base/testing/in_child.h"

namespace loch::cli {
namespace {

using Clock = std::chrono::steady_clock;

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(left < 0 ? 0 : left);
}

struct Pipe {
  base::FileDescriptor read_end;
  base::FileDescriptor write_end;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read_end = base::FileDescriptor(ends[0]);
    write_end = base::FileDescriptor(ends[1]);
  }
};

// What the caller's own loch is told is not for the test's.
lab::Command command_of(const std::string& program, const Arguments& arguments) {
  lab::Command command{.words = arguments, .hidden = "LOCH_"};
  command.words.insert(command.words.begin(), program.empty() ? loch_program() : program);
  return command;
}

void give_up_root() {
  if (!base::fake::give_up_root()) ::_exit(125);
}

// Feeds and drains a child until it has closed both outputs. False once the deadline has passed.
bool exchange(std::string_view input, base::FileDescriptor& input_end, base::FileDescriptor& out_end,
              base::FileDescriptor& err_end, Outcome& outcome, Clock::time_point deadline) {
  ::fcntl(input_end.get(), F_SETFL, O_NONBLOCK);
  std::array<char, 65536> buffer{};
  while (out_end.is_open() || err_end.is_open()) {
    if (input.empty()) input_end = {};
    std::array<pollfd, 3> polled{
        {{input_end.get(), POLLOUT, 0}, {out_end.get(), POLLIN, 0}, {err_end.get(), POLLIN, 0}}};
    const int ready = ::poll(polled.data(), polled.size(), milliseconds_until(deadline));
    if (ready == 0 || Clock::now() > deadline) return false;
    if (polled[0].revents != 0) {
      const ssize_t written = ::write(input_end.get(), input.data(), input.size());
      if (written >= 0) input.remove_prefix(static_cast<std::size_t>(written));
      if (written < 0 && errno == EPIPE) input = {};
    }
    const auto drain = [&](base::FileDescriptor& end, short events, std::string& into) {
      if (events == 0) return;
      const ssize_t got = ::read(end.get(), buffer.data(), buffer.size());
      if (got > 0) into.append(buffer.data(), static_cast<std::size_t>(got));
      if (got == 0) end = {};
    };
    drain(out_end, polled[1].revents, outcome.out);
    drain(err_end, polled[2].revents, outcome.err);
  }
  return true;
}

// Waits for a child that is about to end; kills it if it does not.
int exit_code_of(lab::Process& process, Clock::time_point deadline) {
  if (!process.wait_for_end(deadline - Clock::now())) ADD_FAILURE() << "loch did not end in time; killed";
  return process.kill().code();
}

}  // namespace

std::string loch_program() { return LOCH_PROGRAM; }

Outcome run(const Arguments& arguments, const RunOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe in;
  Pipe out;
  Pipe err;
  lab::Command command = command_of(options.program, arguments);
  command.environment = options.variables;
  command.become = [&] {
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(in.read_end.get(), STDIN_FILENO);
    ::dup2(out.write_end.get(), STDOUT_FILENO);
    ::dup2(err.write_end.get(), STDERR_FILENO);
    if (!options.output_path.empty()) {
      const int file = ::open(options.output_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      if (file < 0 || ::dup2(file, STDOUT_FILENO) < 0) ::_exit(127);
    }
    if (options.output_closed) ::close(STDOUT_FILENO);
    if (options.unprivileged) give_up_root();
  };
  auto process = lab::Process::start(command).value();
  in.read_end = {};
  out.write_end = {};
  err.write_end = {};
  const auto deadline = Clock::now() + patience;
  Outcome outcome;
  if (!exchange(options.input, in.write_end, out.read_end, err.read_end, outcome, deadline)) {
    ADD_FAILURE() << "loch printed nothing for too long; killed";
    process.kill();
  }
  in.write_end = {};
  out.read_end = {};
  err.read_end = {};
  outcome.exit_code = exit_code_of(process, deadline);
  return outcome;
}

Running::Running(const Arguments& arguments, bool on_terminal, const std::string& program,
                 bool unprivileged) {
  ::signal(SIGPIPE, SIG_IGN);
  lab::Command command = command_of(program, arguments);
  base::FileDescriptor child_input;
  base::FileDescriptor child_output;
  if (on_terminal) {
    int terminal = -1;
    int child_end = -1;
    LOCH_CHECK(::openpty(&terminal, &child_end, nullptr, nullptr, nullptr) == 0);
    for (const int end : {terminal, child_end}) ::fcntl(end, F_SETFD, FD_CLOEXEC);
    input_ = base::FileDescriptor(terminal);
    output_descriptor_ = base::FileDescriptor(::fcntl(terminal, F_DUPFD_CLOEXEC, 0));
    child_input = base::FileDescriptor(child_end);
  } else {
    Pipe in;
    Pipe out;
    input_ = std::move(in.write_end);
    output_descriptor_ = std::move(out.read_end);
    child_input = std::move(in.read_end);
    child_output = std::move(out.write_end);
  }
  command.become = [&] {
    if (on_terminal) {
      ::login_tty(child_input.get());
    } else {
      ::signal(SIGPIPE, SIG_DFL);
      ::dup2(child_input.get(), STDIN_FILENO);
      ::dup2(child_output.get(), STDOUT_FILENO);
    }
    if (unprivileged) give_up_root();
  };
  process_.emplace(lab::Process::start(command).value());
}

void Running::type(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = ::write(input_.get(), text.data(), text.size());
    if (written < 0) {
      ADD_FAILURE() << "cannot type: " << std::strerror(errno);
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

bool Running::read_some(std::chrono::steady_clock::time_point deadline) {
  pollfd polled{output_descriptor_.get(), POLLIN, 0};
  if (!output_descriptor_.is_open() || Clock::now() > deadline ||
      ::poll(&polled, 1, milliseconds_until(deadline)) <= 0)
    return false;
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(output_descriptor_.get(), buffer.data(), buffer.size());
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

bool Running::await_full() const {
  const auto deadline = Clock::now() + patience;
  const std::string pipe = "/proc/self/fd/" + std::to_string(output_descriptor_.get());
  const base::FileDescriptor write_end(::open(pipe.c_str(), O_WRONLY | O_CLOEXEC));
  pollfd room{write_end.get(), POLLOUT, 0};
  while (::poll(&room, 1, 0) != 0) {
    if (Clock::now() > deadline) return false;
  }
  return write_end.is_open();
}

void Running::close_output() { output_descriptor_ = {}; }

void Running::close_input() { input_ = {}; }

void Running::send_signal(int number) const { process_->signal(number); }

int Running::wait() {
  const auto deadline = Clock::now() + patience;
  while (read_some(deadline)) {
  }
  return exit_code_of(*process_, deadline);
}

int Running::wait_unread() { return exit_code_of(*process_, Clock::now() + patience); }

Arguments CliTest::in_folder(Arguments arguments) const {
  arguments.insert(arguments.begin(), {"--directory", folder()});
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
