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
  std::optional<Secret> read_key{};  // of a server: of those clients that may only read
  std::optional<TlsContext> tls{};   // none: the connection is plain

  // Empty names are of what there is not. Errors: as read_key_file and TlsContext; invalid_argument, if both
  // keys are the same.
  static Result<Credentials> of_server(const std::string& key_file, const std::string& read_key_file,
                                       const TlsFiles& tls);
  static Result<Credentials> of_client(const std::string& key_file, const TlsFiles& tls);
};

}  // namespace loch::net
