// A host, and who gets in by a key for all, by one for reading, and by a cookie.
#include <array>
#include <cstddef>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "fabric/host.h"
#include "fabric/remote/link.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/testing/memory_store.h"
#include "lab/temp_folder.h"
#include "net/credentials.h"
#include "net/socket.h"
#include "net/testing/acceptor.h"

namespace loch::fabric::host {
namespace {

using remote::Link;
using remote::RemoteFabric;
using remote::Target;

// A folder for keys and cookies, and a host with a store for those who know them.
class HostWithKeys : public testing::Test {
 protected:
  HostWithKeys() {
    options_.listen = {{.host = "127.0.0.1", .port = "0"}};
    options_.open_store = [this](const std::string&) { return store_->attach(); };
    options_.readers.admit = [](Fabric&, std::uint32_t) -> Result<std::optional<OwnWords>> {
      return OwnWords{.first = {.at = {0, 0}, .length_bytes = 64}};
    };
    options_.readers.dismiss = [](Fabric&, std::uint32_t) {};
  }
  void start() { host_ = Host::start(options_).value(); }
  [[nodiscard]] std::string make_key(const std::string& name) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "a key of sixteen bytes: " << name;
    ::chmod(path.c_str(), 0600);
    return path;
  }
  // Of who knows this key, or else looks for a cookie.
  [[nodiscard]] Target target(const std::string& key_file) const {
    return {.scheme = "tcp",
            .host = {.host = "127.0.0.1", .port = std::to_string(host_->ports().at(0))},
            .store = "store",
            .credentials = net::ClientCredentials::open(key_file, {}, folder_).value()};
  }

  const lab::TempFolder temp_ = lab::TempFolder::make(testing::TempDir()).value();
  const std::string folder_ = temp_.path();
  std::shared_ptr<fake::MemoryStore> store_ =
      fake::MemoryStore::create({.regions = {{0, std::uint64_t{1} << 20}}, .fill = {}});
  Host::Options options_;
  std::unique_ptr<Host> host_;
};

// Passes on what comes of each of its connections to a host, and what is answered there.
class Relay {
 public:
  explicit Relay(net::HostPort to) : to_(std::move(to)) {}
  [[nodiscard]] net::HostPort at() const { return acceptor_.at(); }

 private:
  void pass_on(const base::FileDescriptor& client) const {
    const auto host = net::connect(to_, {}, base::Clock().now() + 5 * base::second_ns).value();
    std::array<pollfd, 2> ends = {pollfd{.fd = client.get(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = host.get(), .events = POLLIN, .revents = 0}};
    while (::poll(ends.data(), ends.size(), 5'000) > 0) {
      for (std::size_t i = 0; i < ends.size(); ++i) {
        if (ends[i].revents == 0) continue;
        std::array<char, 4'096> bytes{};
        const ssize_t got = ::recv(ends[i].fd, bytes.data(), bytes.size(), 0);
        if (got <= 0 ||
            ::send(ends[1 - i].fd, bytes.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) != got)
          return;
      }
    }
  }

  const net::HostPort to_;
  const net::fake::Acceptor acceptor_{[this](const base::FileDescriptor& client) { pass_on(client); },
                                      "127.0.0.2"};
};

// Receive: somebody at another address of this host, who passes on what a client and a host with a cookie say
// to each other. Expect: the host lets in neither of them; who has a key need not care.
TEST_F(HostWithKeys, ACookieIsOfNoUseToWhoPassesItOn) {
  options_.cookie_directory = folder_;
  start();
  Target target = this->target({});
  EXPECT_TRUE(Link::open(target).has_value());
  const Relay relay(target.host);
  target.host = relay.at();
  const auto refused = Link::open(target);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::permission);
  EXPECT_THAT(refused.error().detail, testing::HasSubstr("at its own addresses alone"));

  options_.cookie_directory.clear();
  options_.key_file = make_key("key");
  start();
  target = this->target(options_.key_file);
  const Relay gateway(target.host);
  target.host = gateway.at();
  const auto far = Link::open(target);
  EXPECT_TRUE(far.has_value()) << far.error().message();
}

// Receive: those who know the key for reading alone, and claim the numbers that they may have. Expect: they
// are given no more until one of them leaves; whoever knows the other key is.
TEST_F(HostWithKeys, WhoMayOnlyReadLeavesNumbersToOthers) {
  options_.key_file = make_key("key");
  options_.read_key_file = make_key("read-key");
  options_.readers.numbers_max = 2;
  start();
  const auto readers = RemoteFabric::attach(target(options_.read_key_file)).value();
  const auto first = readers->connect();
  auto second = readers->connect();
  const auto third = readers->connect();
  EXPECT_TRUE(first->claim_presence(1).value());
  EXPECT_TRUE(second->claim_presence(2).value());
  const auto refused = third->claim_presence(3);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::no_space);

  Target knows = target(options_.key_file);
  const auto writers = RemoteFabric::attach(knows).value();
  const auto writer = writers->connect();
  EXPECT_TRUE(writer->claim_presence(3).value());
  knows.read_only = true;
  const auto asks_to_read = RemoteFabric::attach(knows).value();
  const auto another = asks_to_read->connect();
  EXPECT_TRUE(another->claim_presence(4).value());

  second = nullptr;
  EXPECT_TRUE(third->claim_presence(2).value());
}

// Receive: those who know the key for reading alone, and connect as often as they may. Expect: half of the
// connections are left, for links and sessions of those who know the other key.
TEST_F(HostWithKeys, WhoMayOnlyReadLeavesConnectionsToOthers) {
  options_.key_file = make_key("key");
  options_.read_key_file = make_key("read-key");
  options_.connections_max = 8;
  start();
  const Target reads = target(options_.read_key_file);
  std::vector<std::shared_ptr<Link>> links;
  for (int i = 0; i < 3; ++i) links.push_back(Link::open(reads).value());
  const auto session = links.front()->join({});
  EXPECT_TRUE(session.has_value());
  const auto link = Link::open(reads);
  ASSERT_FALSE(link.has_value());
  EXPECT_EQ(link.error().code, Errc::unavailable);
  EXPECT_THAT(link.error().detail, testing::HasSubstr("raise connections_max"));
  EXPECT_EQ(links.back()->join({}).error().code, Errc::unavailable);
  EXPECT_TRUE(links.back()->is_alive()) << "with all the sessions that it has";

  const auto writer = Link::open(target(options_.key_file));
  ASSERT_TRUE(writer.has_value()) << writer.error().message();
  EXPECT_TRUE((*writer)->join({}).has_value());
}

}  // namespace
}  // namespace loch::fabric::host
