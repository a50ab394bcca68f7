// The real loch with a store of another host: what it says where that is missing, or goes away meanwhile.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <memory>
#include <sys/stat.h>

#include "net/testing/reserved_port.h"
#include "tests/cli/run.h"

namespace loch::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class FarStore : public CliTest {
 protected:
  void start(Arguments more = {}) {
    Arguments arguments{"--listen", port_.at().text(), "--directory", folder()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    lochd_ = std::make_unique<Running>(arguments, true, LOCHD_PROGRAM);
    ASSERT_TRUE(lochd_->await("lends the stores in")) << lochd_->output();
  }
  // Starts the one host of a cluster that lends a store 's'; the file of its key.
  std::string start_cluster() {
    const std::string list = write_file(
        "cluster.toml", fmt::format("[[node]]\nname = \"a\"\naddress = \"{}\"\n", port_.at().text()));
    std::string key = write_file("key", "a key that all of them know");
    ::chmod(key.c_str(), 0600);
    start({"--config", write_file("a.toml", fmt::format("key_file = \"{}\"\n[cluster]\n"
                                                        "coordinator = \"file:{}\"\nnode = \"a\"\n"
                                                        "[[store]]\nname = \"s\"\ncluster = true\n",
                                                        key, list))});
    return key;
  }
  [[nodiscard]] std::string url(const std::string& store) const {
    return fmt::format("tcp://{}/{}", port_.at().text(), store);
  }
  // Loads a line, and when that is stored, sends `signal` to lochd and gives 600 lines more. What load said.
  std::string load_and_lose_host(const Arguments& more, int signal) {
    start();
    Arguments arguments{"--timeout", "500ms", "load", url("s")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto load = run_all_said(arguments);
    load->type("k\t1\n");
    EXPECT_TRUE(await_count("s", "1"));
    lochd_->send_signal(signal);
    if (signal == SIGKILL) lochd_->wait();
    std::string lines;  // at once, so that the reader of the pipe finds whole batches
    for (int i = 0; i < 600; ++i) lines += fmt::format("{}\t\n", i);
    load->type(lines);
    load->close_input();
    EXPECT_EQ(load->wait(), 1) << load->output();
    lochd_.reset();
    return load->output();
  }

  net::fake::ReservedPort port_;
  std::unique_ptr<Running> lochd_;
};

// Receive: a host that is killed, or stopped, between two batches. Expect: the load ends at the second,
// whether or not it goes on after errors, and names its first line alone.
TEST_F(FarStore, ALoadEndsWhereItsHostIsLost) {
  ok({"create", "s"});
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const Arguments& more : {Arguments{}, Arguments{"--continue-on-error"}}) {
      const std::string said = load_and_lose_host(more, signal);
      EXPECT_THAT(said, HasSubstr("standard input, line 2: "));
      EXPECT_THAT(said, Not(HasSubstr("standard input, line 3: ")));
      EXPECT_THAT(said, HasSubstr("with it 255 items up to line 257 could not be stored"));
      EXPECT_THAT(said, HasSubstr("1 item loaded, 256 failed, 257 lines read"));
      if (!more.empty()) EXPECT_THAT(said, HasSubstr("the load ends at line 257"));
      ok({"remove", "--all", "--yes", "s"});
    }
  }
}

// Receive: readers that let a walk wait for longer than a host lets its clients be silent, as a load shows
// that is silent since then. Expect: the walks come to their end.
TEST_F(FarStore, AWalkWhoseReaderLetsItWaitGoesOn) {
  start({"--config", write_file("lochd.toml", "silence_s = 1\n")});
  std::string lines;
  for (int i = 0; i < 1'000; ++i) lines += fmt::format("key{}\t{}\n", i, std::string(1'000, 'v'));
  ok({"load", "s"}, {.input = lines});
  Running scan(in_folder({"scan-all", url("s")}), false);
  ASSERT_TRUE(scan.await("key"));
  Running dump(in_folder({"dump", url("s")}), false);
  ASSERT_TRUE(dump.await("key"));

  const Running silent(in_folder({"load", url("s")}), false);
  silent.type("last\tvalue\n");
  const auto await_clients = [&](int clients) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (json({"stat", "s"})["clients"] != clients) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  };
  ASSERT_TRUE(await_clients(3));
  ASSERT_TRUE(await_clients(2)) << "the silent one alone has gone";
  EXPECT_EQ(scan.wait(), 0);
  EXPECT_EQ(dump.wait(), 0);
  for (const Running* each : {&scan, &dump}) {
    const auto& out = each->output();
    EXPECT_GE(std::ranges::count(out, '\n'), 1'000);
  }
}

// Receive: a signal to a walk whose reader lets it wait. Expect: that ends it.
TEST_F(FarStore, OneSignalEndsAWalkThatWaitsForItsReader) {
  start();
  std::string lines;
  for (int i = 0; i < 1'000; ++i) lines += fmt::format("key{}\t{}\n", i, std::string(1'000, 'v'));
  ok({"load", "s"}, {.input = lines});
  Running scan(in_folder({"scan-all", url("s")}), false);
  ASSERT_TRUE(scan.await_full());
  scan.send_signal(SIGTERM);
  EXPECT_EQ(scan.wait_unread(), 128 + SIGTERM);
}

// The thread sanitizer holds a lock of its own at an atomic access that faults, which the handler's would
// wait for.
#if !__has_feature(thread_sanitizer)
// Receive: a store of whose files one is truncated, between two lines of a client, and in the midst of many.
// Expect: the client is told so; lochd says why, and goes on with another store and its clients, and with the
// one that the owner makes in its place.
TEST_F(FarStore, AStoreThatIsTruncatedIsLostAlone) {
  ok({"create", "other"});
  start();
  Running other(in_folder({"load", url("other")}), false);
  other.type("k\t1\n");
  ASSERT_TRUE(await_count("other", "1"));
  int lines = 1;
  const auto expect_lost_alone = [&](Running& load) {
    EXPECT_EQ(load.wait(), 1) << load.output();
    EXPECT_THAT(load.output(), HasSubstr(" failed, "));
    const Outcome told = loch({"get", url("s"), "k"});
    EXPECT_THAT(told.exit_code, testing::AnyOf(1, 3)) << told.err;
    EXPECT_THAT(told.err, HasSubstr("corrupt"));
    other.type(fmt::format("{}\t1\n", ++lines));
    EXPECT_TRUE(await_count("other", std::to_string(lines)));
    ok({"--yes", "rm", "s"});
    ok({"put", "s", "k", "2"});
    EXPECT_EQ(ok({"get", url("s"), "k"}), "2");
    ok({"--yes", "rm", "s"});
  };
  const auto truncate = [&](const char* region) {
    std::filesystem::resize_file(fmt::format("{}/loch.s/{}", folder(), region), 0);
  };
  const auto is_logged = [&](const char* region) {
    return lochd_->await(fmt::format("loch.s/{} is shorter than what was mapped", region));
  };
  for (const char* region : {"region.0", "region.1", "region.2"}) {
    ok({"create", "s"});
    const auto load = run_all_said({"load", url("s")});
    load->type("k\t1\n");
    ASSERT_TRUE(await_count("s", "1"));
    truncate(region);
    std::string rest;
    for (int i = 0; i < 600; ++i) rest += fmt::format("{}\tvalue {}\n", i, i);
    load->type(rest);
    load->close_input();
    expect_lost_alone(*load);
    EXPECT_TRUE(is_logged(region)) << lochd_->output();
  }
  std::string many;
  for (int i = 0; i < 1'000'000; ++i) many += fmt::format("{}\t\n", i);
  ok({"put", "s", "k", "1"});
  const auto load = run_all_said({"load", url("s"), write_file("many.tsv", many)});
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (ok({"count", "s"}) == "1\n" && std::chrono::steady_clock::now() < deadline) {
  }
  truncate("region.0");
  expect_lost_alone(*load);
  other.close_input();
  EXPECT_EQ(other.wait(), 0);
  EXPECT_EQ(ok({"count", url("other")}), fmt::format("{}\n", lines));
  lochd_->send_signal(SIGTERM);
  EXPECT_EQ(lochd_->wait(), 0);
}

// Receive: the same, while a client has the store open that does nothing. Expect: whoever opens it after that
// has what is left of it, and that client is told what happened.
TEST_F(FarStore, ATruncatedStoreIsOpenedAnewForWhatIsLeft) {
  start();
  ok({"put", "s", "k", std::string(100'000, 'v')});
  const auto load = run_all_said({"load", url("s")});
  load->type("other\t1\n");
  ASSERT_TRUE(await_count("s", "2"));
  const std::string file = folder() + "/loch.s/region.2";
  std::filesystem::resize_file(file, 0);
  const Outcome lost = loch({"get", url("s"), "k"});
  EXPECT_EQ(lost.exit_code, 1) << lost.err;
  EXPECT_EQ(lost.out, "");
  EXPECT_TRUE(lochd_->await(file + " is shorter than what was mapped")) << lochd_->output();
  ok({"put", url("s"), "k", "2"});
  EXPECT_EQ(ok({"get", url("s"), "k"}), "2");
  load->type("another\t1\n");
  load->close_input();
  EXPECT_EQ(load->wait(), 1);
  EXPECT_THAT(load->output(), HasSubstr(file + " is shorter than what was mapped"));
}
#endif

TEST_F(FarStore, PutOfAStoreThatIsNotThereSaysWhereToMakeIt) {
  start();
  for (const Arguments& words : {Arguments{"put", url("none"), "k", "v"}, Arguments{"load", url("none")}}) {
    const Outcome outcome = loch(words, {.input = "k\tv\n"});
    EXPECT_EQ(outcome.exit_code, 3);
    EXPECT_THAT(outcome.err,
                HasSubstr("on another host " + words[0] + " makes none: `loch create none` there"));
  }
}

TEST_F(FarStore, DoctorAdvisesByWhatIsWrong) {
  start();
  const Outcome missing = loch({"doctor", url("none")});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.out, AllOf(HasSubstr("loch create makes one"), Not(HasSubstr("is lochd running"))));
}

TEST_F(FarStore, APlacementThatIsNoNodeIsToldAllThereAre) {
  const std::string key = start_cluster();
  const Outcome outcome = loch({"--key-file", key, "--placement", "spred", "put", url("s"), "k", "v"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("there are: a (and local, spread and by-key, which are no nodes)"));
}

TEST_F(FarStore, OptionsComeFromTheEnvironmentToo) {
  const std::string key = start_cluster();
  const std::string key_variable = "LOCH_KEY_FILE=" + key;
  const struct {
    std::vector<std::string> variables;
    int exit_code;
    std::string said;
  } cases[] = {
      {{}, 3, "key"},
      {{key_variable}, 0, ""},
      {{"LOCH_KEY_FILE=/no/such/key"},
       3,
       "--key-file: cannot open /no/such/key: No such file or directory\n"},
      {{key_variable, "LOCH_FROM=203.0.113.7"}, 2, "203.0.113.7 is no address of this host"},
      {{key_variable, "LOCH_PLACEMENT=a"}, 0, ""},
      {{key_variable, "LOCH_PLACEMENT=nosuch"}, 2, "there are: a"},
      {{key_variable, "LOCH_READ_ONLY=1"}, 1, "may only read"},
      {{key_variable, "LOCH_TLS_AUTHORITY=/no/such/ca"}, 3, "--tls-authority: cannot open /no/such/ca: "},
      {{key_variable, "LOCH_TLS_CERTIFICATE=/no/such/c", "LOCH_TLS_KEY=" + key},
       3,
       "--tls-certificate: cannot open /no/such/c: "},
      {{key_variable, "LOCH_TLS_CERTIFICATE=" + key, "LOCH_TLS_KEY=/no/such/k"},
       3,
       "--tls-key: cannot open /no/such/k: "},
  };
  for (const auto& [variables, exit_code, said] : cases) {
    const Outcome outcome = loch({"put", url("s"), "k", "v"}, {.variables = variables});
    EXPECT_EQ(outcome.exit_code, exit_code) << testing::PrintToString(variables) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(said)) << testing::PrintToString(variables);
  }
}

}  // namespace
}  // namespace loch::cli
