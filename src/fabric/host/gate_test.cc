// What a gate believes. A client is played by hand: it proves what it knows as Link does.
#include "fabric/host/gate.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "fabric/remote/protocol.h"
#include "lab/temp_folder.h"
#include "net/cookie.h"

namespace loch::fabric::host {
namespace {

using net::Message;
using net::Secret;
using testing::HasSubstr;

constexpr const char* address = "192.0.2.7:7457";

class GateTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<Gate> gate() const { return Gate::open(files_, {}).value(); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string make_key(const std::string& name, std::string_view text) const {
    std::ofstream(path(name)) << "a key of sixteen bytes: " << text;
    ::chmod(path(name).c_str(), 0600);
    return path(name);
  }
  static Gate::Greeting greeted(const Gate& gate) {
    Gate::Greeting greeting{.came_to = address};
    const Message hello{{"protocol", remote::protocol_version},
                        {"nonce", std::string(2 * remote::nonce_bytes, 'c')}};
    const auto told = gate.greet(hello, greeting);
    EXPECT_EQ(net::text_of(told.value(), "nonce"), greeting.mine);
    return greeting;
  }
  static Message opening(const Secret& key, const Gate::Greeting& greeting, bool read_only = false) {
    return {{"open", "store"},
            {"read_only", read_only},
            {"proof", net::proof(key, {"open", greeting.mine, greeting.theirs, "store",
                                       remote::access_text(read_only)})}};
  }
  static Message fencing(const Secret& key, const Gate::Greeting& greeting) {
    return {{"fence", "session"},
            {"store", "store"},
            {"node", "a"},
            {"proof", net::proof(key, {"fence", greeting.mine, greeting.theirs, "session", "store", "a"})}};
  }
  static Secret key_in(const std::string& path) { return net::read_key_file(path).value(); }

  const lab::TempFolder temp_ = lab::TempFolder::make(testing::TempDir()).value();
  const std::string folder_ = temp_.path();
  net::KeyFiles files_;
};

// Receive: a client that knows a key of the host. Expect: it gets in, is shown that the host knows that key,
// too, and shares the link's secret with it.
TEST_F(GateTest, EveryKeyOfTheHostOpensAStore) {
  files_ = {
      .key = make_key("key", "key"), .other = make_key("other", "other"), .read = make_key("read", "read")};
  const auto gate = this->gate();
  for (const std::string& file : {files_.key, files_.other, files_.read}) {
    for (const bool asks_to_read : {false, true}) {
      const Secret key = key_in(file);
      const Gate::Greeting greeting = greeted(*gate);
      const auto client = gate->let_open(opening(key, greeting, asks_to_read), greeting);
      ASSERT_TRUE(client.has_value()) << file;
      const bool is_for_reading = file == files_.read;
      EXPECT_EQ(client->by_read_key, is_for_reading);
      EXPECT_EQ(client->reads_only, is_for_reading || asks_to_read);
      EXPECT_EQ(client->proof, net::proof(key, {"host", greeting.mine, greeting.theirs, "store",
                                                remote::access_text(client->reads_only)}));
      EXPECT_EQ(client->link_secret, net::digest(key, {"link", greeting.mine, greeting.theirs}));
    }
  }
}

// Receive: a proof by another key, of another greeting, for another store, or for more than is asked for.
// Expect: permission.
TEST_F(GateTest, AProofIsGoodForWhatItSaysAlone) {
  files_ = {.key = make_key("key", "key")};
  const auto gate = this->gate();
  const Secret key = key_in(files_.key);
  const Gate::Greeting greeting = greeted(*gate);
  const Message good = opening(key, greeting);
  Message of_another_store = good;
  of_another_store["open"] = "another";
  Message of_other_access = good;
  of_other_access["read_only"] = true;
  for (const Message& wrong : {opening(net::no_key(), greeting), opening(key, greeted(*gate)),
                               of_another_store, of_other_access, Message::object()}) {
    const auto client = gate->let_open(wrong, greeting);
    ASSERT_FALSE(client.has_value()) << wrong.dump();
    EXPECT_EQ(client.error().code, Errc::permission);
    EXPECT_THAT(client.error().detail, HasSubstr("does not know this host's key"));
  }
  EXPECT_TRUE(gate->let_open(good, greeting).has_value());
}

// Receive: a client without a key, and one with another. Expect: each is told so, and by what a key is named.
TEST_F(GateTest, WhoHasNoKeyIsToldSo) {
  files_ = {.key = make_key("key", "key")};
  const auto gate = this->gate();
  const Gate::Greeting greeting = greeted(*gate);
  for (const auto& [key, told] : {std::pair(net::no_key(), "it has none; "),
                                  std::pair(key_in(make_key("other", "other")), "it has another; ")}) {
    const auto client = gate->let_open(opening(key, greeting), greeting);
    ASSERT_FALSE(client.has_value());
    EXPECT_THAT(client.error().detail, testing::AllOf(HasSubstr(told), HasSubstr("--key-file")));
  }
}

TEST_F(GateTest, WithoutAKeyWhoShowsOneIsToldSo) {
  const auto gate = this->gate();
  const Gate::Greeting greeting = greeted(*gate);
  EXPECT_TRUE(gate->let_open(opening(net::no_key(), greeting), greeting).has_value());
  const auto client = gate->let_open(opening(key_in(make_key("key", "key")), greeting), greeting);
  ASSERT_FALSE(client.has_value());
  EXPECT_THAT(client.error().detail, HasSubstr("this host has none"));
}

// Receive: a client that knows the cookie, and came to the host at one address or thinks that it came to
// another. Expect: it is told whose cookie that is, and gets in by the first alone.
TEST_F(GateTest, ACookieIsGoodAtTheAddressThatTheClientCameTo) {
  files_ = {.cookie_directory = folder_};
  const auto gate = this->gate();
  const Secret cookie = net::read_cookie(folder_, ::geteuid()).value();
  Gate::Greeting greeting{.came_to = address};
  const Message hello{{"protocol", remote::protocol_version},
                      {"nonce", std::string(2 * remote::nonce_bytes, 'c')}};
  EXPECT_EQ(net::number_of(gate->greet(hello, greeting).value(), "cookie"), ::geteuid());
  EXPECT_TRUE(gate->let_open(opening(net::cookie_key(cookie, address), greeting), greeting).has_value());
  for (const Secret& key : {cookie, net::cookie_key(cookie, "192.0.2.8:7457"), net::no_key()}) {
    const auto client = gate->let_open(opening(key, greeting), greeting);
    ASSERT_FALSE(client.has_value());
    EXPECT_EQ(client.error().code, Errc::permission);
    EXPECT_THAT(client.error().detail, HasSubstr(net::cookie_path(folder_, ::geteuid())));
  }
}

TEST_F(GateTest, AnotherProtocolOrNonceIsIncompatible) {
  const auto gate = this->gate();
  const std::string nonce(2 * remote::nonce_bytes, 'c');
  const Message wrong[] = {{{"protocol", remote::protocol_version + 1}, {"nonce", nonce}},
                           {{"protocol", remote::protocol_version}, {"nonce", nonce + "c"}},
                           {{"protocol", remote::protocol_version}},
                           Message::object()};
  for (const Message& hello : wrong) {
    Gate::Greeting greeting;
    const auto told = gate->greet(hello, greeting);
    ASSERT_FALSE(told.has_value()) << hello.dump();
    EXPECT_EQ(told.error().code, Errc::incompatible);
  }
}

// Receive: other hosts that would fence. Expect: those may that know a key by which stores are changed, and
// they are shown that this host knows it, too.
TEST_F(GateTest, WhoMayOnlyReadFencesNobody) {
  files_ = {
      .key = make_key("key", "key"), .other = make_key("other", "other"), .read = make_key("read", "read")};
  const auto gate = this->gate();
  const Gate::Greeting greeting = greeted(*gate);
  for (const std::string& file : {files_.key, files_.other}) {
    const Secret key = key_in(file);
    EXPECT_EQ(gate->let_fence(fencing(key, greeting), greeting),
              net::proof(key, {"fenced", greeting.mine, greeting.theirs, "session", "store", "a"}));
  }
  Message of_another_host = fencing(key_in(files_.key), greeting);
  of_another_host["node"] = "b";
  EXPECT_EQ(gate->let_fence(of_another_host, greeting).error().code, Errc::permission);
  for (const Secret& key : {key_in(files_.read), net::no_key()}) {
    const auto may = gate->let_fence(fencing(key, greeting), greeting);
    ASSERT_FALSE(may.has_value());
    EXPECT_EQ(may.error().code, Errc::permission);
  }
}

TEST_F(GateTest, ALinksSecretJoinsItsSession) {
  const Gate::Greeting greeting = greeted(*gate());
  const Secret secret = net::digest(net::no_key(), {"link", "a", "b"});
  const Message said{{"join", "1"},
                     {"session", "session"},
                     {"proof", net::proof(secret, {"join", greeting.mine, greeting.theirs, "session"})}};
  Message of_another_session = said;
  of_another_session["session"] = "another";
  EXPECT_TRUE(Gate::let_join(said, greeting, secret).has_value());
  EXPECT_EQ(Gate::let_join(of_another_session, greeting, secret).error().code, Errc::permission);
  EXPECT_EQ(Gate::let_join(said, greeting, net::no_key()).error().code, Errc::permission);
}

// Receive: a key file that changes, and one that is gone. Expect: the new key counts from then on, and still
// does when there is none to be read.
TEST_F(GateTest, KeysAreReplacedWhileItRuns) {
  files_ = {.key = make_key("key", "before")};
  const auto gate = this->gate();
  const Secret before = key_in(files_.key);
  make_key("key", "after");
  const Secret after = key_in(files_.key);
  const Gate::Greeting greeting = greeted(*gate);
  EXPECT_TRUE(gate->let_open(opening(before, greeting), greeting).has_value());
  ASSERT_TRUE(gate->reload().has_value());
  EXPECT_FALSE(gate->let_open(opening(before, greeting), greeting).has_value());
  EXPECT_TRUE(gate->let_open(opening(after, greeting), greeting).has_value());
  std::filesystem::remove(files_.key);
  EXPECT_FALSE(gate->reload().has_value());
  EXPECT_TRUE(gate->let_open(opening(after, greeting), greeting).has_value());
}

}  // namespace
}  // namespace loch::fabric::host
