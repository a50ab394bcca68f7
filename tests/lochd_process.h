// A real lochd as a child of a test.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/process.h"

namespace loch::tests {

// Starts lochd and waits until it lends; if it does not, the test has failed. It does not outlive the test,
// however that ends. What it says is added to the file `log`.
std::unique_ptr<Process> start_lochd_process(std::vector<std::string> arguments,
                                             const std::filesystem::path& log);

}  // namespace loch::tests
