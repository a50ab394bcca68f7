// The program around the commands: help, version, usage errors, doctor, bench, completion.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include "fabric/remote/protocol.h"
#include "memory/layout.h"
#include "tests/cli/run.h"

namespace loch::cli {
namespace {

const Arguments commands{"put",   "get",  "remove", "exists", "touch",  "incr", "scan-all",
                         "count", "load", "dump",   "create", "ls",     "stat", "inspect",
                         "rm",    "gc",   "check",  "doctor", "cluster"};
const Arguments cluster_commands{"status", "add", "drain", "remove"};

// The long names of the options that a command's --help lists.
std::vector<std::string> options_listed(const std::string& help) {
  std::vector<std::string> options;
  for (std::size_t at = help.find("--"); at != std::string::npos; at = help.find("--", at + 2)) {
    const std::size_t end = help.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at);
    const bool is_listed = help.rfind("\n  -", at) != std::string::npos && at > 0 &&
                           (help[at - 1] == ',' || help.substr(at - 3, 3) == "\n  ");
    if (is_listed) options.push_back(help.substr(at, end - at));
  }
  return options;
}

class Program : public CliTest {
 protected:
  // A copy of the program in a folder of its own, so that what is found beside it is known.
  std::string copied_program() const {
    const std::string copy = file_path("loch");
    std::filesystem::copy_file(loch_program(), copy);
    return copy;
  }

  // What the completion offers for the words, the last of which is being typed; before files "-o filenames",
  // by which bash knows that they are.
  std::vector<std::string> complete(const Arguments& words) const {
    std::string script = "source '" LOCH_SOURCE_FOLDER
                         "/packaging/loch.bash'; compopt() { COMPREPLY+=(\"$*\"); }; COMP_WORDS=(loch";
    for (const std::string& word : words) script += " '" + word + "'";
    script += "); COMP_CWORD=" + std::to_string(words.size()) + R"(; _loch; printf '%s\n' "${COMPREPLY[@]}")";
    const std::string path = std::filesystem::path(loch_program()).parent_path();
    const Outcome outcome =
        run({"--noprofile", "--norc", "-c", script},
            {.program = "/bin/bash",
             .variables = {"PATH=" + path + ":/usr/bin:/bin", "LOCH_DIRECTORY=" + folder()}});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::vector<std::string> offers;
    for (std::size_t begin = 0; begin < outcome.out.size();) {
      const std::size_t end = outcome.out.find('\n', begin);
      if (end > begin) offers.push_back(outcome.out.substr(begin, end - begin));
      begin = end + 1;
    }
    return offers;
  }
};

TEST_F(Program, HelpHasExamplesForEveryCommand) {
  const Outcome all = run({"--help"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_NE(all.out.find("Exit codes:"), std::string::npos);
  for (const std::string& command : commands) {
    EXPECT_NE(all.out.find("  " + command + " "), std::string::npos) << command;
    const Outcome one = run({command, "--help"});
    EXPECT_EQ(one.exit_code, 0) << command;
    EXPECT_NE(one.out.find("Example"), std::string::npos) << command;
    EXPECT_NE(one.out.find("Options of all commands"), std::string::npos) << command;
    EXPECT_EQ(one.err, "") << command;
  }
  for (const std::string& command : cluster_commands) {
    const Outcome one = run({"cluster", command, "--help"});
    EXPECT_NE(one.out.find("\nWhich cluster, say --coordinator WHERE or LOCH_COORDINATOR"), std::string::npos)
        << command;
  }
}

TEST_F(Program, VersionSaysWhatHasToBeTheSameElsewhere) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out.substr(0, 5), "loch ");
  EXPECT_TRUE(outcome.out.ends_with(fmt::format(" (store format {}, protocol {})\n", memory::format_version,
                                                fabric::remote::protocol_version)))
      << outcome.out;
}

TEST_F(Program, BadCommandLinesAreUsageAndSayWhere) {
  const std::pair<Arguments, std::string> cases[] = {
      {{}, "subcommand"},
      {{"frobnicate"}, "unknown command 'frobnicate'; there are: put, get, "},
      {{"delete", "s", "k"}, "unknown command 'delete'; did you mean remove?"},
      {{"--frobnicate"}, "unknown option '--frobnicate'\n"},
      {{"rm", "sessions", "user:17"}, "rm destroys a whole store; a key: loch remove sessions user:17\n"},
      {{"get", "s"}, "KEY"},
      {{"get", "s", "k", "more"}, "more"},
      {{"get", "s", "-x"}, "-x"},
      {{"--timeout", "never", "get", "s", "k"}, "--timeout"},
      {{"--timeout", "0.5ms", "get", "s", "k"}, "'0.5ms' is shorter than 1 ms"},
      {{"--directory", "", "ls"}, "--directory: the name is empty"},
      {{"--directory=", "ls"}, "--directory: the name is empty"},
      {{"put", "s", "--ttl=", "k", "v"}, "--ttl: "},
      {{"--tls-certificate", "c.pem", "ls"}, "--tls-key"},
      {{"ls", "--tls-key", "k.pem"}, "--tls-certificate"},
  };
  for (const auto& [arguments, said] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << said;
    EXPECT_NE(outcome.err.find(said), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("--help"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "") << said;
  }
}

TEST_F(Program, BadVariablesAreUsageAndNamed) {
  const std::pair<std::string, std::string> cases[] = {{"LOCH_READ_ONLY", "maybe"},
                                                       {"LOCH_TLS_KEY", "k.pem"}};
  for (const auto& [variable, value] : cases) {
    const Outcome outcome = loch({"ls"}, {.variables = {variable + "=" + value}});
    EXPECT_EQ(outcome.exit_code, 2) << variable;
    EXPECT_NE(outcome.err.find(" (set by " + variable + ")\n"), std::string::npos) << outcome.err;
  }
  const Outcome told = loch({"ls", "--read-only=maybe"}, {.variables = {"LOCH_READ_ONLY=1"}});
  EXPECT_EQ(told.exit_code, 2);
  EXPECT_EQ(told.err.find("set by"), std::string::npos) << told.err;
}

// Receive: "--option=", as of a variable that is empty, beside a "bench" that is no command, and of a flag.
// Expect: the next word is not taken for the value, and nothing is stored.
TEST_F(Program, AnEmptyValueIsNotTheNextWord) {
  ok({"put", "bench", "k", "v"});
  const std::pair<Arguments, std::string> cases[] = {
      {{"put", "bench", "key", "v", "--ttl=", "--json"}, "--ttl: '' does not start with a number"},
      {{"put", "s", "bench", "v", "--ttl=", "1h"}, "--ttl: '' does not start with a number"},
      {{"--placement", "bench", "put", "s", "k", "v", "--ttl=", "1h"}, "--ttl: '' does not start"},
      {{"put", "-qf", "bench", "s", "k", "--ttl=", "1h"}, "--ttl: '' does not start with a number"},
      {{"remove", "bench", "--prefix=", "--yes"}, "the prefix is empty"},
      {{"put", "s", "k", "--json="}, "--json takes no value"},
      {{"put", "s", "k", "v", "--if-absent="}, "--if-absent takes no value"},
      {{"put", "s", "k", "v", "--frobnicate="}, "unknown option '--frobnicate='"},
  };
  for (const auto& [arguments, said] : cases) {
    const Outcome outcome = loch(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << testing::PrintToString(arguments);
    EXPECT_NE(outcome.err.find(said), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(ok({"ls"}), "bench\n");
  EXPECT_EQ(ok({"scan-all", "bench"}), "k\tv\n");
  ok({"put", "s", "k", "--", "--ttl="});
  EXPECT_EQ(ok({"get", "s", "k"}), "--ttl=");
}

TEST_F(Program, UsageErrorsAreJsonWhereItIsAskedFor) {
  const Arguments cases[] = {{"--json", "--timeout", "0", "get", "s", "k"},
                             {"--timeout", "0", "get", "s", "k", "--json"},
                             {"--json", "put", "s", "k", "--ttl"},
                             {"--json", "--directory", "", "ls"},
                             {"-qj", "frobnicate"},
                             {"--json=", "ls"}};
  for (const Arguments& arguments : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << testing::PrintToString(arguments);
    const auto said = nlohmann::json::parse(outcome.err, nullptr, false);
    ASSERT_TRUE(said.is_object()) << outcome.err;
    EXPECT_EQ(said["error"]["exit"], 2) << said;
    EXPECT_NE(said["error"]["text"], "") << said;
  }
}

TEST_F(Program, AnOverlongTimeoutIsUsageForEveryCommand) {
  const Arguments most[] = {{"ls"}, {"doctor"}, {"count", "s"}, {"--yes", "rm", "s"}, {"cluster", "status"}};
  for (Arguments words : most) {
    words.insert(words.begin(), {"--timeout", "2h"});
    const Outcome outcome = loch(words);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find("'2h' is longer than 1 h\n"), std::string::npos) << outcome.err;
  }
  ok({"ls", "--timeout", "1h"});
  ok({"ls", "--timeout", "1ms"});
}

TEST_F(Program, OptionsForAllCommandsStandAnywhere) {
  ok({"put", "s", "k", "v"});
  EXPECT_EQ(run({"get", "s", "k", "--directory", folder()}).out, "v");
  EXPECT_EQ(ok({"exists", "--json", "s", "k", "--timeout", "2s"}), "{\"exists\":true}\n");
}

TEST_F(Program, DoctorSaysHowToMendWhatItFinds) {
  const auto report = json({"doctor"});
  EXPECT_EQ(report["healthy"], true);
  std::vector<std::string> subjects;
  for (const auto& finding : report["findings"]) {
    const std::string status = finding["status"];
    subjects.push_back(finding["subject"]);
    EXPECT_TRUE(status == "OK" || status == "WARN") << finding;
    EXPECT_NE(finding["found"], "") << finding;
    EXPECT_EQ(finding.contains("mend"), status != "OK") << finding;
  }
  for (const char* subject : {"directory", "space", "try-out", "huge pages", "processor", "clock",
                              "locked memory", "open files", "build"}) {
    EXPECT_NE(std::ranges::find(subjects, subject), subjects.end()) << subject;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder()));  // it leaves nothing behind
  EXPECT_NE(ok({"doctor"}).find("OK "), std::string::npos);
}

// Receive: a store that only lochd lends, and one that is damaged. Expect: the first is in order, and nothing
// says to remove it.
TEST_F(Program, DoctorTellsStoresThatAreLentFromThoseThatCanNotBeOpened) {
  const auto stores = [&] { return finding(json({"doctor"}), "stores"); };
  ok({"create", "near"});
  ok({"create", "--atomics", "device", "far"});
  EXPECT_EQ(stores()["status"], "OK") << stores();
  EXPECT_NE(std::string(stores()["found"]).find("1 for clients of lochd alone"), std::string::npos);
  ok({"create", "odd"});
  std::filesystem::resize_file(folder() + "/loch.odd/region.0", 4'096);
  EXPECT_EQ(stores()["status"], "WARN");
  EXPECT_NE(std::string(stores()["found"]).find("cannot be opened: odd (corrupt)"), std::string::npos)
      << stores();
  EXPECT_NE(std::string(stores()["mend"]).find("loch rm odd "), std::string::npos) << stores();
}

// Receive: a store of another user. Expect: advice about its owner; none to remove it, and none about a
// lochd.
TEST_F(Program, DoctorOfAStoreOfAnotherUserSpeaksOfItsOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  std::filesystem::permissions(folder(), std::filesystem::perms(01777));
  ok({"create", "s"});
  std::filesystem::permissions(folder() + "/loch.s", std::filesystem::perms(0755));
  const Outcome outcome = loch({"--json", "doctor", "s"}, {.unprivileged = true});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  const auto report = nlohmann::json::parse(outcome.out);
  for (const char* subject : {"stores", "store"}) {
    const auto found = finding(report, subject);
    const std::string mend = found["mend"];
    EXPECT_NE(mend.find("its owner"), std::string::npos) << found;
    EXPECT_EQ(mend.find("loch rm"), std::string::npos) << found;
    EXPECT_EQ(mend.find("lochd"), std::string::npos) << found;
  }
}

// Receive: a limit on the length of files under which no store can be made. Expect: all findings, this one
// among them, and nothing left behind.
TEST_F(Program, DoctorTellsOfALimitOnTheLengthOfFiles) {
  const Outcome outcome =
      run({"-c", R"(ulimit -f 1024; exec "$0" --directory "$1" --json doctor)", loch_program(), folder()},
          {.program = "/bin/sh"});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  const auto report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(finding(report, "try-out")["status"], "FAIL") << report;
  EXPECT_EQ(finding(report, "file size")["status"], "WARN") << report;
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

TEST_F(Program, DoctorThatMayOnlyReadMakesNoStore) {
  const auto tried = finding(json({"--read-only", "doctor"}), "try-out");
  EXPECT_EQ(tried["status"], "OK") << tried;
  EXPECT_EQ(tried["found"], "not tried: --read-only");
}

TEST_F(Program, DoctorLooksAtNetworkDevicesAndAtAStore) {
  const auto findings = json({"doctor"})["findings"];
  EXPECT_TRUE(std::ranges::any_of(
      findings, [](const auto& finding) { return std::string(finding["subject"]).starts_with("RDMA"); }));
  const Outcome nobody = run({"--directory", folder(), "doctor", "tcp://127.0.0.1:1/none"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_NE(nobody.out.find("is lochd running there"), std::string::npos) << nobody.out;
}

TEST_F(Program, DoctorFailsWithoutADirectory) {
  const Outcome outcome = run({"--directory", folder() + "/missing", "doctor"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.out.find("FAIL"), std::string::npos);
  EXPECT_NE(outcome.out.find("-> "), std::string::npos);
}

TEST_F(Program, BenchRunsItsProgramWithAllArguments) {
  const std::string program = copied_program();
  const std::string bench = write_file("loch-bench", "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n");
  std::filesystem::permissions(bench, std::filesystem::perms(0755));
  const Outcome outcome =
      run({"bench", "--json", "--help", "load", "-d", "x y", "--directory=", ""}, {.program = program});
  EXPECT_EQ(outcome.exit_code, 7) << outcome.err;
  EXPECT_EQ(outcome.out, "<--json><--help><load><-d><x y><--directory=><>");
}

// Receive: a signal to loch alone. Expect: its program ends in order, and loch by the signal.
TEST_F(Program, AnInterruptedBenchEndsBySignal) {
  const std::string program = copied_program();
  const std::string bench = write_file(
      "loch-bench",
      "#!/bin/sh\nsleep 600 &\ntrap 'kill $!; echo in order; exit 1' INT TERM\necho ready\nwait\n");
  std::filesystem::permissions(bench, std::filesystem::perms(0755));
  for (const int number : {SIGINT, SIGTERM}) {
    Running runs({"bench"}, false, program);
    ASSERT_TRUE(runs.await("ready"));
    runs.send_signal(number);
    EXPECT_EQ(runs.wait(), 128 + number);
    EXPECT_NE(runs.output().find("in order"), std::string::npos) << runs.output();
  }
}

TEST_F(Program, BenchSaysWhereItLooked) {
  const Outcome outcome = run({"bench"}, {.program = copied_program(), .variables = {"PATH=" + folder()}});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("loch-bench is not installed"), std::string::npos) << outcome.err;
}

TEST_F(Program, CompletionOffersCommandsStoresAndOptions) {
  ok({"create", "sessions"});
  ok({"create", "builds"});
  EXPECT_EQ(complete({"sc"}), (std::vector<std::string>{"scan-all"}));
  EXPECT_EQ(complete({"get", ""}), (std::vector<std::string>{"builds", "sessions"}));
  EXPECT_EQ(complete({"get", "se"}), (std::vector<std::string>{"sessions"}));
  EXPECT_EQ(complete({"--directory", folder(), "--json", "stat", "bu"}),
            (std::vector<std::string>{"builds"}));
  EXPECT_EQ(complete({"scan-all", "--li"}), (std::vector<std::string>{"--limit"}));
  EXPECT_EQ(complete({"dump", "s", "--format", "j"}), (std::vector<std::string>{"jsonl"}));
  EXPECT_EQ(complete({"cluster", "st"}), (std::vector<std::string>{"status"}));
  EXPECT_EQ(complete({"cluster", "--coordinator", "x", "drain", "--w"}),
            (std::vector<std::string>{"--wait"}));
  EXPECT_TRUE(complete({"cluster", "drain", ""}).empty());
  EXPECT_EQ(complete({"create", "--atomics", ""}), (std::vector<std::string>{"processor", "device"}));
  EXPECT_EQ(complete({"create", "--candidates", ""}), (std::vector<std::string>{"2", "3", "4"}));
  EXPECT_EQ(complete({"create", "--mode", "66"}), (std::vector<std::string>{"660", "666"}));
  EXPECT_TRUE(complete({"--from", ""}).empty());
  EXPECT_EQ(complete({"--ver"}), (std::vector<std::string>{"--version"}));
  EXPECT_TRUE(complete({"get", "sessions", ""}).empty());
  const auto all = complete({""});
  for (const std::string& command : commands)
    EXPECT_NE(std::ranges::find(all, command), all.end()) << command;
}

// Receive: --option=value, which bash cuts at the '='.
TEST_F(Program, CompletionKnowsValuesThatFollowAnEqualsSign) {
  ok({"create", "sessions"});
  EXPECT_EQ(complete({"--directory", "=", folder(), "get", ""}), (std::vector<std::string>{"sessions"}));
  EXPECT_EQ(complete({"--directory", "=", file_path("none"), "get", ""}), (std::vector<std::string>{}));
  EXPECT_EQ(complete({"--timeout", "=", "2s", "get", "se"}), (std::vector<std::string>{"sessions"}));
  EXPECT_EQ(complete({"dump", "s", "--format", "="}), (std::vector<std::string>{"tsv", "jsonl"}));
  EXPECT_EQ(complete({"dump", "s", "--format", "=", "j"}), (std::vector<std::string>{"jsonl"}));
  EXPECT_EQ(complete({"cluster", "add", "d", "=", "10.0.0.4", "--sh"}),
            (std::vector<std::string>{"--shards"}));
}

// Receive: URLs, and a key, which bash cuts at each ':'. Expect: they are the one word that they were, of
// which bash keeps what stands before the last ':'.
TEST_F(Program, CompletionKnowsUrls) {
  ok({"create", "sessions"});
  const std::string file = write_file("items.tsv", "");
  const std::vector<std::string> sessions{"//sessions"};
  EXPECT_EQ(complete({"get", "shm", ":", "//se"}), sessions);
  EXPECT_EQ(complete({"--timeout", "=", "2s", "get", "shm", ":", "//"}), sessions);
  EXPECT_EQ(complete({"--directory", "/", "get", "shm", ":", "//" + folder() + "/se"}),
            (std::vector<std::string>{"//" + folder() + "/sessions"}));
  EXPECT_EQ(complete({"get", "shm://se"}), (std::vector<std::string>{"shm://sessions"})) << "not cut";
  const std::vector<std::string> files{"-o filenames", file};
  EXPECT_EQ(complete({"load", "tcp", ":", "//h", ":", "7457/s", file_path("it")}), files);
  EXPECT_EQ(complete({"load", "tcp", ":", "//[", "::", "1]", ":", "7457/s", file_path("it")}), files);
  EXPECT_EQ(complete({"put", "s", "user", ":", "17", "--file", file_path("it")}), files);
}

TEST_F(Program, CompletionAndManPageKnowEveryOptionOfTheHelp) {
  const std::string page = read_file(LOCH_SOURCE_FOLDER "/packaging/loch.1.scd");
  std::vector<Arguments> all{{}};
  for (const std::string& command : commands) all.push_back({command});
  for (const std::string& command : cluster_commands) all.push_back({"cluster", command});
  for (Arguments words : all) {
    const std::string name = testing::PrintToString(words);
    words.emplace_back("--help");
    const std::string help = run(words).out;
    words.back() = "--";
    const auto offers = complete(words);
    for (const std::string& option : options_listed(help)) {
      EXPECT_NE(std::ranges::find(offers, option), offers.end()) << name << " " << option;
      EXPECT_NE(page.find(option), std::string::npos) << name << " " << option;
    }
  }
}

}  // namespace
}  // namespace loch::cli
