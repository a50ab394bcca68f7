// lab/process: a child process, by its pidfd: a program, or a fork of this one. It ends with the thread that
// made it, by the kernel's hand, however that ends. An object is for one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <loch/error.h>

#include "base/file_descriptor.h"

namespace loch::lab {

// How a process was last seen.
struct Ending {
  bool stopped = false;  // by a signal, and may be continued; otherwise it has ended
  int exit_code = -1;    // -1: not by exit
  int signal = 0;        // that ended or stopped it

  bool operator==(const Ending&) const = default;
  // 128 + n after signal n, as shells say it.
  [[nodiscard]] int code() const { return signal != 0 ? 128 + signal : exit_code; }
};

// A program to run.
struct Command {
  std::vector<std::string> words;          // its path and its arguments
  std::string log{};                       // its output and errors are added there; empty: to this process's
  std::vector<std::string> environment{};  // NAME=value, besides this process's own and instead of it
  std::string hidden{};            // what begins so of this process's own is kept from it; empty: nothing
  int network_namespace = -1;      // a descriptor; -1: this process's
  std::function<void()> become{};  // what it does before it is the program; allocates nothing
};

class Process {
 public:
  // Errors of all: io, naming the step that failed.
  static Result<Process> start(const Command& command);
  // A fork, which ends with the exit code that `work` returns.
  static Result<Process> fork(const std::function<int()>& work);

  // These two start it in a process group of its own: a Ctrl-C of the terminal is for this process, which
  // then ends it (lab/interrupt). Their errors are with the end of the log.
  //
  // Waits until `ready` says yes. Errors: io, when it ends before; timed_out; cancelled.
  static Result<Process> start_until(const Command& command, const std::function<bool()>& ready,
                                     std::chrono::milliseconds timeout);
  // Waits for its end. Errors: io, when that is with another code than 0; timed_out and cancelled, after
  // which it is killed.
  static Result<void> run_to_end(const Command& command, std::chrono::milliseconds timeout);

  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();  // kills it

  [[nodiscard]] pid_t id() const { return id_; }

  // Waits until it ends or is stopped. Nothing if it did neither in time. Once it has ended, says so again.
  std::optional<Ending> wait(std::chrono::nanoseconds timeout);
  // The same, and being stopped is not enough.
  std::optional<Ending> wait_for_end(std::chrono::nanoseconds timeout);

  // Does nothing if it was seen to have ended.
  void signal(int number) const;
  // Ends it at once, at whatever instruction it is, and waits until it is gone. Says how it ended.
  Ending kill();

  // What is in its log so far.
  [[nodiscard]] std::string output() const;

 private:
  Process(pid_t id, base::FileDescriptor handle) : id_(id), handle_(std::move(handle)) {}
  static Result<Process> launch(const Command& command, bool has_own_group);
  std::optional<Ending> look(int options);
  std::optional<Ending> look_until(std::chrono::nanoseconds timeout, int options);
  [[nodiscard]] std::string end_of_output() const;

  pid_t id_;
  base::FileDescriptor handle_;  // a pidfd: readable when the process has ended
  std::string log_;
  std::optional<Ending> ended_;
};

// The path of an installed program, searched as a shell would and in the sbin folders.
std::optional<std::string> find_program(const std::string& program);
// The same. Errors: not_found, naming the package of Debian that has it.
Result<std::string> find_program(const std::string& program, const std::string& package);

}  // namespace loch::lab
