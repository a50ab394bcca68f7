#include "tests/responses.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "sim/history.h"

namespace loch::tests {

void Responses::read_on(const Show& show) {
  std::ifstream file(history_);
  ASSERT_TRUE(file.is_open()) << history_.string();
  file.seekg(read_bytes_);
  // The end of the last line may still be to come.
  for (std::string line; std::getline(file, line) && !file.eof();) {
    read_bytes_ += static_cast<std::streamoff>(line.size()) + 1;
    if (!line.starts_with('#')) ASSERT_NO_FATAL_FAILURE(take(line, show));
  }
}

void Responses::take(const std::string& line, const Show& show) {
  const bool is_response = line.starts_with("< ");
  ASSERT_TRUE(is_response || line.starts_with("> ")) << history_.string() << ": " << line;
  const char* rest = line.c_str() + 1;
  const auto number = [&rest] {
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(rest, &end, 10);
    rest = end;
    return value;
  };
  const std::uint64_t sequence = number();
  const std::uint64_t client = number();
  if (number() <= since_ns_) return;
  std::istringstream words(rest);
  std::string what;  // kind, or outcome
  ASSERT_TRUE(words >> what) << history_.string() << ": " << line;
  if (is_response) {
    const auto call = open_.extract({client, sequence});
    return show(call.empty() ? std::string() : call.mapped(), what);
  }
  if (what == sim::name(sim::Kind::expire)) return;
  std::string key;
  ASSERT_TRUE(words >> key) << history_.string() << ": " << line;
  open_[{client, sequence}] = std::move(key);
}

}  // namespace loch::tests
