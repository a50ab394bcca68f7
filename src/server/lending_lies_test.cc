// Clients of hosts that say what can not be: Store::open, against a greeting of another version, and maps of
// a cluster that lie.
#include <chrono>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <loch/loch.h>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "fabric/map_message.h"
#include "fabric/remote/protocol.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/stream.h"
#include "net/testing/acceptor.h"

namespace loch::server {
namespace {

using fabric::ClusterMap;
using fabric::remote::protocol_version;
using testing::HasSubstr;

base::Nanos soon() { return base::Clock().now() + 5 * base::second_ns; }

// Greets as a host does, but for what a test wants.
class LyingHost {
 public:
  struct Lies {
    std::uint64_t protocol = protocol_version;
    bool refuses = false;    // as a host does that knows the client's version to be another
    net::Message cluster{};  // its map; null: of none
  };
  explicit LyingHost(Lies lies) : lies_(std::move(lies)) {}
  [[nodiscard]] std::string url() const { return fmt::format("tcp://{}/store", acceptor_.at().text()); }

 private:
  void greet(net::Messages& client) const {
    const std::string mine(2 * fabric::remote::nonce_bytes, 'h');
    const auto hello = client.wait_next(soon());
    if (!hello) return;
    if (lies_.refuses) {
      std::ignore = client.say(net::error_message(
          {.code = Errc::incompatible,
           .detail = fmt::format("the client speaks protocol {}, this host {}",
                                 net::number_of(*hello, "protocol").value_or(0), lies_.protocol)}));
      return;
    }
    if (!client.ask({{"protocol", lies_.protocol}, {"nonce", mine}}, soon())) return;
    const std::string proof =
        net::proof(net::no_key(), {"host", mine, net::text_of(*hello, "nonce"), "store", "change"});
    net::Message opened{{"proof", proof}, {"link", "1"}, {"node", 0U}};
    if (!lies_.cluster.is_null()) opened["cluster"] = lies_.cluster;
    std::ignore = client.say(opened);
  }

  const Lies lies_;
  std::vector<std::unique_ptr<net::Messages>> links_;
  const net::fake::Acceptor acceptor_{[this](base::FileDescriptor socket) {
    links_.push_back(std::make_unique<net::Messages>(std::make_unique<net::Stream>(std::move(socket))));
    greet(*links_.back());
  }};
};

Error error_of_opening(const LyingHost& host) {
  Options options;
  options.mode = Options::Mode::attach;
  options.timeout = std::chrono::seconds(5);
  const auto opened = Store::open(host.url(), options);
  return opened ? Error{.detail = "it was opened"} : opened.error();
}

// Receive: a host of another version, which answers as if nothing were, or refuses the client. Expect: an
// error with the host and both versions.
TEST(LyingHost, OfAnotherVersionIsNamedWithBothVersions) {
  for (const std::uint64_t version : {protocol_version - 1, protocol_version + 1, std::uint64_t{0}}) {
    for (const bool refuses : {false, true}) {
      const LyingHost host(LyingHost::Lies{.protocol = version, .refuses = refuses});
      const Error error = error_of_opening(host);
      EXPECT_EQ(error.code, Errc::incompatible) << version;
      EXPECT_THAT(error.message(), HasSubstr(host.url()));
      EXPECT_THAT(
          error.message(),
          HasSubstr(
              refuses ? fmt::format("the client speaks protocol {}, this host {}", protocol_version, version)
                      : fmt::format("it speaks protocol {}, this program {}", version, protocol_version)));
    }
  }
}

// Receive: maps that can not be, of a host that is there and of another one. Expect: an error that names the
// host which says so, and what is wrong; and nobody comes to the other one.
TEST(LyingHost, OfAClusterReachesNobodyWithAMapThatCanNotBe) {
  const net::Listener other = net::listen({.host = "127.0.0.1", .port = "0"}).value();
  const net::HostPort other_at{.host = "127.0.0.1", .port = std::to_string(other.port)};
  const auto map = [&] {
    return ClusterMap::spread(
               {{.name = "a", .at = other_at}, {.name = "b", .at = {.host = "127.0.0.1", .port = "1"}}}, 2)
        .value();
  };
  struct Lie {
    ClusterMap map;
    const char* why;
  };
  std::vector<Lie> lies(6, Lie{.map = map(), .why = nullptr});
  lies[0].map.nodes[1].data.front() = fabric::first_data_region;
  lies[0].why = "region 2 is on two nodes";
  lies[1].map.shards[1].home.node = 2;
  lies[1].why = "a shard is on node 2, which there is not";
  lies[2].map.shards[1].home.index = fabric::index_region_of(0);
  lies[2].why = "region 192 is not for shard 1";
  lies[3].map.nodes[1].name = "a";
  lies[3].why = "two nodes are called 'a'";
  lies[4].map.shards.clear();
  lies[4].why = "shards, not 0";
  lies[5].map.nodes[1].at = other_at;
  lies[5].why = "nodes 'a' and 'b' are both at ";
  for (const Lie& lie : lies) {
    const LyingHost host(LyingHost::Lies{.cluster = fabric::cluster::to_message(lie.map)});
    const Error error = error_of_opening(host);
    EXPECT_EQ(error.code, Errc::corrupt) << lie.why;
    EXPECT_THAT(error.message(), HasSubstr(host.url()));
    EXPECT_THAT(error.message(), HasSubstr(lie.why));
  }
  EXPECT_FALSE(net::wait_for(other.socket.get(), POLLIN, 0)) << "somebody has come";

  // The other one is gone to, if the map can be.
  const LyingHost host(LyingHost::Lies{.cluster = fabric::cluster::to_message(map())});
  EXPECT_NE(error_of_opening(host).code, Errc::corrupt);
  EXPECT_TRUE(net::wait_for(other.socket.get(), POLLIN, soon()));
}

}  // namespace
}  // namespace loch::server
