// Links that a host does not have, since another one had them that was in its place before.
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "fabric/host.h"
#include "fabric/remote/protocol.h"
#include "fabric/testing/memory_store.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/socket.h"

namespace loch::fabric::host {
namespace {

base::Nanos soon() { return base::Clock().now() + 5 * base::second_ns; }

class LinkNamesTest : public testing::Test {
 protected:
  // A client, played by hand: what it says first, and what it is told last.
  struct Client {
    net::Messages messages;
    std::string mine;  // the nonces
    std::string theirs{};
    net::Message told{};
  };
  static Client greet(const Host& host) {
    auto socket = net::connect({.host = "127.0.0.1", .port = std::to_string(host.ports().at(0))}, {}, soon());
    Client client{.messages = net::Messages(std::make_unique<net::Stream>(std::move(socket.value()))),
                  .mine = net::random_hex(remote::nonce_bytes)};
    const auto hello =
        client.messages.ask({{"protocol", remote::protocol_version}, {"nonce", client.mine}}, soon());
    client.theirs = net::text_of(hello.value(), "nonce");
    return client;
  }
  static Client link_to(const Host& host) {
    Client client = greet(host);
    const std::string proof =
        net::proof(net::no_key(), {"open", client.theirs, client.mine, "store", remote::access_text(false)});
    client.told =
        client.messages.ask({{"open", "store"}, {"read_only", false}, {"proof", proof}}, soon()).value();
    return client;
  }
  // A data connection of a link, which this host may have or not.
  static Client join(const Host& host, const Client& link) {
    Client client = greet(host);
    const net::Secret secret = net::digest(net::no_key(), {"link", link.theirs, link.mine});
    client.told = client.messages
                      .ask({{"join", net::text_of(link.told, "link")},
                            {"session", ""},
                            {"proof", net::proof(secret, {"join", client.theirs, client.mine, ""})}},
                           soon())
                      .value();
    return client;
  }
  [[nodiscard]] std::unique_ptr<Host> start() const {
    return Host::start({.listen = {{.host = "127.0.0.1", .port = "0"}},
                        .open_store = [this](const std::string&) { return store_->attach(); }})
        .value();
  }

  std::shared_ptr<fake::MemoryStore> store_ =
      fake::MemoryStore::create({.regions = {{0, std::uint64_t{1} << 20}}, .fill = {}});
};

// Receive: a client that has not noticed that its host has ended, and would join the one that was started in
// its place, where others have as many links. Expect: it is told that there is no such link, after which it
// makes another, and not that it knows the wrong key.
TEST_F(LinkNamesTest, ALinkOfAHostBeforeIsNotTakenForOneOfThisHost) {
  const auto before = start();
  const Client link = link_to(*before);
  EXPECT_TRUE(join(*before, link).told.contains("port"));
  const auto host = start();
  const Client other = link_to(*host);
  const auto refused = net::error_of(join(*host, link).told, "open");
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, Errc::not_found);
  EXPECT_TRUE(join(*host, other).told.contains("port"));
}

}  // namespace
}  // namespace loch::fabric::host
