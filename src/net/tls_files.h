// Where the certificates of one end of a connection are.
#pragma once

#include <string>

namespace loch::net {

// PEM files all of them.
struct TlsFiles {
  std::string certificate{};  // of this end, and those that vouch for it; empty: none
  std::string key{};
  std::string authority{};  // whose certificates this end trusts; empty: for a server, clients need none

  [[nodiscard]] bool any() const { return !certificate.empty() || !key.empty() || !authority.empty(); }
};

}  // namespace loch::net
