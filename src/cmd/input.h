// cmd/input: reading files and standard input, whole or line by line.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cmd/encode.h"

namespace loch::cmd {

// A file opened for reading; "-" is standard input. Closes what it opened.
class InputFile {
 public:
  static Parsed<InputFile> open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  // Of a regular file; nothing for a pipe or a terminal.
  [[nodiscard]] std::optional<std::uint64_t> size_bytes() const;
  // "-" is called "standard input".
  [[nodiscard]] const std::string& name() const { return name_; }

  // The rest of the file; nothing if that is longer than `bytes_max`.
  Parsed<std::optional<std::string>> read_all(std::size_t bytes_max);

 private:
  InputFile(int descriptor, bool owned, std::string name)
      : descriptor_(descriptor), owned_(owned), name_(std::move(name)) {}

  int descriptor_ = -1;
  bool owned_ = false;
  std::string name_;
};

// The lines of a descriptor, without their newlines. The last line need not end in one.
class LineReader {
 public:
  LineReader(int descriptor, std::size_t line_bytes_max)
      : descriptor_(descriptor), line_bytes_max_(line_bytes_max) {}

  // The next line, valid until the next call; nothing at the end. A carriage return before the newline is
  // dropped, and a byte order mark before the first line.
  Parsed<std::optional<std::string_view>> next();

  [[nodiscard]] std::uint64_t line_number() const { return line_number_; }  // of the last line, from 1
  [[nodiscard]] std::uint64_t bytes_taken() const { return bytes_taken_; }  // by the lines so far
  // Whether a whole line is here already, so that `next` will not wait for the writer of a pipe.
  [[nodiscard]] bool line_ready() const;

 private:
  Parsed<bool> fill();

  int descriptor_;
  std::size_t line_bytes_max_;
  std::string buffer_;
  std::size_t begin_ = 0;     // of the next line in buffer_
  std::size_t searched_ = 0;  // no newline in [begin_, searched_)
  bool ended_ = false;
  std::uint64_t line_number_ = 0;
  std::uint64_t bytes_taken_ = 0;
};

}  // namespace loch::cmd
