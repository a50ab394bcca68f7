// Responses: what a worker is told, from its history (sim/history.h), as it goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ios>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace loch::tests {

class Responses {
 public:
  // Those later than `since_ns`.
  Responses(std::filesystem::path history, std::uint64_t since_ns)
      : history_(std::move(history)), since_ns_(since_ns) {}

  // Shows those that have come since the last time. The key, of printable characters, is empty where the call
  // is not later than `since_ns`, and where it is the end of a value, of which nobody is told. A history that
  // can not be read, or is none, fails the test fatally.
  using Show = std::function<void(const std::string& key, std::string_view outcome)>;
  void read_on(const Show& show);

 private:
  void take(const std::string& line, const Show& show);

  const std::filesystem::path history_;
  const std::uint64_t since_ns_;
  std::streamoff read_bytes_ = 0;                                        // whole lines
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> open_;  // keys, by client and sequence
};

}  // namespace loch::tests
