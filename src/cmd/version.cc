#include "cmd/version.h"

#include <fmt/format.h>

#include "fabric/remote/protocol.h"
#include "memory/layout.h"

namespace loch::cmd {

std::string program_version() {
  return fmt::format("loch {} (store format {}, protocol {})", LOCH_VERSION, memory::format_version,
                     fabric::remote::protocol_version);
}

}  // namespace loch::cmd
