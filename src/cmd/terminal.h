// cmd/terminal: questions to the person at the terminal, progress, and being interrupted.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cmd/encode.h"

namespace loch::cmd {

// Asks on standard error and reads the answer from standard input, waiting at most `timeout`. True for "y" or
// "yes". An error if nobody answered in time.
Parsed<bool> ask(std::string_view question, std::chrono::milliseconds timeout);

// From then on SIGINT and SIGTERM set a flag that long commands look at, so that they end cleanly; a second
// signal, whichever of the two, ends the process at once. After the first nothing waits for longer than a
// second: a system call that would ends with EINTR.
void watch_for_interrupts();
bool interrupted();
// Ends the process by the signal that interrupted it, as shells expect.
[[noreturn]] void end_by_interrupt();
// Waits; returns early, with false, when interrupted.
bool wait_unless_interrupted(std::chrono::milliseconds duration);

// One line on standard error that shows how far a command is: rewritten at most ten times a second, erased by
// the destructor. Does nothing unless `shown`.
class Progress {
 public:
  // `total`: what `done` will be at the end, in the same unit; nothing if unknown.
  Progress(std::string title, std::optional<std::uint64_t> total, bool shown);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void update(std::uint64_t done, std::uint64_t items);
  // Takes the line away, so that something else can be printed.
  void erase();

 private:
  std::string title_;
  std::optional<std::uint64_t> total_;
  bool shown_;
  bool visible_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_;
};

// Whether standard error is a terminal.
bool stderr_is_terminal();

}  // namespace loch::cmd
