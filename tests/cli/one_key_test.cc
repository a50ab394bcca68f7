// loch put, get, remove, exists and inspect of a key: values, exit codes, what is printed where.
#include <unistd.h>

#include "tests/cli/run.h"

namespace loch::cli {
namespace {

using OneKey = CliTest;

TEST_F(OneKey, PutThenGetGivesTheValueAndNothingElse) {
  EXPECT_EQ(ok({"put", "s", "k", "value"}), "");
  EXPECT_EQ(ok({"get", "s", "k"}), "value");
  EXPECT_EQ(ok({"get", "shm://s", "k"}), "value");
  EXPECT_EQ(run({"get", "shm://" + folder() + "/s", "k"}).out, "value");
}

TEST_F(OneKey, AMissingKeyIsNotFoundAndNamed) {
  const std::string version = json({"put", "s", "k", "v"})["version"];
  const Arguments cases[] = {{"get", "s", "ot\ther"},
                             {"remove", "s", "ot\ther"},
                             {"inspect", "s", "ot\ther"},
                             {"touch", "s", "ot\ther", "--persist"},
                             {"put", "s", "ot\ther", "v", "--if-version", version}};
  for (Arguments words : cases) {
    const Outcome outcome = loch(words);
    EXPECT_EQ(outcome.exit_code, 4);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "loch: " + words.front() + ": no such key 'ot\\ther' in store 's'\n");
    words.insert(words.begin(), "--quiet");
    EXPECT_EQ(loch(words).err, "");
  }
}

TEST_F(OneKey, ReadingCreatesNoStore) {
  for (const char* command : {"get", "exists", "remove", "inspect"}) {
    const Outcome outcome = loch({command, "none", "k"});
    EXPECT_EQ(outcome.exit_code, 3) << command;
    EXPECT_NE(outcome.err.find("cannot open store 'none'"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(ok({"ls"}), "");
}

TEST_F(OneKey, PutCreatesTheStoreAndSaysSo) {
  EXPECT_EQ(loch({"put", "--no-create", "s", "k", "v"}).exit_code, 3);
  const Outcome outcome = loch({"put", "s", "k", "v"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "created store 's'\n");
  EXPECT_EQ(loch({"put", "s", "k", "v"}).err, "");
  EXPECT_EQ(loch({"--json", "put", "t", "k", "v"}).err,
            "{\"note\":{\"command\":\"put\",\"text\":\"created store 't'\"}}\n");
  EXPECT_EQ(loch({"-q", "put", "quiet", "k", "v"}).err, "");
}

TEST_F(OneKey, BadNamesAreUsage) {
  for (const std::string& bad :
       {std::string("a/b"), std::string(""), std::string(65, 'x'), std::string("http://s"),
        std::string("shm://"), std::string("a b"), std::string("\xff")}) {
    const Outcome outcome = loch({"put", bad, "k", "v"});
    EXPECT_EQ(outcome.exit_code, 2) << bad;
    EXPECT_NE(outcome.err, "") << bad;
  }
}

TEST_F(OneKey, BadKeysAreUsage) {
  ok({"put", "s", "k", "v"});
  EXPECT_EQ(loch({"put", "s", "", "v"}).exit_code, 2);
  EXPECT_EQ(loch({"put", "s", std::string(4097, 'k'), "v"}).exit_code, 2);
  EXPECT_EQ(loch({"get", "s", std::string(4097, 'k')}).exit_code, 2);
  ok({"put", "s", std::string(4096, 'k'), "longest"});
  EXPECT_EQ(ok({"get", "s", std::string(4096, 'k')}), "longest");
}

TEST_F(OneKey, NoStoreIsMadeForABadKey) {
  for (const std::string& bad : {std::string(), std::string(4097, 'k')}) {
    const Outcome outcome = loch({"put", "new", bad, "v"});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.err.find("a key has 1 to 4096 bytes"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(ok({"ls"}), "");
}

TEST_F(OneKey, KeysAndValuesThatLookLikeSomethingElse) {
  for (const std::string word :
       {"[a,b]", "{}", "put", "%%", "a,b", "a=b", "-5", " ", "\\n", "h\xc3\xa9", "\xff\xfe"}) {
    ok({"put", "s", word, word});
    EXPECT_EQ(ok({"get", "s", word}), word) << word;
  }
  for (const std::string word : {"-k", "--key", "--help", "++", "--"}) {
    ok({"put", "s", "--", word, word});
    EXPECT_EQ(ok({"get", "s", "--", word}), word) << word;
  }
  ok({"put", "s", "empty", ""});
  EXPECT_EQ(ok({"get", "s", "empty"}), "");
}

TEST_F(OneKey, AValueComesFromStandardInputByteForByte) {
  std::string bytes;
  for (int i = 0; i < 3'000'000; ++i) bytes += static_cast<char>(i * 7 + i / 256);
  ok({"put", "s", "k", "-"}, {.input = bytes});
  EXPECT_EQ(ok({"get", "s", "k"}), bytes);
}

// Receive: '-' after '--'. Expect: standard input all the same, which is how to give that very value.
TEST_F(OneKey, TheValueOfADashComesFromStandardInput) {
  ok({"put", "s", "--", "-k", "-"}, {.input = "-"});
  EXPECT_EQ(ok({"get", "s", "--", "-k"}), "-");
}

TEST_F(OneKey, AValueComesFromAFileByteForByte) {
  using namespace std::string_literals;
  const std::string bytes = "\0\n\r\xff no newline at the end"s;
  ok({"put", "s", "k", "--file", write_file("value", bytes)});
  EXPECT_EQ(ok({"get", "s", "k"}), bytes);
  const Outcome missing = loch({"put", "s", "k", "--file", file_path("missing")});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_NE(missing.err.find(file_path("missing") + ": No such file or directory\n"), std::string::npos)
      << missing.err;
  EXPECT_EQ(loch({"put", "s", "k", "--file", ""}).exit_code, 2);
  EXPECT_EQ(loch({"put", "s", "k", "v", "--file", file_path("value")}).exit_code, 2);
  EXPECT_EQ(loch({"put", "s", "k"}).exit_code, 2);
}

TEST_F(OneKey, AValueOverTheLimitIsRefused) {
  const std::string path = write_file("large", "");
  ASSERT_EQ(::truncate(path.c_str(), (128L << 20) + 1), 0);
  const Outcome outcome = loch({"put", "s", "k", "--file", path});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("134217728"), std::string::npos) << outcome.err;
}

TEST_F(OneKey, HexadecimalGoesBothWays) {
  ok({"put", "--hex", "s", "00ff", "0a00FF"});
  EXPECT_EQ(ok({"get", "--hex", "s", "00FF"}), "0a00ff\n");
  EXPECT_EQ(ok({"get", "--hex-key", "s", "00ff"}), std::string("\n\0\xff", 3));
  ok({"put", "--hex-value", "s", "plain", "61"});
  EXPECT_EQ(ok({"get", "s", "plain"}), "a");
  EXPECT_EQ(ok({"exists", "--hex", "s", "00ff"}), "yes\n");
  ok({"remove", "--hex", "s", "00ff"});
  for (const char* bad : {"0", "0g", "zz"}) EXPECT_EQ(loch({"get", "--hex", "s", bad}).exit_code, 2) << bad;
}

TEST_F(OneKey, HexadecimalComesFromFilesAndStandardInputToo) {
  ok({"put", "--hex-value", "s", "k", "-"}, {.input = "0a00FF\n"});
  EXPECT_EQ(ok({"get", "s", "k"}), std::string("\n\0\xff", 3));
  ok({"put", "--hex", "s", "6b", "--file", write_file("hex", "6162")});
  EXPECT_EQ(ok({"get", "s", "k"}), "ab");
  for (const char* bad : {"0", "0g", "61\n\n", "61 62"})
    EXPECT_EQ(loch({"put", "--hex-value", "s", "k", "-"}, {.input = bad}).exit_code, 2) << bad;
  EXPECT_EQ(ok({"get", "s", "k"}), "ab");
}

TEST_F(OneKey, IfAbsentKeepsWhatIsThere) {
  ok({"put", "--if-absent", "s", "k", "first"});
  const Outcome outcome = loch({"put", "--if-absent", "s", "k", "second"});
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_EQ(outcome.err, "loch: put: the key is there already (without --if-absent it is replaced)\n");
  EXPECT_EQ(ok({"get", "s", "k"}), "first");
}

TEST_F(OneKey, IfVersionReplacesOnlyThatVersion) {
  ok({"put", "s", "k", "first"});
  const std::string version = json({"get", "s", "k"})["version"];
  const std::string next = json({"put", "s", "k", "second", "--if-version", version})["version"];
  EXPECT_EQ(ok({"get", "s", "k"}), "second");
  const Outcome late = loch({"put", "s", "k", "third", "--if-version", version});
  EXPECT_EQ(late.exit_code, 5);
  EXPECT_EQ(late.err,
            "loch: put: another version is stored now; read it again with `loch get --json` and retry\n");
  ok({"put", "s", "k", "fourth", "--if-version", next});
  EXPECT_EQ(ok({"get", "s", "k"}), "fourth");
  EXPECT_EQ(loch({"put", "s", "missing", "v", "--if-version", version}).exit_code, 4);
  EXPECT_EQ(loch({"put", "s", "k", "v", "--if-version", "x"}).exit_code, 2);
  EXPECT_EQ(loch({"put", "s", "k", "v", "--if-version", version, "--if-absent"}).exit_code, 2);
}

TEST_F(OneKey, IfVersionRemovesOnlyThatVersion) {
  const std::string version = json({"put", "s", "k", "first"})["version"];
  ok({"put", "s", "k", "second"});
  EXPECT_EQ(loch({"remove", "s", "k", "--if-version", version}).exit_code, 5);
  EXPECT_EQ(ok({"get", "s", "k"}), "second");
  ok({"remove", "s", "k", "--if-version", json({"get", "s", "k"})["version"]});
  EXPECT_EQ(loch({"remove", "s", "k", "--if-version", version}).exit_code, 4);
  EXPECT_EQ(loch({"remove", "s", "--all", "--if-version", version}).exit_code, 2);
}

TEST_F(OneKey, TouchSetsHowLongAnItemLives) {
  ok({"put", "s", "k", "v"});
  ok({"touch", "s", "k", "--ttl", "10m"});
  auto item = json({"get", "s", "k"});
  EXPECT_EQ(item["value"], "v");
  EXPECT_GT(item["ttl_ms"], 0);
  EXPECT_LE(item["ttl_ms"], 600'000);
  const auto touched = json({"touch", "s", "k", "--persist"});
  item = json({"get", "s", "k"});
  EXPECT_FALSE(item.contains("ttl_ms")) << item;
  EXPECT_EQ(touched["version"], item["version"]);
  EXPECT_EQ(loch({"touch", "s", "missing", "--persist"}).exit_code, 4);
  EXPECT_EQ(loch({"touch", "s", "k"}).exit_code, 2);
  EXPECT_EQ(loch({"touch", "s", "k", "--persist", "--ttl", "1s"}).exit_code, 2);
  EXPECT_EQ(loch({"touch", "none", "k", "--persist"}).exit_code, 3);
}

TEST_F(OneKey, IncrCounts) {
  EXPECT_EQ(ok({"incr", "s", "k"}), "1\n");
  EXPECT_EQ(ok({"incr", "s", "k", "--by", "41"}), "42\n");
  EXPECT_EQ(ok({"get", "s", "k"}), "42");
  EXPECT_EQ(ok({"incr", "s", "k", "--by", "-50"}), "-8\n");
  EXPECT_EQ(json({"incr", "s", "k"})["value"], "-7");
  EXPECT_EQ(loch({"incr", "s", "k", "--by", "1.5"}).exit_code, 2);
  EXPECT_EQ(loch({"incr", "--no-create", "none", "k"}).exit_code, 3);
  EXPECT_EQ(loch({"incr", "none", ""}).exit_code, 2);
  EXPECT_EQ(ok({"ls"}), "s\n");
}

TEST_F(OneKey, IncrLeavesWhatIsNoNumber) {
  for (const char* value : {"text", "", "7 ", "9223372036854775807", "99999999999999999999"}) {
    ok({"put", "s", "k", value});
    const Outcome refused = loch({"incr", "s", "k"});
    EXPECT_EQ(refused.exit_code, 1) << value;
    EXPECT_NE(refused.err.find("loch: incr: the value: "), std::string::npos) << refused.err;
    EXPECT_EQ(ok({"get", "s", "k"}), value);
  }
}

TEST_F(OneKey, ACounterKeepsTheTimeThatItBeganWith) {
  ok({"incr", "s", "k", "--ttl", "10m"});
  ok({"incr", "s", "k", "--ttl", "2h"});
  const auto item = json({"get", "s", "k"});
  EXPECT_EQ(item["value"], "2");
  EXPECT_GT(item["ttl_ms"], 0);
  EXPECT_LE(item["ttl_ms"], 600'000);
}

TEST_F(OneKey, TimeToLiveIsShownAndEnds) {
  ok({"put", "--ttl", "10m", "s", "k", "v"});
  const auto item = json({"get", "s", "k"});
  EXPECT_GT(item["ttl_ms"], 0);
  EXPECT_LE(item["ttl_ms"], 600'000);
  ok({"put", "--ttl", "1ms", "s", "short", "v"});
  const auto deadline = std::chrono::steady_clock::now() + patience;
  int code = 0;
  do {
    code = loch({"get", "s", "short"}).exit_code;
  } while (code == 0 && std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(code, 4);
  for (const char* bad : {"0", "-1s", "soon", ""}) {
    EXPECT_EQ(loch({"put", "s", "k", "v", "--ttl=" + std::string(bad)}).exit_code, 2) << bad;
  }
}

TEST_F(OneKey, JsonNamesWhatIsNotUtf8) {
  ok({"put", "--hex", "s", "ff", "fe"});
  const auto item = json({"get", "--hex-key", "s", "ff"});
  EXPECT_EQ(item["key_base64"], "/w==");
  EXPECT_EQ(item["value_base64"], "/g==");
  EXPECT_FALSE(item.contains("key"));
  ok({"put", "s", "k", "h\xc3\xa9"});
  EXPECT_EQ(json({"get", "s", "k"})["value"], "h\xc3\xa9");
}

TEST_F(OneKey, JsonNamesWhatIsWrong) {
  ok({"put", "s", "k", "v"});
  const auto error_of = [](const Outcome& outcome) { return nlohmann::json::parse(outcome.err)["error"]; };
  const auto exists = error_of(loch({"--json", "put", "--if-absent", "s", "k", "w"}));
  EXPECT_EQ(exists["command"], "put");
  EXPECT_EQ(exists["exit"], 5);
  EXPECT_EQ(exists["code"], "exists");
  EXPECT_EQ(error_of(loch({"--json", "get", "s", "x"}))["code"], "not_found");
  EXPECT_EQ(error_of(loch({"--json", "get", "none", "x"}))["exit"], 3);
}

// Receive: options about other hosts, on the command line and in the environment. Expect: there alone they
// are refused.
TEST_F(OneKey, OptionsOfOtherHostsAreRefusedWithAStoreOfThisOne) {
  ok({"put", "s", "k", "v"});
  const std::pair<const char*, const char*> options[] = {{"--placement", "LOCH_PLACEMENT"},
                                                         {"--from", "LOCH_FROM"},
                                                         {"--key-file", "LOCH_KEY_FILE"},
                                                         {"--tls-authority", "LOCH_TLS_AUTHORITY"}};
  for (const auto& [option, variable] : options) {
    for (const Arguments& words :
         {Arguments{"get", "s", "k"}, Arguments{"put", "s", "k", "w"}, Arguments{"create", "t"},
          Arguments{"ls"}, Arguments{"--yes", "rm", "s"}, Arguments{"doctor", "s"}}) {
      Arguments told = words;
      told.insert(told.begin(), {option, "nosuch"});
      const Outcome refused = loch(told);
      EXPECT_EQ(refused.exit_code, 2) << option;
      EXPECT_NE(refused.err.find(std::string(option) + " is for stores of other hosts"), std::string::npos)
          << refused.err;
    }
    const RunOptions inherited{.variables = {std::string(variable) + "=nosuch"}};
    EXPECT_EQ(ok({"get", "s", "k"}, inherited), "v");
    EXPECT_EQ(ok({"ls"}, inherited), "s\n");
  }
}

TEST_F(OneKey, GetAndIncrPrintWhatLoadTakes) {
  ok({"put", "s", "k", "v"});
  ok({"load", "--format", "jsonl", "t"}, {.input = ok({"get", "--json", "s", "k"})});
  EXPECT_EQ(ok({"get", "t", "k"}), "v");
  const std::string most = "9223372036854775807";  // more than a number of JSON keeps
  ok({"load", "--format", "jsonl", "t"}, {.input = ok({"incr", "--json", "s", "n", "--by", most})});
  EXPECT_EQ(ok({"get", "t", "n"}), most);
}

TEST_F(OneKey, RemoveThenNotFound) {
  ok({"put", "s", "k", "v"});
  EXPECT_EQ(ok({"remove", "s", "k"}), "");
  EXPECT_EQ(loch({"remove", "s", "k"}).exit_code, 4);
  EXPECT_EQ(loch({"get", "s", "k"}).exit_code, 4);
  EXPECT_EQ(loch({"remove", "s"}).exit_code, 2);
  EXPECT_EQ(loch({"remove", "s", "k", "--all"}).exit_code, 2);
}

TEST_F(OneKey, ExistsAnswersByItsExitCode) {
  ok({"put", "s", "k", "v"});
  EXPECT_EQ(ok({"exists", "s", "k"}), "yes\n");
  EXPECT_EQ(ok({"-q", "exists", "s", "k"}), "");
  const Outcome no = loch({"exists", "s", "other"});
  EXPECT_EQ(no.exit_code, 4);
  EXPECT_EQ(no.out, "no\n");
  EXPECT_EQ(no.err, "");
  EXPECT_EQ(json({"exists", "s", "k"})["exists"], true);
}

TEST_F(OneKey, InspectShowsSizesTimeAndVersion) {
  ok({"put", "--ttl", "1h", "s", "k\t", std::string(100, 'x')});
  const std::string text = ok({"inspect", "s", "k\t"});
  EXPECT_NE(text.find("2 B: k\\t"), std::string::npos) << text;
  EXPECT_NE(text.find("100 B"), std::string::npos) << text;
  const auto item = json({"inspect", "s", "k\t"});
  EXPECT_EQ(item["key_bytes"], 2);
  EXPECT_EQ(item["value_bytes"], 100);
  EXPECT_GT(item["ttl_ms"], 3'000'000);
  EXPECT_EQ(item["version"], json({"get", "s", "k\t"})["version"]);
  EXPECT_EQ(loch({"inspect", "s", "other"}).exit_code, 4);
}

TEST_F(OneKey, AnUnwritableOutputIsAFailure) {
  ok({"put", "s", "k", "v"});
  const Outcome full = loch({"get", "s", "k"}, {.output_path = "/dev/full"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_NE(full.err.find("standard output"), std::string::npos) << full.err;
  EXPECT_EQ(loch({"get", "s", "k"}, {.output_closed = true}).exit_code, 1);
  EXPECT_EQ(ok({"get", "s", "k"}), "v");
}

}  // namespace
}  // namespace loch::cli
