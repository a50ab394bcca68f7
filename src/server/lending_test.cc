// Stores of this host, used as from another one: over sockets, through a Host.
#include <array>
#include <atomic>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <loch/loch.h>

#include "base/random.h"
#include "fabric/endpoint.h"
#include "fabric/host.h"
#include "fabric/remote/protocol.h"
#include "memory/layout.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/testing/certificates.h"
#include "net/testing/reserved_port.h"
#include "server/keeper.h"

namespace loch::server {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A folder with stores, lent by a Host.
class LendingTest : public testing::Test {
 public:
  LendingTest(const LendingTest&) = delete;
  LendingTest& operator=(const LendingTest&) = delete;
  ~LendingTest() override {
    stop();
    if (near_) near_.reset();
    const auto stores = Store::list(here());
    for (const std::string& name : stores ? *stores : std::vector<std::string>())
      std::ignore = Store::destroy("shm://" + name, here());
    for (const char* file : {"/key", "/other-key"}) ::unlink((folder_ + file).c_str());
    ::rmdir(folder_.c_str());
  }

 protected:
  LendingTest() {
    std::string pattern = "/dev/shm/loch-lending.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    host_options_.listen = {port_.at()};
    host_options_.open_store = [this](const std::string& name) { return keeper_->open(name); };
    host_options_.log = [this](fabric::Host::Level, const std::string& text) {
      const std::scoped_lock lock(log_mutex_);
      log_ += text + "\n";
    };
  }

  void start() {
    keeper_ = std::make_unique<Keeper>(fabric::Access{.directory = folder_, .huge_pages = false});
    host_options_.readers = keeper_->readers();
    auto host = fabric::Host::start(host_options_);
    ASSERT_TRUE(host.has_value()) << host.error().message();
    host_ = std::move(*host);
  }
  void stop() {
    host_.reset();
    keeper_.reset();
  }

  Options here() const {
    Options options;
    options.directory = folder_;
    options.huge_pages = false;
    return options;
  }
  // The store, by its files.
  Store& near() {
    if (!near_) near_.emplace(Store::open("shm://store", here()).value());
    return *near_;
  }
  std::string url(const std::string& name = "store") const {
    return fmt::format("tcp://{}/{}", port_.at().text(), name);
  }
  Result<Store> open_far(Options options = {}) const {
    options.mode = Options::Mode::attach;
    options.timeout = 5s;
    return Store::open(url(), options);
  }
  Error refused(Options options = {}) const {
    auto opened = open_far(std::move(options));
    return opened ? Error{.detail = "it was opened"} : opened.error();
  }
  std::string make_key(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  std::string log() {
    const std::scoped_lock lock(log_mutex_);
    return log_;
  }
  // Waits for what comes about by itself.
  static bool comes_true(const std::function<bool()>& condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(20ms);
    }
    return false;
  }
  // A connection that speaks what a test wants.
  net::Messages raw() const {
    auto socket = net::connect(port_.at(), "", base::Clock().now() + 5 * base::second_ns);
    EXPECT_TRUE(socket.has_value());
    return net::Messages(std::make_unique<net::Stream>(std::move(*socket)));
  }

  std::string folder_;
  const net::fake::ReservedPort port_;  // it comes back there after a restart
  fabric::Host::Options host_options_;
  std::unique_ptr<Keeper> keeper_;
  std::unique_ptr<fabric::Host> host_;
  std::optional<Store> near_;
  std::mutex log_mutex_;
  std::string log_;
};

template <class T>
Error error_of(const Result<T>& result) {
  return result ? Error{.detail = "no error"} : result.error();
}

base::Nanos soon() { return base::Clock().now() + 5 * base::second_ns; }

TEST_F(LendingTest, FarAndNearSeeEachOther) {
  near();
  start();
  auto far = open_far().value();
  ASSERT_TRUE(near().put("a", "1").has_value());
  EXPECT_EQ(far.get("a").value(), "1");
  ASSERT_TRUE(far.put("a", "2").has_value());
  EXPECT_EQ(near().get("a").value(), "2");
  EXPECT_EQ(far.insert("a", "3").error().code, Errc::exists);
  const Item item = far.read("a").value();
  EXPECT_TRUE(far.replace("a", "4", item.version).has_value());
  EXPECT_EQ(far.replace("a", "5", item.version).error().code, Errc::changed);
  EXPECT_EQ(far.view("a")->value(), "4");
  EXPECT_TRUE(far.exists("a").value());
  ASSERT_TRUE(near().remove("a").has_value());
  EXPECT_FALSE(far.exists("a").value());
  EXPECT_EQ(far.get("a").error().code, Errc::not_found);
  ASSERT_TRUE(far.insert("a", "6").has_value());
  ASSERT_TRUE(far.remove("a").has_value());
  EXPECT_EQ(near().count().value(), 0U);
  EXPECT_EQ(far.info()->name, "store");
  EXPECT_EQ(far.info()->directory, url());
}

TEST_F(LendingTest, ManyItemsOfManySizes) {
  near();
  start();
  auto far = open_far().value();
  constexpr std::size_t keys = 3'000;
  base::Random random(1);
  std::map<std::string, std::string> expected;
  std::vector<Assignment> batch;
  for (std::size_t i = 0; i < keys; ++i)
    expected[fmt::format("key{}", i)] = std::string(random.below(300), static_cast<char>('a' + i % 26));
  for (const std::size_t large : {70'000U, 1'000'000U, 5'000'001U})
    expected[fmt::format("large{}", large)] = std::string(large, 'L');
  for (const auto& [key, value] : expected) batch.push_back({.key = key, .value = value});
  far.multi_put(batch);
  for (const Assignment& each : batch) ASSERT_TRUE(each.result.has_value()) << each.result.error().message();
  std::vector<Lookup> lookups;
  for (const auto& [key, value] : expected) lookups.push_back({.key = key, .value = {}});
  far.multi_get(lookups);
  for (const Lookup& each : lookups) {
    ASSERT_TRUE(each.result.has_value()) << each.result.error().message();
    ASSERT_EQ(each.value, expected[std::string(each.key)]);
    ASSERT_EQ(near().get(each.key).value(), each.value);
  }
  std::map<std::string, std::string> walked;
  ASSERT_TRUE(far.for_each([&](const Entry& entry) {
                   walked.emplace(entry.key, entry.value);
                   return true;
                 })
                  .has_value());
  EXPECT_EQ(walked, expected);
  const Report report = far.check().value();
  EXPECT_EQ(report.items, expected.size());
  EXPECT_EQ(report.items_unaccounted + report.items_corrupt + report.slots_corrupt, 0U);
}

TEST_F(LendingTest, ATimeToLiveEndsByTheStoresTime) {
  near();
  start();
  auto far = open_far().value();
  ASSERT_TRUE(far.put("a", "1", {.time_to_live = 300ms}).has_value());
  EXPECT_EQ(far.get("a").value(), "1");
  EXPECT_TRUE(comes_true([&] { return error_of(far.get("a")).code == Errc::not_found; }));
  EXPECT_EQ(near().get("a").error().code, Errc::not_found);
}

TEST_F(LendingTest, ManyThreadsHaveASessionEach) {
  near();
  start();
  auto far = open_far().value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&far, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string key = fmt::format("key{}", i % 20);
        if (i % 4 == t) {
          ASSERT_TRUE(far.put(key, key).has_value());
        } else if (const auto got = far.get(key); got.has_value()) {
          ASSERT_EQ(*got, key);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(host_->counts().sessions, 2U);
}

TEST_F(LendingTest, WhatIsNotThereIsAnError) {
  near();
  start();
  Options attach;
  attach.mode = Options::Mode::attach;
  EXPECT_EQ(Store::open(url("none"), attach).error().code, Errc::not_found);
  EXPECT_THAT(Store::open(url("none")).error().message(), HasSubstr("loch create none"));
  EXPECT_THAT(Store::destroy(url()).error().message(), HasSubstr("loch rm store"));
  stop();
  const auto error = Store::open(url(), attach).error();
  EXPECT_EQ(error.code, Errc::unavailable);
  EXPECT_THAT(error.message(), HasSubstr("127.0.0.1"));
}

// ---- who may

TEST_F(LendingTest, OnlyThoseWhoKnowTheKeyGetIn) {
  near();
  Options knows;
  knows.key_file = make_key("key", "0123456789abcdef\n");
  Options guesses;
  guesses.key_file = make_key("other-key", "0123456789abcdeg");
  host_options_.key_file = knows.key_file;
  start();
  EXPECT_TRUE(open_far(knows).has_value());
  EXPECT_EQ(refused(guesses).code, Errc::permission);
  EXPECT_THAT(refused().message(), HasSubstr("does not know this host's key"));
  EXPECT_EQ(host_->counts().refused, 2U);

  // A new key counts from a reload on.
  make_key("key", "abcdefabcdefabcdef");
  ASSERT_TRUE(error_of(open_far(knows)).code == Errc::permission);
  ASSERT_TRUE(host_->reload().has_value());
  EXPECT_TRUE(open_far(knows).has_value());
  make_key("key", "short");
  EXPECT_THAT(host_->reload().error().message(), HasSubstr("5 bytes"));
  make_key("key", "abcdefabcdefabcdef", 0644);
  EXPECT_THAT(refused(knows).message(), HasSubstr("chmod"));
}

template <class T>
Result<void> to_void(const Result<T>& result) {
  if (result) return {};
  return std::unexpected(result.error());
}

coro::Task<Result<void>> write_word(fabric::Endpoint* endpoint, fabric::Address at) {
  co_return co_await endpoint->write_word(at, ~std::uint64_t{0});
}

// Whatever the calls of a store are that change it, they do not.
void expect_no_changes(Store& reader, Store& writer) {
  ASSERT_TRUE(writer.put("a", "1").has_value());
  const Version version = reader.read("a").value().version;
  std::vector<Assignment> batch{{.key = "a", .value = "2"}, {.key = "b", .value = "2"}};
  reader.multi_put(batch);
  for (const Result<void>& refused :
       {reader.put("a", "2"), reader.insert("b", "2"), reader.remove("a"), batch[0].result, batch[1].result,
        to_void(reader.replace("a", "2", version)), to_void(reader.collect())}) {
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::permission);
    EXPECT_THAT(refused.error().message(), HasSubstr("only read"));
  }
  EXPECT_EQ(writer.get("a").value(), "1");
  EXPECT_EQ(writer.get("b").error().code, Errc::not_found);
}

TEST_F(LendingTest, WhoeverKnowsTheKeyForReadingReadsAndChangesNothing) {
  Options changes;
  changes.key_file = make_key("key", "0123456789abcdef\n");
  Options reads;
  reads.key_file = make_key("other-key", "fedcba9876543210\n");
  host_options_.key_file = changes.key_file;
  host_options_.read_key_file = reads.key_file;
  near();
  start();
  auto writer = open_far(changes).value();
  auto reader = open_far(reads).value();
  EXPECT_THAT(log(), HasSubstr("opened store, to read only"));
  expect_no_changes(reader, writer);

  // All that reads.
  const std::string large(200'000, 'L');
  ASSERT_TRUE(writer.put("large", large).has_value());
  EXPECT_EQ(reader.get("large").value(), large);
  EXPECT_EQ(reader.view("large").value().value(), large);
  EXPECT_TRUE(reader.exists("a").value());
  EXPECT_EQ(reader.get("b").error().code, Errc::not_found);
  std::vector<Lookup> lookups(2);
  lookups[0].key = "a";
  lookups[1].key = "b";
  reader.multi_get(lookups);
  EXPECT_EQ(lookups[0].value, "1");
  EXPECT_FALSE(lookups[1].result.has_value());
  EXPECT_EQ(reader.count().value(), 2U);
  std::size_t visited = 0;
  ASSERT_TRUE(reader.for_each([&](const Entry&) { return ++visited != 0; }).has_value());
  EXPECT_EQ(visited, 2U);
  EXPECT_EQ(reader.check().value().items, 2U);
  EXPECT_EQ(reader.info().value().clients, 3U) << "the near one, the writer, and itself";
  EXPECT_GE(near().info().value().totals[Counter::get_hit], 2U);
}

TEST_F(LendingTest, WhoeverAsksToReadOnlyIsHeldToIt) {
  near();
  start();
  Options reads;
  reads.read_only = true;
  auto reader = open_far(reads).value();
  auto writer = open_far().value();
  expect_no_changes(reader, writer);
  // Nor if its program is another one: by the words that it is let at.
  fabric::Access access;
  access.read_only = true;
  const auto fabric = fabric::attach(url(), access).value();
  fabric::Endpoint endpoint(fabric, fabric->connect());
  const auto wrote = endpoint.run(write_word(&endpoint, {memory::control_region, memory::latest_offset}));
  EXPECT_EQ(wrote.error().code, Errc::corrupt);
  EXPECT_EQ(fabric->extend(memory::first_data_region, 1 << 30).error().code, Errc::permission);
  EXPECT_GT(host_->counts().bad_addresses, 0U);
  EXPECT_TRUE(writer.put("a", "3").has_value());
  EXPECT_EQ(reader.get("a").value(), "3");
}

// It goes on after its session was broken off, and reads what others have put meanwhile.
TEST_F(LendingTest, AReaderThatWasSilentReadsOn) {
  host_options_.silence_max_ns = 300 * base::millisecond_ns;
  near();
  start();
  Options reads;
  reads.read_only = true;
  auto reader = open_far(reads).value();
  ASSERT_TRUE(near().put("a", "1").has_value());
  EXPECT_EQ(reader.get("a").value(), "1");
  ASSERT_TRUE(comes_true([&] { return host_->counts().fenced != 0; }));
  // It has left no trace: nobody who writes comes to settle it, and its number is free.
  EXPECT_EQ(near().info().value().clients, 1U);
  EXPECT_EQ(near().collect().value().sessions_reaped, 0U);
  ASSERT_TRUE(near().put("a", "2").has_value());
  EXPECT_EQ(reader.get("a").value(), "2");
}

TEST_F(LendingTest, OnItsOwnHostAReaderIsOneByItsWord) {
  auto options = here();
  options.read_only = true;
  EXPECT_EQ(Store::open("shm://store", options).error().code, Errc::not_found) << "it creates none";
  near();
  auto reader = Store::open("shm://store", options).value();
  expect_no_changes(reader, near());
  ASSERT_TRUE(near().put("a", "2").has_value());
  EXPECT_EQ(reader.get("a").value(), "2");
  options.mode = Options::Mode::create;
  EXPECT_EQ(Store::open("shm://another", options).error().code, Errc::invalid_argument);
}

TEST_F(LendingTest, TheKeysAreToDiffer) {
  host_options_.key_file = make_key("key", "0123456789abcdef");
  host_options_.read_key_file = make_key("other-key", "0123456789abcdef\n");
  EXPECT_THAT(fabric::Host::start(host_options_).error().message(), HasSubstr("another one"));
}

TEST_F(LendingTest, AClientWithAKeyDoesNotTrustAHostWithout) {
  near();
  start();
  Options knows;
  knows.key_file = make_key("key", "0123456789abcdef");
  EXPECT_EQ(refused(knows).code, Errc::permission);
}

TEST_F(LendingTest, InsideTls) {
  near();
  const net::fake::Certificates certificates(folder_ + "/tls");
  host_options_.tls = {
      .certificate = certificates.file("host.pem"), .key = certificates.file("host.key"), .authority = {}};
  start();
  Options trusts;
  trusts.tls_authority = certificates.file("authority.pem");
  auto far = open_far(trusts);
  ASSERT_TRUE(far.has_value()) << far.error().message();
  const std::string large(3'000'000, 'x');
  ASSERT_TRUE(far->put("large", large).has_value());
  EXPECT_EQ(far->get("large").value(), large);
  EXPECT_EQ(near().get("large").value(), large);

  Options trusts_another;
  trusts_another.tls_authority = certificates.file("stranger.pem");
  EXPECT_EQ(refused(trusts_another).code, Errc::permission);
  EXPECT_THAT(refused(trusts_another).message(), HasSubstr("not trusted"));
  EXPECT_THAT(refused().message(), HasSubstr("does it want TLS"));
}

TEST_F(LendingTest, AClientShowsACertificateWhereOneIsWanted) {
  near();
  const net::fake::Certificates certificates(folder_ + "/tls");
  host_options_.tls = {.certificate = certificates.file("host.pem"),
                       .key = certificates.file("host.key"),
                       .authority = certificates.file("authority.pem")};
  start();
  Options has_none;
  has_none.tls_authority = certificates.file("authority.pem");
  EXPECT_NE(refused(has_none).detail, "it was opened");
  Options has_one = has_none;
  has_one.tls_certificate = certificates.file("client.pem");
  has_one.tls_key = certificates.file("client.key");
  EXPECT_TRUE(open_far(has_one).has_value());
}

TEST_F(LendingTest, ACertificateThatHasExpiredIsNotTrusted) {
  near();
  const net::fake::Certificates certificates(folder_ + "/tls");
  host_options_.tls = {.certificate = certificates.file("expired.pem"),
                       .key = certificates.file("expired.key"),
                       .authority = {}};
  start();
  Options trusts;
  trusts.tls_authority = certificates.file("authority.pem");
  EXPECT_EQ(refused(trusts).code, Errc::permission);
  EXPECT_THAT(refused(trusts).message(), HasSubstr("expired"));
}

TEST_F(LendingTest, ATlsClientOfAHostWithoutSaysSo) {
  near();
  const net::fake::Certificates certificates(folder_ + "/tls");
  start();
  Options trusts;
  trusts.tls_authority = certificates.file("authority.pem");
  EXPECT_THAT(refused(trusts).message(), HasSubstr("does the host have a certificate?"));
}

// ---- who speaks something else

TEST_F(LendingTest, GarbageIsRefusedAndHarmsNobody) {
  near();
  start();
  auto far = open_far().value();
  base::Random random(base::system_seed());
  for (int i = 0; i < 50; ++i) {
    auto socket = net::connect(port_.at(), "", soon()).value();
    std::string bytes(random.below(400) + 1, '\0');
    for (char& c : bytes) c = static_cast<char>(random.next());
    if (i % 3 == 0) bytes.insert(0, "\x20\0\0\0", 4);  // a length, and no JSON
    std::ignore = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 2 == 0) continue;
    ::shutdown(socket.get(), SHUT_WR);
    EXPECT_TRUE(net::wait_for(socket.get(), POLLIN, soon())) << "it is closed";
  }
  ASSERT_TRUE(far.put("a", "1").has_value());
  EXPECT_EQ(far.get("a").value(), "1");
}

TEST_F(LendingTest, MessagesThatMakeNoSenseAreErrors) {
  near();
  start();
  const struct {
    net::Message said;
    Errc code;
  } greetings[] = {
      {{{"protocol", 99}, {"nonce", std::string(32, 'a')}}, Errc::incompatible},
      {{{"protocol", 1}, {"nonce", "short"}}, Errc::incompatible},
      {{{"protocol", "1"}}, Errc::incompatible},
      {net::Message::object(), Errc::incompatible},
  };
  for (const auto& each : greetings) {
    auto peer = raw();
    const auto answer = peer.ask(each.said, soon());
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(net::error_of(*answer, "test")->code, each.code);
  }
  const net::Message hello{{"protocol", fabric::remote::protocol_version}, {"nonce", std::string(32, 'a')}};
  const struct {
    net::Message said;
    Errc code;
  } afterwards[] = {
      {net::Message::object(), Errc::permission},
      {{{"open", 5}}, Errc::permission},
      {{{"open", "store"}, {"proof", "0000"}}, Errc::permission},
      // As one says whose link the host has ended.
      {{{"join", "1"}, {"proof", std::string(64, '0')}}, Errc::unavailable},
      {{{"join", "99999"}}, Errc::unavailable},
      {{{"do", "extend"}, {"region", 0}, {"bytes", 1}}, Errc::permission},
  };
  for (const auto& each : afterwards) {
    auto peer = raw();
    ASSERT_TRUE(peer.ask(hello, soon()).has_value());
    const auto answer = peer.ask(each.said, soon());
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(net::error_of(*answer, "test")->code, each.code) << each.said.dump();
  }
  EXPECT_EQ(host_->counts().sessions, 0U);
}

TEST_F(LendingTest, WhatALinkAsksForIsLookedAt) {
  near();
  start();
  auto peer = raw();
  const std::string mine(32, 'a');
  const auto hello =
      peer.ask({{"protocol", fabric::remote::protocol_version}, {"nonce", mine}}, soon()).value();
  const std::string theirs = net::text_of(hello, "nonce");
  const auto opened =
      peer.ask({{"open", "store"},
                {"proof", net::proof(net::no_key(), {"open", theirs, mine, "store", "change"})}},
               soon())
          .value();
  ASSERT_EQ(net::error_of(opened, "test"), std::nullopt);
  const std::array<net::Message, 9> wrong{{
      net::Message::object(),
      {{"do", "dance"}},
      {{"do", "length"}, {"region", 256}},
      {{"do", "length"}, {"region", -1}},
      {{"do", "extend"}, {"region", 5}},
      {{"do", "extend"}, {"region", 5}, {"bytes", ~std::uint64_t{0}}},
      {{"do", "claim"}, {"client", 5}},
      {{"do", "claim"}, {"client", 5}, {"port", 12'345}},
      {{"do", "release"}, {"client", 1}, {"port", 1}},
  }};
  for (const auto& each : wrong) {
    const auto answer = peer.ask(each, soon());
    ASSERT_TRUE(answer.has_value()) << each.dump();
    EXPECT_NE(net::error_of(*answer, "test"), std::nullopt) << each.dump();
  }
  EXPECT_TRUE(
      net::number_of(peer.ask({{"do", "length"}, {"region", 0}}, soon()).value(), "bytes").has_value());
}

// ---- who goes

TEST_F(LendingTest, ASessionThatIsSilentHoldsNobodyUpAndGoesOn) {
  near();
  host_options_.silence_max_ns = 400 * base::millisecond_ns;
  start();
  auto far = open_far().value();
  ASSERT_TRUE(far.put("a", "1").has_value());
  EXPECT_TRUE(comes_true([&] { return host_->counts().fenced >= 1; }));
  ASSERT_TRUE(far.put("a", "2").has_value()) << "as if nothing had been";
  EXPECT_EQ(near().get("a").value(), "2");
  EXPECT_EQ(far.get("a").value(), "2");
}

// Receive: a session that a thread left, and that the host has broken off since. Expect: the next thread does
// not notice.
TEST_F(LendingTest, ASessionThatAThreadLeftIsLookedAtBeforeItIsUsedAgain) {
  near();
  host_options_.silence_max_ns = 400 * base::millisecond_ns;
  start();
  auto far = open_far().value();
  std::thread([&far] { ASSERT_TRUE(far.put("a", "1").has_value()); }).join();
  EXPECT_TRUE(comes_true([&] { return host_->counts().sessions == 0; }));
  std::thread([&far] { ASSERT_TRUE(far.put("a", "2").has_value()); }).join();
  EXPECT_EQ(near().get("a").value(), "2");
}

TEST_F(LendingTest, AHostThatWasAwayServesAgain) {
  near();
  start();
  auto far = open_far().value();
  ASSERT_TRUE(far.put("a", "1").has_value());
  stop();
  const auto error = error_of(far.put("a", "2"));
  EXPECT_TRUE(error.code == Errc::unavailable) << error.message();
  EXPECT_EQ(error_of(far.get("a")).code, Errc::unavailable);
  EXPECT_EQ(near().get("a").value(), "1");
  start();
  EXPECT_EQ(far.get("a").value(), "1");
  ASSERT_TRUE(far.put("a", "3").has_value());
  EXPECT_EQ(near().get("a").value(), "3");
  ASSERT_TRUE(near().collect().has_value()) << "what the broken off session had written and not linked";
  EXPECT_EQ(near().check()->items_unaccounted, 0U);
}

TEST_F(LendingTest, AnotherStoreOfTheSameNameIsNotTakenForIt) {
  near();
  start();
  auto far = open_far().value();
  ASSERT_TRUE(far.put("a", "1").has_value());
  stop();
  near_.reset();
  ASSERT_TRUE(Store::destroy("shm://store", here()).has_value());
  near();
  start();
  EXPECT_FALSE(far.put("a", "2").has_value());
  EXPECT_THAT(error_of(far.get("a")).message(), HasSubstr("open it again"));
  EXPECT_EQ(near().count().value(), 0U);
  EXPECT_TRUE(open_far()->put("a", "2").has_value());
}

TEST_F(LendingTest, ClientsThatCloseLeaveNothingBehind) {
  near();
  start();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(open_far()->put(fmt::format("{}", i), "x").has_value());
  EXPECT_TRUE(comes_true([&] { return host_->counts().clients == 0 && keeper_->count() == 0; }));
  EXPECT_EQ(host_->counts().sessions, 0U);
  EXPECT_EQ(near().info()->clients, 1U);
  EXPECT_EQ(near().check()->items_unaccounted, 0U);
}

}  // namespace
}  // namespace loch::server
