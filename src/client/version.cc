#include <fmt/format.h>

#include <loch/version.h>

#include "fabric/remote/protocol.h"
#include "memory/layout.h"

namespace loch {

std::string library_version() {
  return fmt::format("{} (store format {}, protocol {})", LOCH_VERSION, memory::format_version,
                     fabric::remote::protocol_version);
}

}  // namespace loch
