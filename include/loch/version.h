// Which Loch a program was built with.
#pragma once

#include <string>

namespace loch {

// For people: "1.2.3 (store format 4, protocol 5)", the version of the library, and those that have to be the
// same wherever a store is shared: of how it lies in memory, and of what hosts and their clients say to each
// other. Those of another version are refused (Errc::incompatible).
[[nodiscard]] std::string library_version();

}  // namespace loch
