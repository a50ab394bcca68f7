// Credentials: what one end of a connection shows to the other, as it is read from files.
#pragma once

#include <optional>
#include <string>

#include <loch/error.h>

#include "net/proof.h"
#include "net/stream.h"

namespace loch::net {

struct Credentials {
  Secret key = no_key();
  std::optional<TlsContext> tls{};  // none: the connection is plain

  enum class End : unsigned char { server, client };
  // Empty names are of what there is not. Errors: as read_key_file and TlsContext.
  static Result<Credentials> read(End end, const std::string& key_file, const TlsFiles& tls);
};

}  // namespace loch::net
