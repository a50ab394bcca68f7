// Child processes of a test: started with arguments and environment, signalled, and awaited with a deadline.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace loch::tests {

// How a child was last seen.
struct Ending {
  bool stopped = false;  // by a signal, and may be continued; otherwise it has ended
  int exit_code = -1;    // -1: not by exit
  int signal = 0;        // that ended or stopped it

  bool operator==(const Ending&) const = default;
};

struct Command {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // NAME=value, added to the test's own
  std::filesystem::path output;          // gets both output and errors
};

// One child. Killed and reaped, if it is still there, when this ends. To be used from one thread, which must
// not have other children than these.
class Process {
 public:
  // Aborts the test program if the child can not be started.
  explicit Process(const Command& command);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  [[nodiscard]] pid_t id() const { return id_; }

  // Waits until the child ends or is stopped. Nothing if it did neither in time. Once it has ended, says so
  // again.
  std::optional<Ending> wait(std::chrono::microseconds timeout);

  // Does nothing if the child was seen to have ended.
  void signal(int number) const;

  // What the child wrote so far.
  [[nodiscard]] std::string output() const;

 private:
  pid_t id_ = -1;
  std::filesystem::path output_;
  std::optional<Ending> ended_;
};

}  // namespace loch::tests
