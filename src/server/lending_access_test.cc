// Who may use a store that is lent, and what comes of speaking something else to its host.
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/testing/comes_true.h"
#include "fabric/endpoint.h"
#include "fabric/remote/protocol.h"
#include "memory/layout.h"
#include "net/cookie.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/testing/certificates.h"
#include "server/testing/lending.h"

namespace loch::server {
namespace {

using namespace std::chrono_literals;
using base::fake::comes_true;
using testing::AllOf;
using testing::HasSubstr;

base::Nanos soon() { return base::Clock().now() + 5 * base::second_ns; }

class LendingAccessTest : public fake::Lending {
 protected:
  // A connection that speaks what a test wants.
  net::Messages raw() const {
    auto socket = net::connect(port_.at(), "", soon());
    EXPECT_TRUE(socket.has_value());
    return net::Messages(std::make_unique<net::Stream>(std::move(*socket)));
  }
};
// ---- who may

TEST_F(LendingAccessTest, OnlyThoseWhoKnowTheKeyGetIn) {
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
  knows.key_file = "/etc";
  EXPECT_THAT(refused(knows).message(), HasSubstr("/etc is a folder"));
}

// Receive: a key is replaced step by step. Expect: at no step is anybody refused who knows the key of now.
TEST_F(LendingAccessTest, AKeyIsReplacedStepByStep) {
  near();
  const std::string before = "0123456789abcdef";
  const std::string after = "abcdefabcdefabcdef";
  Options former;
  former.key_file = make_key("former-key", before);
  Options next;
  next.key_file = make_key("next-key", after);
  host_options_.key_file = make_key("key", before);
  host_options_.other_key_file = folder_ + "/other-key";
  start();
  EXPECT_TRUE(open_far(former).has_value());
  EXPECT_EQ(refused(next).code, Errc::permission);
  make_key("other-key", after);
  ASSERT_TRUE(host_->reload().has_value());
  EXPECT_TRUE(open_far(former).has_value());
  EXPECT_TRUE(open_far(next).value().put("key", "value").has_value());
  make_key("key", after);
  make_key("other-key", before);
  ASSERT_TRUE(host_->reload().has_value());
  EXPECT_TRUE(open_far(former).value().put("key", "value").has_value());
  EXPECT_TRUE(open_far(next).has_value());
  ::unlink(host_options_.other_key_file.c_str());
  ASSERT_TRUE(host_->reload().has_value());
  EXPECT_EQ(refused(former).code, Errc::permission);
  EXPECT_TRUE(open_far(next).has_value());
  // What is for reading alone is no other key that counts as much.
  host_options_.read_key_file = make_key("other-key", before);
  stop();
  EXPECT_EQ(fabric::Host::start(host_options_).error().code, Errc::invalid_argument);
}

// Receive: the key of a host and of its client is replaced while both run, and their connection breaks; later
// the client may not read its file any more. Expect: it goes on with the new key, and then with what it knew
// last.
TEST_F(LendingAccessTest, AClientGoesOnWhenTheKeyIsReplaced) {
  near();
  Options knows;
  knows.key_file = make_key("key", "0123456789abcdef");
  host_options_.key_file = knows.key_file;
  start();
  auto store = open_far(knows).value();
  ASSERT_TRUE(store.put("key", "1").has_value());
  for (const bool is_readable : {true, false}) {
    stop();
    if (is_readable) {
      make_key("key", "abcdefabcdefabcdef");
    } else {
      host_options_.key_file = make_key("other-key", "abcdefabcdefabcdef");
      ::unlink(knows.key_file.c_str());
    }
    start();
    ASSERT_TRUE(comes_true([&] { return store.put("key", "2").has_value(); })) << is_readable;
  }
}

// Receive: a host that was given no key. Expect: it lets in who can read its cookie, and nobody who shows no
// key, or another one.
TEST_F(LendingAccessTest, WithoutAKeyThoseWhoReadTheCookieGetIn) {
  near();
  host_options_.cookie_directory = folder_;
  start();
  EXPECT_TRUE(open_far(here()).value().put("key", "value").has_value());
  Options elsewhere;
  elsewhere.directory = folder_ + "/loch.store";
  const Error told = refused(elsewhere);
  EXPECT_EQ(told.code, Errc::permission);
  EXPECT_THAT(told.message(), AllOf(HasSubstr(net::cookie_path(elsewhere.directory, ::geteuid())),
                                    HasSubstr("is that the directory of its stores?"),
                                    HasSubstr("--key-file"), HasSubstr("open_to_all")));
  Options guesses = here();
  guesses.key_file = make_key("key", "0123456789abcdef");
  EXPECT_EQ(refused(guesses).code, Errc::permission);
  EXPECT_THAT(refused(guesses).message(), HasSubstr("this lochd has no key_file"));

  auto messages = raw();
  const std::string mine = net::random_hex(fabric::remote::nonce_bytes);
  const auto greeted =
      messages.ask({{"protocol", fabric::remote::protocol_version}, {"nonce", mine}}, soon()).value();
  EXPECT_EQ(net::number_of(greeted, "cookie"), ::geteuid());
  const std::string proof =
      net::proof(net::no_key(), {"open", net::text_of(greeted, "nonce"), mine, "store", "change"});
  const auto answer =
      messages.ask({{"open", "store"}, {"read_only", false}, {"proof", proof}}, soon()).value();
  EXPECT_EQ(net::error_of(answer, "open").value().code, Errc::permission);
}

// Receive: the cookie is removed while the host runs. Expect: those who are connected stay, others are told,
// and get in again by the one that a reload makes.
TEST_F(LendingAccessTest, ACookieThatIsGoneIsMadeAgainByAReload) {
  near();
  host_options_.cookie_directory = folder_;
  start();
  auto store = open_far(here()).value();
  const std::string cookie = net::cookie_path(folder_, ::geteuid());
  ASSERT_EQ(::unlink(cookie.c_str()), 0);
  EXPECT_TRUE(store.put("key", "value").has_value());
  EXPECT_THAT(refused(here()).message(), HasSubstr(cookie + ": No such file"));
  ASSERT_TRUE(host_->reload().has_value());
  EXPECT_TRUE(open_far(here()).has_value());
  ::chmod(cookie.c_str(), 0644);
  EXPECT_THAT(refused(here()).message(), HasSubstr("was for others, too"));
  EXPECT_EQ(host_->reload().error().code, Errc::permission);
  stop();
  EXPECT_THAT(fabric::Host::start(host_options_).error().message(), HasSubstr(cookie + " was for others"));
}

// Receive: a host that is open to all, in whose directory there is a cookie. Expect: nobody is asked for it.
TEST_F(LendingAccessTest, WhoIsNotAskedForACookieShowsNone) {
  near();
  ASSERT_TRUE(net::own_cookie(folder_).has_value());
  start();
  EXPECT_TRUE(open_far(here()).has_value());
  EXPECT_TRUE(open_far().has_value());
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
  std::vector<Removal> removals{{.key = "a"}};
  reader.multi_remove(removals);
  for (const Result<void>& refused :
       {to_void(reader.put("a", "2")), to_void(reader.insert("b", "2")), reader.remove("a"),
        reader.remove("a", version), removals[0].result, batch[0].result, batch[1].result,
        to_void(reader.replace("a", "2", version)), to_void(reader.collect())}) {
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::permission);
    EXPECT_THAT(refused.error().message(), HasSubstr("only read"));
  }
  EXPECT_EQ(writer.get("a").value(), "1");
  EXPECT_EQ(writer.get("b").error().code, Errc::not_found);
}

TEST_F(LendingAccessTest, WhoeverKnowsTheKeyForReadingReadsAndChangesNothing) {
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
  EXPECT_EQ(reader.view("large")->value(), large);
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

TEST_F(LendingAccessTest, WhoeverAsksToReadOnlyIsHeldToIt) {
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
TEST_F(LendingAccessTest, AReaderThatWasSilentReadsOn) {
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

TEST_F(LendingAccessTest, OnItsOwnHostAReaderIsOneByItsWord) {
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

TEST_F(LendingAccessTest, TheKeysAreToDiffer) {
  host_options_.key_file = make_key("key", "0123456789abcdef");
  host_options_.read_key_file = make_key("other-key", "0123456789abcdef\n");
  EXPECT_THAT(fabric::Host::start(host_options_).error().message(), HasSubstr("another one"));
}

TEST_F(LendingAccessTest, AClientWithAKeyDoesNotTrustAHostWithout) {
  near();
  start();
  Options knows;
  knows.key_file = make_key("key", "0123456789abcdef");
  EXPECT_EQ(refused(knows).code, Errc::permission);
}

TEST_F(LendingAccessTest, InsideTls) {
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

// A host that wants a certificate of its clients.
class LendingToCertified : public LendingAccessTest {
 protected:
  LendingToCertified() {
    near();
    host_options_.tls = {.certificate = certificates_.file("host.pem"),
                         .key = certificates_.file("host.key"),
                         .authority = certificates_.file("authority.pem")};
    start();
  }

  const net::fake::Certificates certificates_{folder_ + "/tls"};
};

TEST_F(LendingToCertified, AClientShowsACertificate) {
  Options has_none;
  has_none.tls_authority = certificates_.file("authority.pem");
  Options has_anothers = has_none;
  has_anothers.tls_certificate = certificates_.file("stranger.pem");
  has_anothers.tls_key = certificates_.file("stranger.key");
  const auto expect_refused = [this](const Options& options, const char* why) {
    const Error error = refused(options);
    EXPECT_EQ(error.code, Errc::permission);
    EXPECT_THAT(error.message(), HasSubstr(why));
    EXPECT_THAT(error.message(), HasSubstr("--tls-certificate"));
  };
  Options had_one = has_none;
  had_one.tls_certificate = certificates_.file("expired.pem");
  had_one.tls_key = certificates_.file("expired.key");
  expect_refused(had_one, "has expired");
  // The client may be told before the host has noted it.
  EXPECT_TRUE(comes_true([this] { return log().contains("certificate has expired"); })) << log();
  // The refusal comes while the client goes on, so it is not said once alone.
  for (int i = 0; i < 20; ++i) {
    expect_refused(has_none, "was shown none");
    expect_refused(has_anothers, "does not trust the certificate that it was shown");
  }
  Options has_one = has_none;
  has_one.tls_certificate = certificates_.file("client.pem");
  has_one.tls_key = certificates_.file("client.key");
  EXPECT_TRUE(open_far(has_one).has_value());
}

// Receive: a client whose certificate is replaced, here by one that has expired, while it has the store open.
// Expect: each further session of it shows what there is now.
TEST_F(LendingToCertified, ASessionShowsTheCertificateThatThereIsNow) {
  const auto hand_out = [this](const std::string& name) {
    for (const char* kind : {".pem", ".key"}) {
      std::filesystem::copy_file(certificates_.file(name + kind),
                                 certificates_.file(std::string("mine") + kind),
                                 std::filesystem::copy_options::overwrite_existing);
    }
  };
  hand_out("client");
  Options has_one;
  has_one.tls_authority = certificates_.file("authority.pem");
  has_one.tls_certificate = certificates_.file("mine.pem");
  has_one.tls_key = certificates_.file("mine.key");
  Store store = open_far(has_one).value();
  EXPECT_TRUE(store.exists("key").has_value());
  const auto exists_in_another_session = [&store] {
    Result<bool> answer = false;
    std::jthread([&] { answer = store.exists("key"); }).join();
    return answer;
  };
  hand_out("expired");
  const auto refused = exists_in_another_session();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::permission);
  EXPECT_THAT(refused.error().message(), HasSubstr("has expired"));
  hand_out("client");
  EXPECT_TRUE(exists_in_another_session().has_value());
}

TEST_F(LendingAccessTest, ACertificateThatHasExpiredIsNotTrusted) {
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

TEST_F(LendingAccessTest, ATlsClientOfAHostWithoutSaysSo) {
  near();
  const net::fake::Certificates certificates(folder_ + "/tls");
  start();
  Options trusts;
  trusts.tls_authority = certificates.file("authority.pem");
  EXPECT_THAT(refused(trusts).message(), HasSubstr("does the host have a certificate?"));
}

// ---- who speaks something else

TEST_F(LendingAccessTest, GarbageIsRefusedAndHarmsNobody) {
  near();
  start();
  auto far = open_far().value();
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
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

TEST_F(LendingAccessTest, MessagesThatMakeNoSenseAreErrors) {
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
      {{{"join", "1"}, {"proof", std::string(64, '0')}}, Errc::not_found},
      {{{"join", "99999"}}, Errc::not_found},
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

// Receive: a client of another version. Expect: it is told both versions, and the connection ends.
TEST_F(LendingAccessTest, AClientOfAnotherVersionIsToldBoth) {
  near();
  start();
  constexpr std::uint64_t mine = fabric::remote::protocol_version;
  for (const std::uint64_t theirs : {mine - 1, mine + 1, ~std::uint64_t{0}}) {
    auto peer = raw();
    const auto answer = peer.ask({{"protocol", theirs}, {"nonce", std::string(32, 'a')}}, soon());
    ASSERT_TRUE(answer.has_value());
    const auto error = net::error_of(*answer, "test");
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, Errc::incompatible);
    const std::string both = fmt::format("the client speaks protocol {}, this host {}", theirs, mine);
    EXPECT_EQ(error->detail, both);
    EXPECT_THAT(log(), HasSubstr(both));
    const auto more = peer.wait_next(soon());
    ASSERT_FALSE(more.has_value()) << more->dump();
    EXPECT_EQ(more.error().code, Errc::unavailable);
  }
  EXPECT_EQ(host_->counts().refused, 3U);
}

TEST_F(LendingAccessTest, WhatALinkAsksForIsLookedAt) {
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

}  // namespace
}  // namespace loch::server
