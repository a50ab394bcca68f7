#include "fabric/host/gate.h"

#include <fmt/format.h>
#include <unistd.h>

#include "fabric/remote/protocol.h"
#include "net/cookie.h"

namespace loch::fabric::host {

using net::Message;

Result<std::unique_ptr<Gate>> Gate::open(net::KeyFiles keys, net::TlsFiles tls) {
  auto credentials = net::Credentials::of_server(keys, tls);
  if (!credentials) return std::unexpected(std::move(credentials.error()));
  return std::unique_ptr<Gate>(new Gate(std::move(keys), std::move(tls), std::move(*credentials)));
}

Result<void> Gate::reload() {
  auto credentials = net::Credentials::of_server(files_, tls_);
  if (!credentials) return std::unexpected(std::move(credentials.error()));
  const std::scoped_lock lock(mutex_);
  credentials_ = std::move(*credentials);
  return {};
}

net::Credentials Gate::credentials() const {
  const std::scoped_lock lock(mutex_);
  return credentials_;
}

std::unique_ptr<net::Stream> Gate::accept(base::FileDescriptor socket) const {
  const auto& tls = credentials().tls;
  return tls ? tls->accept(std::move(socket)) : std::make_unique<net::Stream>(std::move(socket));
}

Result<Message> Gate::greet(const Message& said, Greeting& greeting) const {
  const auto version = net::number_of(said, "protocol");
  greeting.theirs = net::text_of(said, "nonce");
  if (version != remote::protocol_version || greeting.theirs.size() != 2 * remote::nonce_bytes) {
    return fail(Errc::incompatible, "host",
                fmt::format("the client speaks protocol {}, this host {}", version.value_or(0),
                            remote::protocol_version));
  }
  greeting.mine = net::random_hex(remote::nonce_bytes);
  Message told{{"protocol", remote::protocol_version}, {"nonce", greeting.mine}};
  if (has_cookie()) told["cookie"] = ::geteuid();
  return told;
}

std::string Gate::why_unknown(bool has_none) const {
  if (!files_.key.empty()) {
    return fmt::format(
        "the client does not know this host's key: it has {}; a client's key file is named by --key-file, "
        "LOCH_KEY_FILE, or a program's Options::key_file",
        has_none ? "none" : "another");
  }
  if (!has_cookie()) return "the client has a key, and this host has none";
  return fmt::format(
      "this lochd has no key_file, and lets in its own user ({}) and root alone, by {}, which clients "
      "without a key look for in their --directory, and use at its own addresses alone, not at one that "
      "leads on to it; others need a key_file (there, and here by --key-file), or its open_to_all",
      ::geteuid(), net::cookie_path(files_.cookie_directory, ::geteuid()));
}

Result<Gate::Client> Gate::let_open(const Message& said, const Greeting& greeting) const {
  const auto& [came_to, mine, theirs] = greeting;
  const std::string store = net::text_of(said, "open");
  const bool asks_to_read = net::flag_of(said, "read_only");
  const auto knows = [&](const net::Secret& key) {
    return net::same(net::text_of(said, "proof"),
                     net::proof(key, {"open", mine, theirs, store, remote::access_text(asks_to_read)}));
  };
  const net::Credentials all = credentials();
  const bool is_reader = all.read_key && knows(*all.read_key);
  const bool has_other = !is_reader && all.other_key && knows(*all.other_key);
  const net::Secret own = has_cookie() ? net::cookie_key(all.key, came_to) : all.key;
  const net::Secret& key = is_reader ? *all.read_key : has_other ? *all.other_key : own;
  if (!is_reader && !has_other && !knows(key))
    return fail(Errc::permission, "host", why_unknown(knows(net::no_key())));
  const bool reads_only = is_reader || asks_to_read;
  return Client{.by_read_key = is_reader,
                .reads_only = reads_only,
                .proof = net::proof(key, {"host", mine, theirs, store, remote::access_text(reads_only)}),
                .link_secret = net::digest(key, {"link", mine, theirs})};
}

Result<std::string> Gate::let_fence(const Message& said, const Greeting& greeting) const {
  const auto& [came_to, mine, theirs] = greeting;
  const std::string session = net::text_of(said, "fence");
  const std::string store = net::text_of(said, "store");
  const std::string node = net::text_of(said, "node");
  const auto knows = [&](const net::Secret& key) {
    return net::same(net::text_of(said, "proof"),
                     net::proof(key, {"fence", mine, theirs, session, store, node}));
  };
  const net::Credentials all = credentials();
  const bool has_other = all.other_key && knows(*all.other_key);
  const net::Secret& key = has_other ? *all.other_key : all.key;
  if (!has_other && !knows(key))
    return fail(Errc::permission, "host", "it would fence, and does not know this host's key");
  return net::proof(key, {"fenced", mine, theirs, session, store, node});
}

Result<void> Gate::let_join(const Message& said, const Greeting& greeting, const net::Secret& link_secret) {
  const std::string session = net::text_of(said, "session");
  if (net::same(net::text_of(said, "proof"),
                net::proof(link_secret, {"join", greeting.mine, greeting.theirs, session})))
    return {};
  return fail(Errc::permission, "host", "it belongs to no client that is known here");
}

}  // namespace loch::fabric::host
