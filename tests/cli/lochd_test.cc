// The real lochd as a process, and the real loch as its client.
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <memory>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "net/testing/certificates.h"
#include "net/testing/reserved_port.h"
#include "tests/cli/run.h"

namespace loch::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Lochd : public CliTest {
 protected:
  // Starts lochd at `address`, and waits until it lends.
  void start(const std::string& address, Arguments more = {}, bool unprivileged = false) {
    Arguments arguments{"--listen", address, "--directory", folder()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    lochd_ = std::make_unique<Running>(arguments, true, LOCHD_PROGRAM, unprivileged);
    const std::string before = "lends the stores in " + folder() + " at tcp://127.0.0.1:";
    ASSERT_TRUE(lochd_->await(before)) << lochd_->output();
    ASSERT_TRUE(lochd_->await("\n"));
    const std::size_t at = lochd_->output().find(before) + before.size();
    port_ = lochd_->output().substr(at, lochd_->output().find_first_not_of("0123456789", at) - at);
  }
  // The same of one that may have so few descriptors.
  void start_with_descriptors(int count) {
    lochd_ = std::make_unique<Running>(Arguments{"-c", fmt::format("ulimit -n {}; exec " LOCHD_PROGRAM
                                                                   " --listen 127.0.0.1:0 --directory {}",
                                                                   count, folder())},
                                       true, "/bin/bash");
    const std::string before = " at tcp://127.0.0.1:";
    ASSERT_TRUE(lochd_->await(before) && lochd_->await("root alone"));
    port_ = std::to_string(std::stoi(lochd_->output().substr(lochd_->output().find(before) + before.size())));
  }
  // Connections that say nothing, until the process ends.
  [[nodiscard]] Running crowd(int count) const {
    return Running({"-c", fmt::format("for i in {{1..{}}}; do exec {{fd}}<>/dev/tcp/127.0.0.1/{}; done; "
                                      "echo all are there; read -r",
                                      count, port_)},
                   false, "/bin/bash");
  }
  [[nodiscard]] std::string url(const std::string& store) const {
    return "tcp://127.0.0.1:" + port_ + "/" + store;
  }
  std::string key_file(const std::string& name, const std::string& key) const {
    const std::string path = write_file(name, key);
    ::chmod(path.c_str(), 0600);
    return path;
  }
  static std::string told_by(const net::HostPort& metrics) {
    return run({"-c", "exec 3<>/dev/tcp/127.0.0.1/" + metrics.port +
                          R"( && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && cat <&3)"},
               {.program = "/bin/bash"})
        .out;
  }
  // As /dev/shm is.
  void let_all_have_stores() const { ::chmod(folder().c_str(), 01777); }
  static Outcome lochd(const Arguments& arguments) { return run(arguments, {.program = LOCHD_PROGRAM}); }

  std::unique_ptr<Running> lochd_;
  std::string port_;
};

TEST_F(Lochd, LendsTheStoresOfItsDirectory) {
  ok({"put", "sessions", "near", "1"});
  start("127.0.0.1:0");
  EXPECT_EQ(ok({"get", url("sessions"), "near"}), "1");
  ok({"put", url("sessions"), "far", "2"});
  EXPECT_EQ(ok({"get", "sessions", "far"}), "2");
  EXPECT_EQ(ok({"count", url("sessions")}), "2\n");
  EXPECT_EQ(json({"stat", url("sessions")})["location"], url("sessions"));
  ok({"check", url("sessions")});
  const std::string items = write_file("items.tsv", "a\tx\nb\ty\n");
  ok({"load", url("sessions"), items});
  EXPECT_EQ(ok({"get", url("sessions"), "b"}), "y");
  ok({"remove", url("sessions"), "b"});
  EXPECT_EQ(loch({"get", url("sessions"), "b"}).exit_code, 4);

  const Outcome none = loch({"get", url("none"), "a"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("there is no store 'none'"));
  EXPECT_THAT(none.err, Not(HasSubstr("loch create")));
  EXPECT_EQ(loch({"put", url("none"), "a", "1"}).exit_code, 3);
  const Outcome removed = loch({"--yes", "rm", url("sessions")});
  EXPECT_EQ(removed.exit_code, 2);
  EXPECT_THAT(removed.err, HasSubstr("loch rm sessions"));
  const Outcome made = loch({"create", url("other")});
  EXPECT_NE(made.exit_code, 0);
  EXPECT_THAT(made.err, HasSubstr("loch create other"));

  lochd_->send_signal(SIGTERM);
  EXPECT_EQ(lochd_->wait(), 0);
  EXPECT_THAT(lochd_->output(), HasSubstr("ends"));
  const Outcome gone = loch({"get", url("sessions"), "near"});
  EXPECT_EQ(gone.exit_code, 3);
  EXPECT_THAT(gone.err, HasSubstr("is lochd running there"));
}

TEST_F(Lochd, LendsOverRdmaOnlyIfItIsToldToAndCan) {
  ok({"put", "sessions", "near", "1"});
  start("127.0.0.1:0");
  const Outcome untold = loch({"get", "verbs://127.0.0.1:" + port_ + "/sessions", "near"});
  EXPECT_EQ(untold.exit_code, 3);
  EXPECT_THAT(untold.err, HasSubstr("set verbs = true in its lochd.toml"));

  // Nobody's RDMA device is at the loopback.
  const std::string file = write_file("lochd.toml", "verbs = true\n");
  const Outcome can_not = lochd({"--config", file, "--listen", "127.0.0.1:0", "--directory", folder()});
  EXPECT_EQ(can_not.exit_code, 1);
  EXPECT_THAT(can_not.err, HasSubstr("RDMA device"));

  ok({"create", "--atomics", "device", "far"});
  const Outcome near = loch({"get", "far", "a"});
  EXPECT_EQ(near.exit_code, 3);
  EXPECT_THAT(near.err, HasSubstr("open it as verbs://HOST/far"));
  const Outcome by_tcp = loch({"get", url("far"), "a"});
  EXPECT_EQ(by_tcp.exit_code, 3);
  EXPECT_THAT(by_tcp.err, HasSubstr("open it as verbs://127.0.0.1:" + port_ + "/far"));
  EXPECT_EQ(loch({"create", "--atomics", "somebody", "other"}).exit_code, 2);
}

// Receive: a lochd that lends over RDMA, and has a certificate. Expect: it warns of what that is not for.
TEST_F(Lochd, WarnsThatRdmaIsNotEncrypted) {
  const net::fake::Certificates certificates(file_path("tls"));
  const std::string tls = fmt::format("[tls]\ncertificate = \"{}\"\nkey = \"{}\"\n",
                                      certificates.file("host.pem"), certificates.file("host.key"));
  // Nobody's RDMA device is at the loopback, so it ends.
  const auto said = [&](const std::string& config) {
    const std::string file = write_file("lochd.toml", config);
    const Outcome ended = lochd({"--config", file, "--listen", "127.0.0.1:0", "--directory", folder()});
    EXPECT_EQ(ended.exit_code, 1);
    return ended.err;
  };
  EXPECT_THAT(said("verbs = true\n" + tls), HasSubstr("RDMA is not encrypted"));
  EXPECT_THAT(said("verbs = true\n"), Not(HasSubstr("not encrypted")));
}

// Receive: clients of a lochd with a certificate, which is replaced while it runs. Expect: those get in who
// trust its authority; the new certificate counts from SIGHUP on, and one that can not be read never.
TEST_F(Lochd, IsInsideTlsWithItsCertificateOfNow) {
  const net::fake::Certificates before(file_path("before"));
  const net::fake::Certificates after(file_path("after"));
  const std::string certificate = file_path("host.pem");
  const std::string key = file_path("host.key");
  const auto install = [&](const net::fake::Certificates& from) {
    for (const auto& [name, to] : {std::pair("host.pem", certificate), std::pair("host.key", key)})
      std::filesystem::copy_file(from.file(name), to, std::filesystem::copy_options::overwrite_existing);
    ::chmod(key.c_str(), 0600);
  };
  install(before);
  const std::string file =
      write_file("lochd.toml", fmt::format("[tls]\ncertificate = \"{}\"\nkey = \"{}\"\n", certificate, key));
  ok({"put", "sessions", "near", "1"});
  start("127.0.0.1:0", {"--config", file});
  const auto trusting = [](const net::fake::Certificates& whom, const Arguments& more) {
    Arguments arguments{"--tls-authority", whom.file("authority.pem")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const auto expect_refused = [&](const net::fake::Certificates& whom) {
    const Outcome refused = loch(trusting(whom, {"get", url("sessions"), "far"}));
    EXPECT_EQ(refused.exit_code, 3);
    EXPECT_EQ(refused.out, "");
    EXPECT_THAT(refused.err, HasSubstr("certificate is not trusted"));
  };
  ok(trusting(before, {"put", url("sessions"), "far", "2"}));
  EXPECT_EQ(ok(trusting(before, {"get", url("sessions"), "near"})), "1");
  EXPECT_EQ(ok({"get", "sessions", "far"}), "2");
  expect_refused(after);
  const Outcome plain = loch({"get", url("sessions"), "far"});
  EXPECT_EQ(plain.exit_code, 3);
  EXPECT_THAT(plain.err, HasSubstr("does it want TLS"));

  install(after);
  EXPECT_EQ(ok(trusting(before, {"get", url("sessions"), "far"})), "2") << "before it is told to";
  lochd_->send_signal(SIGHUP);
  ASSERT_TRUE(lochd_->await("read the configuration again")) << lochd_->output();
  EXPECT_EQ(ok(trusting(after, {"get", url("sessions"), "far"})), "2");
  expect_refused(before);

  write_file("host.pem", "no certificate\n");
  lochd_->send_signal(SIGHUP);
  ASSERT_TRUE(lochd_->await("goes on with what was before")) << lochd_->output();
  EXPECT_TRUE(lochd_->await(certificate)) << lochd_->output();
  EXPECT_EQ(ok(trusting(after, {"get", url("sessions"), "far"})), "2");
  lochd_->send_signal(SIGTERM);
  EXPECT_EQ(lochd_->wait(), 0);
}

// Three of them lend one store, whose list names them.
class LochdCluster : public CliTest {
 protected:
  void SetUp() override {
    std::string list;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      list += fmt::format("[[node]]\nname = \"{}\"\naddress = \"{}\"\n", name_of(i), address(i));
      hosts_ += (hosts_.empty() ? "" : ",") + address(i);
    }
    list_ = write_file("cluster.toml", list);
    for (std::size_t i = 0; i < ports_.size(); ++i) start(i);
  }
  void start(std::size_t i) {
    const char name = name_of(i);
    const std::string stores = fmt::format("{}/{}", folder(), name);
    ::mkdir(stores.c_str(), 0700);
    const std::string config = write_file(
        fmt::format("{}.toml", name), fmt::format("listen = [\"{}\"]\ndirectory = \"{}\"\nkey_file = \"{}\"\n"
                                                  "[cluster]\ncoordinator = \"file:{}\"\nnode = \"{}\"\n"
                                                  "[[store]]\nname = \"s\"\ncluster = true\n",
                                                  address(i), stores, key_file(), list_, name));
    lochds_[i] = std::make_unique<Running>(Arguments{"--config", config}, true, LOCHD_PROGRAM);
    ASSERT_TRUE(lochds_[i]->await("lends the stores in")) << lochds_[i]->output();
  }
  [[nodiscard]] std::string key_file() const {
    const std::string path = write_file("key", "a key that all of them know");
    ::chmod(path.c_str(), 0600);
    return path;
  }
  [[nodiscard]] Arguments with_key(Arguments arguments) const {
    arguments.insert(arguments.begin(), {"--key-file", key_file()});
    return arguments;
  }
  [[nodiscard]] std::string url() const { return "tcp://" + hosts_ + "/s"; }

  static char name_of(std::size_t i) { return static_cast<char>('a' + i); }
  [[nodiscard]] std::string address(std::size_t i) const { return ports_.at(i).at().text(); }

  std::array<net::fake::ReservedPort, 3> ports_;
  std::string hosts_;
  std::string list_;
  std::array<std::unique_ptr<Running>, 3> lochds_;
};

TEST_F(LochdCluster, LendsOneStoreAndOutlivesOneOfItsHosts) {
  std::string items;
  for (int i = 0; i < 24; ++i) items += fmt::format("key{}\tvalue{}\n", i, i);
  ok(with_key({"--placement", "by-key", "load", url(), write_file("items.tsv", items)}));
  EXPECT_EQ(ok(with_key({"count", url()})), "24\n");
  EXPECT_EQ(ok(with_key({"get", "tcp://" + address(2) + "/s", "key17"})), "value17");
  EXPECT_EQ(loch({"get", url(), "key17"}).exit_code, 3) << "without the key";

  lochds_[1]->send_signal(SIGKILL);
  lochds_[1]->wait();
  int there = 0;
  for (int i = 0; i < 24; ++i) {
    const Outcome got = loch(with_key({"get", url(), fmt::format("key{}", i)}));
    there += got.exit_code == 0 ? 1 : 0;
    if (got.exit_code == 0) {
      EXPECT_EQ(got.out, fmt::format("value{}", i));
    } else {
      EXPECT_EQ(got.exit_code, 1);
      EXPECT_THAT(got.err, HasSubstr("can not be reached now"));
    }
  }
  EXPECT_GT(there, 8);
  EXPECT_LT(there, 24);
  EXPECT_EQ(nlohmann::json::parse(ok(with_key({"--json", "stat", url()})))["hosts_away"], 1);
  const Outcome doctor = loch(with_key({"--json", "doctor", url()}));
  EXPECT_THAT(doctor.out, HasSubstr("1 of its 3 hosts cannot be reached"));

  start(1);
  for (int i = 0; i < 24; ++i)
    EXPECT_EQ(ok(with_key({"get", url(), fmt::format("key{}", i)})), fmt::format("value{}", i));
  ok(with_key({"gc", url()}));
  ok(with_key({"check", url()}));
  for (const auto& lochd : lochds_) {
    lochd->send_signal(SIGTERM);
    EXPECT_EQ(lochd->wait(), 0) << lochd->output();
  }
}

TEST_F(LochdCluster, GoesOnWithoutWhatAHostHasLost) {
  std::string items;
  for (int i = 0; i < 24; ++i) items += fmt::format("key{}\tvalue{}\n", i, i);
  ok(with_key({"--placement", "spread", "load", url(), write_file("items.tsv", items)}));
  lochds_[1]->send_signal(SIGKILL);
  lochds_[1]->wait();
  std::filesystem::remove_all(folder() + "/b/loch.s");
  start(1);
  Outcome counted;
  for (int i = 0; i < 100; ++i) {
    counted = loch(with_key({"count", url()}));
    if (counted.exit_code == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  ASSERT_EQ(counted.exit_code, 0) << counted.err;
  EXPECT_GT(std::stoi(counted.out), 0);
  EXPECT_LT(std::stoi(counted.out), 24);
  ASSERT_TRUE(lochds_[0]->await("'b' came back without its memory")) << lochds_[0]->output();
  ok(with_key({"load", url(), write_file("items.tsv", items)}));
  EXPECT_EQ(ok(with_key({"count", url()})), "24\n");
  ok(with_key({"gc", url()}));
  ok(with_key({"check", url()}));
}

// Receive: a part of a cluster's store. Expect: doctor finds it in order, and does not say to remove it.
TEST_F(LochdCluster, DoctorTakesAHostsPartForSound) {
  const Outcome doctor = run({"--directory", folder() + "/a", "--json", "doctor"});
  const auto stores = finding(nlohmann::json::parse(doctor.out), "stores");
  EXPECT_EQ(stores["status"], "OK") << stores;
  EXPECT_THAT(std::string(stores["found"]), HasSubstr("1 for clients of lochd alone"));
}

TEST_F(Lochd, ComesBackAfterItWasKilled) {
  ok({"put", "sessions", "a", "1"});
  const net::fake::ReservedPort port;
  start(port.at().text());
  // A client that has the store open all the time.
  Running watch(in_folder({"stat", url("sessions"), "--watch", "0.2", "--times", "100"}), true);
  ASSERT_TRUE(watch.await("sessions")) << watch.output();
  lochd_->send_signal(SIGKILL);
  EXPECT_EQ(lochd_->wait(), 128 + SIGKILL);
  EXPECT_EQ(ok({"get", "sessions", "a"}), "1") << "processes of this host do not notice";
  start(port.at().text());
  EXPECT_EQ(ok({"get", url("sessions"), "a"}), "1");
  ok({"put", url("sessions"), "a", "2"});
  EXPECT_EQ(ok({"get", "sessions", "a"}), "2");
}

TEST_F(Lochd, AsksForTheKey) {
  ok({"put", "sessions", "a", "1"});
  const std::string right = key_file("right.key", "a key that nobody guesses");
  const std::string wrong = key_file("wrong.key", "a key that somebody guessed");
  start("127.0.0.1:0", {"--key-file", right});
  EXPECT_EQ(ok({"--key-file", right, "get", url("sessions"), "a"}), "1");
  for (const Arguments& told : {Arguments{}, Arguments{"--key-file", wrong}}) {
    Arguments arguments = told;
    arguments.insert(arguments.end(), {"get", url("sessions"), "a"});
    const Outcome refused = loch(arguments);
    EXPECT_EQ(refused.exit_code, 3);
    EXPECT_THAT(refused.err, HasSubstr("does not know this host's key"));
  }
  EXPECT_TRUE(lochd_->await("refused")) << lochd_->output();
}

// Receive: another user of this host, and a lochd that was told nothing. Expect: he is told whom it lets in,
// and changes nothing; the one who started it needs no settings.
TEST_F(Lochd, WithoutSettingsLetsInItsOwnUserAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "there is no other user";
  let_all_have_stores();
  ok({"put", "sessions", "a", "1"});
  start("127.0.0.1:0");
  EXPECT_THAT(lochd_->output(), HasSubstr("to its own user and root alone"));
  for (const Arguments& words :
       {Arguments{"get", url("sessions"), "a"}, Arguments{"--yes", "remove", url("sessions"), "--all"}}) {
    const Outcome refused = loch(words, {.unprivileged = true});
    EXPECT_EQ(refused.exit_code, 3) << refused.out;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("lets in its own user (0) and root alone"),
                                   HasSubstr("/.loch-cookie.0: Permission denied"), HasSubstr("key_file"),
                                   HasSubstr("open_to_all")));
  }
  EXPECT_EQ(ok({"get", url("sessions"), "a"}), "1");
}

TEST_F(Lochd, WithoutSettingsLetsRootInToAUsersStores) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root is let in to what another user lends";
  let_all_have_stores();
  ok({"put", "sessions", "a", "1"}, {.unprivileged = true});
  start("127.0.0.1:0", {}, true);
  EXPECT_EQ(ok({"get", url("sessions"), "a"}, {.unprivileged = true}), "1");
  EXPECT_EQ(ok({"get", url("sessions"), "a"}), "1");
  // Another lochd, of another user, in the same directory.
  lochd_.reset();
  ok({"put", "others", "b", "2"});
  start("127.0.0.1:0");
  EXPECT_EQ(ok({"get", url("others"), "b"}), "2");
  EXPECT_EQ(loch({"get", url("others"), "b"}, {.unprivileged = true}).exit_code, 3);
}

TEST_F(Lochd, OpenToAllLetsInWhoeverGetsThere) {
  let_all_have_stores();
  ok({"put", "sessions", "a", "1"});
  start("127.0.0.1:0", {"--config", write_file("lochd.toml", "open_to_all = true\n")});
  EXPECT_THAT(lochd_->output(), HasSubstr("to everybody"));
  EXPECT_EQ(ok({"get", url("sessions"), "a"}), "1");
  EXPECT_EQ(ok({"get", url("sessions"), "a"}, {.unprivileged = true}), "1");
}

// Receive: the cookie that a lochd has left. Expect: no command takes it for a store, or for what is left of
// one; the next lochd goes on with it.
TEST_F(Lochd, LeavesACookieThatNobodyTakesForAStore) {
  ok({"put", "sessions", "a", "1"});
  start("127.0.0.1:0");
  const std::string cookie = fmt::format("{}/.loch-cookie.{}", folder(), ::geteuid());
  const std::string before = read_file(cookie);
  EXPECT_EQ(before.size(), 65U);
  lochd_->send_signal(SIGKILL);
  lochd_->wait();
  EXPECT_EQ(ok({"ls"}), "sessions\n");
  std::filesystem::last_write_time(cookie,
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  ok({"create", "other"});
  ok({"gc", "sessions"});
  const auto stores = finding(nlohmann::json::parse(loch({"--json", "doctor"}).out), "stores");
  EXPECT_EQ(stores["status"], "OK") << stores;
  start("127.0.0.1:0");
  EXPECT_EQ(read_file(cookie), before);
  EXPECT_EQ(ok({"get", url("sessions"), "a"}), "1");
}

TEST_F(Lochd, SaysWhatIsWrongWithItsCookie) {
  const std::string cookie = fmt::format("{}/.loch-cookie.{}", folder(), ::geteuid());
  std::ofstream(cookie) << std::string(64, '0') + "\n";
  ::chmod(cookie.c_str(), 0644);
  const Outcome wrong = lochd({"--listen", "127.0.0.1:0", "--directory", folder()});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr(cookie), HasSubstr("remove it")));
}

TEST_F(Lochd, LetsWhoeverHasTheKeyForReadingReadAndNoMore) {
  ok({"put", "sessions", "a", "1"});
  const std::string all = key_file("all.key", "a key that nobody guesses");
  const std::string reading = key_file("reading.key", "a key that more people have");
  const std::string file =
      write_file("lochd.toml", fmt::format("key_file = \"{}\"\nread_key_file = \"{}\"\n", all, reading));
  start("127.0.0.1:0", {"--config", file});
  for (const Arguments& told :
       {Arguments{"--key-file", reading}, Arguments{"--key-file", all, "--read-only"}}) {
    const auto told_and = [&](const Arguments& more) {
      Arguments arguments = told;
      arguments.insert(arguments.end(), more.begin(), more.end());
      return arguments;
    };
    EXPECT_EQ(ok(told_and({"get", url("sessions"), "a"})), "1");
    EXPECT_EQ(ok(told_and({"count", url("sessions")})), "1\n");
    for (const Arguments& change :
         {Arguments{"put", url("sessions"), "a", "2"}, Arguments{"remove", url("sessions"), "a"},
          Arguments{"gc", url("sessions")}}) {
      const Outcome refused = loch(told_and(change));
      EXPECT_EQ(refused.exit_code, 1) << change[0];
      EXPECT_THAT(refused.err, HasSubstr("may only read")) << change[0];
    }
  }
  EXPECT_EQ(ok({"--key-file", all, "get", url("sessions"), "a"}), "1");
}

TEST_F(Lochd, ReadsItsConfigurationAgain) {
  const std::string file = write_file("lochd.toml", "[[store]]\nname = \"first\"\n");
  start("127.0.0.1:0", {"--config", file});
  ok({"put", url("first"), "a", "1"});
  write_file("lochd.toml", "[[store]]\nname = \"second\"\n[log]\nlevel = \"debug\"\n");
  lochd_->send_signal(SIGHUP);
  ASSERT_TRUE(lochd_->await("read the configuration again")) << lochd_->output();
  ok({"put", url("second"), "a", "1"});
  write_file("lochd.toml", "[[store]]\nname = \"second\"\nmax_mib = 64\n");
  lochd_->send_signal(SIGHUP);
  ASSERT_TRUE(lochd_->await(
      "store 'second' was made with max_bytes 0, and stays so; the configuration says 67108864"))
      << lochd_->output();
  write_file("lochd.toml", "[[store]\n");
  lochd_->send_signal(SIGHUP);
  ASSERT_TRUE(lochd_->await("goes on with what was before")) << lochd_->output();
  EXPECT_EQ(ok({"get", url("second"), "a"}), "1");
  // What would keep it from starting is said before it is started again; and what a start warns of.
  const std::string nowhere = file_path("nowhere");
  write_file("lochd.toml", fmt::format("key_file = \"{}\"\n[[store]]\nname = \"second\"\natomics = "
                                       "\"device\"\n",
                                       nowhere));
  lochd_->send_signal(SIGHUP);
  ASSERT_TRUE(lochd_->await("would not start with this configuration")) << lochd_->output();
  ASSERT_TRUE(lochd_->await("nobody can; set verbs = true")) << lochd_->output();
  EXPECT_THAT(lochd_->output(), AllOf(HasSubstr(nowhere), HasSubstr("need a restart: key_file")));
  lochd_->send_signal(SIGINT);
  EXPECT_EQ(lochd_->wait(), 0);
}

// Receive: another key, and a store that there is no room for. Expect: the key counts, and the log says what
// became of the store.
TEST_F(Lochd, ReadsKeysAgainThoughAStoreCanNotBeMade) {
  ok({"put", "sessions", "a", "1"});
  const std::string before = key_file("before.key", "a key that somebody has guessed");
  const std::string used = key_file("used.key", "a key that somebody has guessed");
  const std::string setting = fmt::format("key_file = \"{}\"\n", used);
  const std::string file = write_file("lochd.toml", setting);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  start("127.0.0.1:0", {"--config", file});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(ok({"--key-file", before, "get", url("sessions"), "a"}), "1");
  const std::string after = key_file("used.key", "a key that nobody guesses");
  write_file("lochd.toml", setting + "[[store]]\nname = \"large\"\n");
  lochd_->send_signal(SIGHUP);
  ASSERT_TRUE(lochd_->await("read the configuration again")) << lochd_->output();
  EXPECT_THAT(lochd_->output(), AllOf(HasSubstr("large"), HasSubstr("ulimit -f")));
  EXPECT_EQ(ok({"--key-file", after, "get", url("sessions"), "a"}), "1");
  EXPECT_EQ(loch({"--key-file", before, "get", url("sessions"), "a"}).exit_code, 3);
}

// Receive: stores of its configuration that another user has made and opened to all, before it could. Expect:
// it lends only the one that is to be open to all.
TEST_F(Lochd, DoesNotLendWhatAnotherUserHasMadeInItsPlace) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  std::filesystem::permissions(folder(), std::filesystem::perms(01777));
  for (const char* store : {"own", "for-all"}) ok({"create", store, "--mode", "666"}, {.unprivileged = true});
  start("127.0.0.1:0", {"--config", write_file("lochd.toml",
                                               "[[store]]\nname = \"own\"\n"
                                               "[[store]]\nname = \"for-all\"\nmode = \"666\"\n")});
  EXPECT_TRUE(lochd_->await("store 'own' is there, but can not be lent")) << lochd_->output();
  const Outcome refused = loch({"get", url("own"), "a"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("was made by user"), HasSubstr("take it out of lochd.toml")));
  ok({"put", url("for-all"), "a", "1"});
}

// Receive: a directory in one that is closed to others.
TEST_F(Lochd, SaysThatItMayNotLookAtItsDirectory) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  std::filesystem::create_directory(file_path("closed"));
  const Outcome refused = run({"--check-config", "--directory", file_path("closed")},
                              {.program = LOCHD_PROGRAM, .unprivileged = true});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("can not be looked at: Permission denied"), HasSubstr("/closed'")));
}

TEST_F(Lochd, TellsPrometheus) {
  ok({"put", "sessions", "a", "1"});
  const net::fake::ReservedPort port;
  const std::string file = write_file("lochd.toml", "[metrics]\nlisten = \"" + port.at().text() + "\"\n");
  start("127.0.0.1:0", {"--config", file});
  ok({"get", url("sessions"), "a"});  // comes, and leaves
  Running watch(in_folder({"stat", url("sessions"), "--watch", "0.2", "--times", "100"}), true);
  ASSERT_TRUE(watch.await("sessions")) << watch.output();
  const auto told = [&] { return told_by(port.at()); };
  const std::string before = told();
  EXPECT_THAT(before, HasSubstr("lochd_clients 1"));
  EXPECT_THAT(before, HasSubstr("lochd_sessions 1"));
  EXPECT_THAT(before, HasSubstr("lochd_fenced_total 0"));
  EXPECT_THAT(before, HasSubstr("lochd_operations_total{kind=\"read\"}"));
  EXPECT_THAT(before, HasSubstr("loch_events_total{store=\"sessions\",event=\"put_insert\"} 1"));
  EXPECT_THAT(before, HasSubstr("loch_store_bytes{store=\"sessions\",part=\"used\"} 1048576"));
  EXPECT_THAT(before, HasSubstr("loch_store_max_bytes{store=\"sessions\"} 0"));
  EXPECT_THAT(before, HasSubstr("lochd_build_info{version="));
  // Receive: one that connects and asks for nothing. Expect: others are told meanwhile, sooner than
  // Prometheus gives up.
  Running silent({"-c", "exec 3<>/dev/tcp/127.0.0.1/" + port.at().port + " && echo connected && sleep 1000"},
                 true, "/bin/bash");
  ASSERT_TRUE(silent.await("connected")) << silent.output();
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_THAT(told(), HasSubstr("lochd_clients 1"));
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(10));
  watch.send_signal(SIGKILL);
  watch.wait();
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::string after = told();
  while (!after.contains("lochd_fenced_total 1") && std::chrono::steady_clock::now() < deadline)
    after = told();
  EXPECT_THAT(after, HasSubstr("lochd_fenced_total 1"));
  EXPECT_THAT(after, HasSubstr("lochd_sessions 0"));
}

TEST_F(Lochd, TellsOfTheStoresOfItsConfigurationThoughNobodyHasThemOpen) {
  const net::fake::ReservedPort port;
  const std::string metrics = "[metrics]\nlisten = \"" + port.at().text() + "\"\n";
  const std::string file = write_file("lochd.toml", metrics + "[[store]]\nname = \"first\"\n");
  start("127.0.0.1:0", {"--config", file});
  ok({"put", "first", "a", "1"});
  ok({"put", "another", "a", "1"});
  const std::string before = told_by(port.at());
  EXPECT_THAT(before, HasSubstr("loch_events_total{store=\"first\",event=\"put_insert\"} 1"));
  EXPECT_THAT(before, Not(HasSubstr("\"another\"")));
  write_file("lochd.toml", metrics + "[[store]]\nname = \"second\"\n");
  lochd_->send_signal(SIGHUP);
  ASSERT_TRUE(lochd_->await("read the configuration again")) << lochd_->output();
  const std::string after = told_by(port.at());
  EXPECT_THAT(after, HasSubstr("loch_store_bytes{store=\"second\",part=\"index\"}"));
  EXPECT_THAT(after, Not(HasSubstr("\"first\"")));
  ok({"--yes", "rm", "second"});
  EXPECT_THAT(told_by(port.at()), Not(HasSubstr("\"second\""))) << "it is gone";
}

TEST_F(Lochd, MakesStoresThatAGroupMayUse) {
  const std::string store = "[[store]]\nname = \"shared\"\nmode = \"660\"\n";
  start("127.0.0.1:0", {"--config", write_file("lochd.toml", store)});
  struct stat found{};
  ASSERT_EQ(::stat((folder() + "/loch.shared").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0770U);
  write_file("lochd.toml", "[[store]]\nname = \"shared\"\nmode = \"600\"\n");
  lochd_->send_signal(SIGHUP);
  EXPECT_TRUE(
      lochd_->await("store 'shared' was made with mode 660, and stays so; the configuration says 600"))
      << lochd_->output();
  // To be made for a group by somebody who is not in it.
  const std::string others = folder() + "/others.toml";
  std::ofstream(others) << "[[store]]\nname = \"x\"\ngroup = \"root\"\n";
  std::filesystem::permissions(folder(), std::filesystem::perms(0755));
  const Outcome checked = run({"--check-config", "--config", others},
                              {.program = LOCHD_PROGRAM, .unprivileged = ::geteuid() == 0});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.err, HasSubstr("group 'root', which this user is not in"));
  const std::string unknown =
      write_file("unknown.toml", "[[store]]\nname = \"x\"\ngroup = \"no-such-group\"\n");
  const Outcome refused = lochd({"--listen", "127.0.0.1:0", "--directory", folder(), "--config", unknown});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("there is no group 'no-such-group'"));
}

// Receive: more connections than lochd may have descriptors. Expect: it says so now and then, is not kept
// awake by them, and serves when they are gone.
TEST_F(Lochd, WaitsWhenItHasNoDescriptorsLeft) {
  ok({"put", "sessions", "a", "1"});
  ASSERT_NO_FATAL_FAILURE(start_with_descriptors(24));
  Running crowd = this->crowd(40);
  ASSERT_TRUE(lochd_->await("LimitNOFILE")) << lochd_->output();
  EXPECT_FALSE(lochd_->await("never said", std::chrono::milliseconds(1'500)));
  std::size_t said = 0;
  for (std::size_t at = 0; (at = lochd_->output().find("LimitNOFILE", at)) != std::string::npos; ++at) ++said;
  EXPECT_LE(said, 4U);
  crowd.send_signal(SIGKILL);
  crowd.wait();
  EXPECT_EQ(ok({"--timeout", "5s", "get", url("sessions"), "a"}), "1");
}

// Receive: the same, while those connections stay. Expect: who greets gets in, and has what it asks for.
TEST_F(Lochd, ServesWhileStrangersWouldTakeAllDescriptors) {
  ok({"put", "sessions", "a", "1"});
  ASSERT_NO_FATAL_FAILURE(start_with_descriptors(64));
  EXPECT_TRUE(lochd_->await("there are descriptors for")) << lochd_->output();
  Running crowd = this->crowd(200);
  ASSERT_TRUE(crowd.await("all are there"));
  EXPECT_EQ(ok({"--timeout", "5s", "get", url("sessions"), "a"}), "1");
  crowd.send_signal(SIGKILL);
  crowd.wait();
}

// Expect: --check-config says which file it has looked at, or that there is none.
TEST_F(Lochd, SaysWhatIsSound) {
  const Outcome usual = lochd({"--check-config"});
  EXPECT_EQ(usual.exit_code, 0) << usual.err;
  EXPECT_THAT(usual.out, HasSubstr(std::filesystem::exists("/etc/loch/lochd.toml")
                                       ? "/etc/loch/lochd.toml is sound"
                                       : "there is no /etc/loch/lochd.toml; the defaults are sound"));
  const std::string file = write_file("lochd.toml", "silence_s = 3\n");
  const Outcome sound = lochd({"--config", file, "--check-config"});
  EXPECT_EQ(sound.exit_code, 0) << sound.err;
  EXPECT_EQ(sound.out, file + " is sound\n");
  EXPECT_EQ(sound.err, "");
}

TEST_F(Lochd, SaysWhatIsWrongAndEnds) {
  const std::string file = write_file("lochd.toml", "silence = 3\n");
  const Outcome unknown = lochd({"--config", file, "--check-config"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("lochd.toml:1: there is no setting 'silence'"));
  const Outcome open = lochd({"--listen", "0.0.0.0:0"});
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_THAT(open.err, HasSubstr("key_file"));
  EXPECT_EQ(lochd({"--config", "/no/such/file"}).exit_code, 2);
  EXPECT_EQ(lochd({"--config", folder(), "--check-config"}).exit_code, 2)
      << "what can not be read is not empty";
  const Outcome nowhere = lochd({"--directory", "/no/such/folder", "--check-config"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("/no/such/folder"));
  const std::string listens = write_file("listens.toml", "listen = [\"0.0.0.0\"]\n");
  const Outcome keyless = lochd({"--config", listens, "--check-config"});
  EXPECT_EQ(keyless.exit_code, 2);
  EXPECT_THAT(keyless.err, HasSubstr(listens));
  const std::string key = write_file("key", std::string(44, 'k') + "\n");
  ::chmod(key.c_str(), 0600);
  EXPECT_EQ(lochd({"--config", listens, "--key-file", key, "--check-config"}).exit_code, 0);
  EXPECT_EQ(lochd({"--bogus"}).exit_code, 2);
  EXPECT_EQ(lochd({"--key-file", "/no/such/key", "--directory", folder()}).exit_code, 2) << "it stays so";
  for (const char* option : {"--key-file", "--config", "--directory"}) {
    const Outcome empty = lochd({option, "", "--check-config"});
    EXPECT_EQ(empty.exit_code, 2) << option;
    EXPECT_THAT(empty.err, HasSubstr("the name is empty")) << option;
  }
  const Outcome no_key = lochd({"--key-file", "/no/such/key", "--check-config"});
  EXPECT_EQ(no_key.exit_code, 2);
  EXPECT_THAT(no_key.err, HasSubstr("/no/such/key"));
  start("127.0.0.1:0");
  const Outcome taken = lochd({"--listen", "127.0.0.1:" + port_, "--directory", folder()});
  EXPECT_EQ(taken.exit_code, 1);
  EXPECT_THAT(taken.err, HasSubstr("Address already in use"));
  const std::string silent = write_file("silent.toml", "[log]\nlevel = \"critical\"\n");
  EXPECT_THAT(lochd({"--config", silent, "--listen", "127.0.0.1:" + port_, "--directory", folder()}).err,
              HasSubstr("Address already in use"))
      << "why it ends is said at any level";
  const std::string tells = write_file("tells.toml", "[metrics]\nlisten = \"127.0.0.1:" + port_ + "\"\n");
  const Outcome told = lochd({"--config", tells, "--listen", "127.0.0.1:0", "--directory", folder()});
  EXPECT_EQ(told.exit_code, 1);
  EXPECT_THAT(told.err, HasSubstr("metrics.listen"));
  EXPECT_THAT(told.err, HasSubstr("127.0.0.1:" + port_ + ": Address already in use"));
  const Outcome help = lochd({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--check-config"));
  EXPECT_THAT(help.out, HasSubstr("/dev/shm"));
  EXPECT_THAT(help.out, HasSubstr("127.0.0.1:7457"));
  EXPECT_EQ(lochd({"--version"}).out, "lochd" + ok({"--version"}).substr(4)) << "as loch says it";
}

// Receive: a fixed list of hosts that can not be read, or has not this one. Expect: it is said by
// --check-config, and by the start in a way that has systemd not try it again.
TEST_F(Lochd, SaysWhatIsWrongWithTheListOfItsCluster) {
  const std::string list = file_path("cluster.toml");
  const auto config = [&](const std::string& coordinator) {
    return write_file(
        "lochd.toml",
        fmt::format("listen = [\"127.0.0.1:0\"]\nopen_to_all = true\ndirectory = \"{}\"\n[cluster]\n"
                    "coordinator = \"{}\"\nnode = \"a\"\n",
                    folder(), coordinator));
  };
  const auto expect_wrong = [&](const char* why) {
    for (const Arguments& more : {Arguments{}, Arguments{"--check-config"}}) {
      Arguments arguments{"--config", config("file:" + list)};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const Outcome wrong = lochd(arguments);
      EXPECT_EQ(wrong.exit_code, 2) << why;
      EXPECT_THAT(wrong.err, HasSubstr(list));
      EXPECT_THAT(wrong.err, HasSubstr(why));
    }
  };
  expect_wrong("No such file");
  write_file("cluster.toml", "[[node]\n");
  expect_wrong(":1: ");
  write_file("cluster.toml", "[[node]]\nname = \"b\"\naddress = \"10.0.0.1\"\n");
  expect_wrong("has no node 'a'");
  write_file("cluster.toml", "[[node]]\nname = \"a\"\naddress = \"10.0.0.1\"\n");
  const Outcome alone = lochd({"--config", config("file:" + list), "--check-config"});
  EXPECT_EQ(alone.exit_code, 0);
  EXPECT_THAT(alone.err, HasSubstr("hosts of a cluster reach each other at `listen`")) << "no other one can";
  EXPECT_EQ(lochd({"--config", config("zookeeper://127.0.0.1:1/loch"), "--check-config"}).exit_code, 0)
      << "ZooKeeper may not be there yet";
}

}  // namespace
}  // namespace loch::cli
