#include "tests/lochd_process.h"

#include <chrono>
#include <gtest/gtest.h>
#include <thread>
#include <utility>

namespace loch::tests {
namespace {

constexpr std::chrono::seconds patience{60};

}  // namespace

std::unique_ptr<Process> start_lochd_process(std::vector<std::string> arguments,
                                             const std::filesystem::path& log) {
  std::error_code none;
  const auto before = std::filesystem::exists(log, none) ? std::filesystem::file_size(log, none) : 0;
  arguments.insert(arguments.begin(), {"--pdeathsig", "KILL", LOCH_TEST_LOCHD});
  auto lochd = std::make_unique<Process>(Command{
      .program = "/usr/bin/setpriv", .arguments = std::move(arguments), .environment = {}, .output = log});
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (lochd->output().find("lends the stores", before) == std::string::npos) {
    const bool goes_on = !lochd->wait(std::chrono::milliseconds(10)).has_value();
    if (goes_on && std::chrono::steady_clock::now() < deadline) continue;
    ADD_FAILURE() << "lochd does not lend:\n" << lochd->output();
    break;
  }
  return lochd;
}

}  // namespace loch::tests
