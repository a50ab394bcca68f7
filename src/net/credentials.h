// Credentials: what one end of a connection shows to the other, as it is read from files.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <loch/error.h>

#include "net/proof.h"
#include "net/stream.h"
#include "net/tls_files.h"

namespace loch::net {

// Where the keys of a server are; empty names are of what there is not.
struct KeyFiles {
  std::string key{};
  std::string other{};  // there need not be such a file
  std::string read{};
  std::string cookie_directory{};  // without a `key`: where this user's cookie is the key (cookie.h)
};

struct Credentials {
  Secret key = no_key();
  std::optional<Secret> other_key{};  // of a server: counts as much, while the key is replaced
  std::optional<Secret> read_key{};   // of a server: of those clients that may only read
  std::optional<TlsContext> tls{};    // none: the connection is plain

  // Errors: as read_key_file, own_cookie and TlsContext; invalid_argument, if a key that is for reading lets
  // clients change something.
  static Result<Credentials> of_server(const KeyFiles& keys, const TlsFiles& tls);
  // An empty name is of what there is not. Errors: as read_key_file and TlsContext.
  static Result<Credentials> of_client(const std::string& key_file, const TlsFiles& tls);
};

// Those of a client, who reads its files again whenever it connects: keys and certificates are replaced while
// it runs. Any thread.
class ClientCredentials {
 public:
  // Errors: as Credentials::of_client.
  static Result<std::shared_ptr<ClientCredentials>> open(std::string key_file, TlsFiles tls,
                                                         std::string cookie_directory = {});
  ClientCredentials(const ClientCredentials&) = delete;
  ClientCredentials& operator=(const ClientCredentials&) = delete;

  // As the files say now; where they can not be read any more, as they said last.
  [[nodiscard]] Credentials now();
  // Where a client without a key finds that of a server on this host (cookie.h); empty: nowhere.
  [[nodiscard]] const std::string& cookie_directory() const { return cookie_directory_; }

 private:
  ClientCredentials(std::string key_file, TlsFiles tls, std::string cookie_directory, Credentials first)
      : key_file_(std::move(key_file)),
        tls_(std::move(tls)),
        cookie_directory_(std::move(cookie_directory)),
        last_(std::move(first)) {}

  const std::string key_file_;
  const TlsFiles tls_;
  const std::string cookie_directory_;
  std::mutex mutex_;
  Credentials last_;
};

}  // namespace loch::net
