// Gate: who gets in at a host. Both ends of a connection prove to each other that they know a key
// (remote/protocol.h, "Greeting"); this is the host's part of that, and keeps its keys and certificates,
// which may be replaced while it runs. What a peer says is input. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <loch/error.h>

#include "base/file_descriptor.h"
#include "net/credentials.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/stream.h"

namespace loch::fabric::host {

class Gate {
 public:
  // Errors: as net::Credentials::of_server.
  static Result<std::unique_ptr<Gate>> open(net::KeyFiles keys, net::TlsFiles tls);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Reads its files again. Errors: as open; then it goes by what they said before.
  Result<void> reload();

  // Over a connection that has come: inside TLS, if this host has a certificate.
  [[nodiscard]] std::unique_ptr<net::Stream> accept(base::FileDescriptor socket) const;

  // What both ends of a connection have said before either proves anything.
  struct Greeting {
    std::string came_to{};  // the address of this host, to which a cookie is good
    std::string mine{};     // the nonces
    std::string theirs{};
  };
  // Answers the first message. Errors: incompatible.
  [[nodiscard]] Result<net::Message> greet(const net::Message& said, Greeting& greeting) const;

  // One that knows a key, and opens a store.
  struct Client {
    bool by_read_key = false;
    bool reads_only = false;    // by its key, or as it asks
    std::string proof{};        // that this host knows the key, too
    net::Secret link_secret{};  // by which it joins data connections
  };
  // Errors: permission.
  [[nodiscard]] Result<Client> let_open(const net::Message& said, const Greeting& greeting) const;
  // Another host of a cluster, that takes a session for dead: how it is shown that this host, which knows
  // the same key, has ended it. Errors: permission.
  [[nodiscard]] Result<std::string> let_fence(const net::Message& said, const Greeting& greeting) const;
  // A data connection of a link with this secret. Errors: permission.
  [[nodiscard]] static Result<void> let_join(const net::Message& said, const Greeting& greeting,
                                             const net::Secret& link_secret);

 private:
  Gate(net::KeyFiles keys, net::TlsFiles tls, net::Credentials credentials)
      : files_(std::move(keys)), tls_(std::move(tls)), credentials_(std::move(credentials)) {}
  // Whether its key is this user's cookie.
  [[nodiscard]] bool has_cookie() const { return files_.key.empty() && !files_.cookie_directory.empty(); }
  // What is wrong with a client that knows no key of this host, or has none at all.
  [[nodiscard]] std::string why_unknown(bool has_none) const;
  [[nodiscard]] net::Credentials credentials() const;

  const net::KeyFiles files_;
  const net::TlsFiles tls_;
  mutable std::mutex mutex_;
  net::Credentials credentials_;
};

}  // namespace loch::fabric::host
