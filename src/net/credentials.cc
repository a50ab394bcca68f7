#include "net/credentials.h"

#include <utility>

namespace loch::net {

Result<Credentials> Credentials::read(End end, const std::string& key_file, const TlsFiles& tls) {
  Credentials credentials;
  if (!key_file.empty()) {
    auto key = read_key_file(key_file);
    if (!key) return std::unexpected(std::move(key.error()));
    credentials.key = *key;
  }
  if (tls.any()) {
    auto context = end == End::server ? TlsContext::server(tls) : TlsContext::client(tls);
    if (!context) return std::unexpected(std::move(context.error()));
    credentials.tls = std::move(*context);
  }
  return credentials;
}

}  // namespace loch::net
