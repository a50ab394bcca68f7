#include "net/credentials.h"

#include <fmt/format.h>
#include <utility>

#include "net/cookie.h"

namespace loch::net {
namespace {

Result<Credentials> read(const std::string& key_file, const TlsFiles& tls,
                         Result<TlsContext> (*context_of)(const TlsFiles&)) {
  Credentials credentials;
  if (!key_file.empty()) {
    auto key = read_key_file(key_file);
    if (!key) return std::unexpected(std::move(key.error()));
    credentials.key = *key;
  }
  if (tls.any()) {
    auto context = context_of(tls);
    if (!context) return std::unexpected(std::move(context.error()));
    credentials.tls = std::move(*context);
  }
  return credentials;
}

}  // namespace

Result<Credentials> Credentials::of_client(const std::string& key_file, const TlsFiles& tls) {
  return read(key_file, tls, TlsContext::client);
}

Result<Credentials> Credentials::of_server(const KeyFiles& keys, const TlsFiles& tls) {
  auto credentials = read(keys.key, tls, TlsContext::server);
  if (!credentials) return credentials;
  if (keys.key.empty() && !keys.cookie_directory.empty()) {
    auto cookie = own_cookie(keys.cookie_directory);
    if (!cookie) return std::unexpected(std::move(cookie.error()));
    credentials->key = *cookie;
  }
  if (!keys.other.empty()) {
    auto other = read_key_file(keys.other);
    if (other) credentials->other_key = *other;
    if (!other && other.error().code != Errc::not_found) return std::unexpected(std::move(other.error()));
  }
  if (keys.read.empty()) return credentials;
  auto key = read_key_file(keys.read);
  if (!key) return std::unexpected(std::move(key.error()));
  if (*key == credentials->key || *key == credentials->other_key) {
    return fail(Errc::invalid_argument, "key",
                fmt::format("the key in {} lets clients change the stores; those that may only read need "
                            "another one",
                            keys.read));
  }
  credentials->read_key = *key;
  return credentials;
}

Result<std::shared_ptr<ClientCredentials>> ClientCredentials::open(std::string key_file, TlsFiles tls,
                                                                   std::string cookie_directory) {
  if (!key_file.empty()) cookie_directory.clear();
  auto first = Credentials::of_client(key_file, tls);
  if (!first) return std::unexpected(std::move(first.error()));
  return std::shared_ptr<ClientCredentials>(new ClientCredentials(
      std::move(key_file), std::move(tls), std::move(cookie_directory), std::move(*first)));
}

Credentials ClientCredentials::now() {
  auto read = Credentials::of_client(key_file_, tls_);
  const std::scoped_lock lock(mutex_);
  if (read) last_ = std::move(*read);
  return last_;
}

}  // namespace loch::net
