// cmd/version: what `loch --version` says.
#pragma once

#include <string>

namespace loch::cmd {

// The program's version, and those that have to be the same for it to open a store: of the store's format,
// and, over a network, of what it and lochd say to each other.
std::string program_version();

}  // namespace loch::cmd
