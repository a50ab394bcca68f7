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

// Those of a client, who reads its files again whenever it connects: keys and certificates are replaced while
// it runs. Any thread.
class ClientCredentials {
 public:
  // Errors: as Credentials::of_client.
  static Result<std::shared_ptr<ClientCredentials>> open(std::string key_file, TlsFiles tls);
  ClientCredentials(const ClientCredentials&) = delete;
  ClientCredentials& operator=(const ClientCredentials&) = delete;

  // As the files say now; where they can not be read any more, as they said last.
  [[nodiscard]] Credentials now();

 private:
  ClientCredentials(std::string key_file, TlsFiles tls, Credentials first)
      : key_file_(std::move(key_file)), tls_(std::move(tls)), last_(std::move(first)) {}

  const std::string key_file_;
  const TlsFiles tls_;
  std::mutex mutex_;
  Credentials last_;
};

}  // namespace loch::net
