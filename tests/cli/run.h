// tests/cli/run: runs the real `loch` as a process of its own and says what it did. Every wait has a
// deadline; a process that passes it is killed and the test fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "lab/process.h"
#include "lab/temp_folder.h"

namespace loch::cli {

using Arguments = std::vector<std::string>;

inline constexpr std::chrono::seconds patience{60};

struct RunOptions {
  std::string program{};                 // the built loch unless told
  std::string input{};                   // all of standard input
  std::vector<std::string> variables{};  // "NAME=value", over the caller's environment without its LOCH_*
  std::string output_path{};             // standard output goes there instead of into Outcome::out
  bool output_closed = false;            // there is no standard output
  bool unprivileged = false;             // if we are root, the process is not
};

struct Outcome {
  int exit_code = -1;  // 128 + n after signal n, as shells say it
  std::string out;
  std::string err;
};

// Where the built program is.
std::string loch_program();

Outcome run(const Arguments& arguments, const RunOptions& options = {});

// A loch, or another program, whose standard streams the test holds in its hands. It does not outlive the
// thread that made this.
class Running {
 public:
  // `on_terminal`: all three streams are one new terminal; else pipes. `unprivileged` as in RunOptions.
  Running(const Arguments& arguments, bool on_terminal, const std::string& program = {},
          bool unprivileged = false);

  void type(std::string_view text) const;
  // Waits until what was printed so far contains `text`; false once `timeout` has passed or the process
  // ended.
  bool await(std::string_view text, std::chrono::milliseconds timeout = patience);
  // Waits until the pipe that it prints into takes no more, and reads nothing.
  [[nodiscard]] bool await_full() const;
  // Reads no more and closes the reading end.
  void close_output();
  void close_input();
  void send_signal(int number) const;
  // Waits for the end; the exit code as in Outcome.
  int wait();
  // The same, and reads nothing.
  int wait_unread();

  [[nodiscard]] const std::string& output() const { return output_; }

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);

  base::FileDescriptor input_;
  base::FileDescriptor output_descriptor_;
  std::string output_;
  std::optional<lab::Process> process_;
};

// A test with a folder of stores of its own, removed at its end.
class CliTest : public testing::Test {
 protected:
  // Runs with --directory set to the folder.
  Outcome loch(Arguments arguments, const RunOptions& options = {}) const;
  // The same, and the exit code must be 0. Gives standard output.
  std::string ok(Arguments arguments, const RunOptions& options = {}) const;
  // The same with --json, parsed.
  nlohmann::json json(Arguments arguments) const;
  [[nodiscard]] Arguments in_folder(Arguments arguments) const;
  // A loch in the folder whose remarks and errors are among its output.
  [[nodiscard]] std::unique_ptr<Running> run_all_said(const Arguments& arguments) const;
  // Waits until the store holds so many items.
  [[nodiscard]] bool await_count(const std::string& store, const std::string& count) const;

  // What a report of doctor found of the subject; fails the test if that is nothing.
  static nlohmann::json finding(const nlohmann::json& report, std::string_view subject);

  // A file beside the stores, that no store is made of.
  std::string write_file(const std::string& file_name, std::string_view content) const;
  static std::string read_file(const std::string& path);

  [[nodiscard]] const std::string& folder() const { return stores_.path(); }
  [[nodiscard]] std::string file_path(const std::string& file_name) const {
    return files_.path() + "/" + file_name;
  }

 private:
  const lab::TempFolder stores_ = lab::TempFolder::make("/dev/shm").value();
  const lab::TempFolder files_ = lab::TempFolder::make(testing::TempDir()).value();
};

}  // namespace loch::cli
