// cmd/output: buffered writing to a file descriptor, with the errors that stdio hides, and files that are
// published whole.
//
// I1 After the first failed write nothing more is written; the error is kept for who asks.
// I2 A reader that has gone (EPIPE) is no failure of the program: `reader_gone()` says so, and the caller
// stops.
// I3 Once the process was interrupted nothing waits for the reader: what would wait is not written (EINTR).
// Threads: one.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "cmd/encode.h"

namespace loch::cmd {

class Output {
 public:
  // Does not own `descriptor`.
  explicit Output(int descriptor) : descriptor_(descriptor) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Keeps the bytes, and writes once there are 64 KiB of them. Returns whether it is worth going on.
  bool write(std::string_view bytes);
  // Writes what is kept.
  bool flush();

  // While the descriptor takes nothing, since its reader lets us wait, this is called again and again; null:
  // nothing is.
  void set_meanwhile(std::function<void()> meanwhile) { meanwhile_ = std::move(meanwhile); }

  [[nodiscard]] bool good() const { return error_ == 0; }
  [[nodiscard]] bool reader_gone() const;
  [[nodiscard]] int error() const { return error_; }  // an errno, 0 for none

 private:
  void write_through(std::string_view bytes);
  // Waits at most so long. False if a write would wait, or a signal came.
  [[nodiscard]] bool has_room(int wait_ms) const;

  std::function<void()> meanwhile_;
  int descriptor_;
  int error_ = 0;
  std::string kept_;
};

// A file that takes the place of `path` only when it is whole, and leaves nothing behind if it never is. It
// has the mode and the group of the one it replaces; a new one is for its owner alone. What is no regular
// file (a device, a pipe), and what a process has open (/dev/stdout, /dev/fd/3), is written in place.
class WholeFile {
 public:
  static Parsed<WholeFile> create(const std::string& path);
  WholeFile(WholeFile&& other) noexcept;
  WholeFile& operator=(WholeFile&&) = delete;
  ~WholeFile();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  // Gives the file its name, once everything is written.
  Parsed<void> publish();

 private:
  WholeFile(int descriptor, std::string temporary, std::string path)
      : descriptor_(descriptor), temporary_(std::move(temporary)), path_(std::move(path)) {}

  int descriptor_;
  std::string temporary_;  // empty: written in place
  std::string path_;
};

}  // namespace loch::cmd
