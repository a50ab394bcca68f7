// loch scan-all, count, load and dump: formats, errors in the input, full stores, readers that go away.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/layout.h"
#include "tests/cli/run.h"

namespace loch::cli {
namespace {

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

class AllItems : public CliTest {
 protected:
  // `count` lines "key<n>\tvalue <n>".
  static std::string numbered(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += fmt::format("key{}\tvalue {}\n", i, i);
    return text;
  }

  // Damages a store of few items: so many bytes from where `needle` is in their memory.
  void overwrite(const std::string& store, std::string_view needle, std::streamoff from_there,
                 std::string_view bytes) const {
    const std::string region = folder() + "/loch." + store + "/region.2";
    const auto at = read_file(region).find(needle);
    ASSERT_NE(at, std::string::npos);
    std::fstream file(region, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at) + from_there);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(file.good());
  }
};

using Lines = std::vector<std::string>;

TEST_F(AllItems, ScanPrintsEscapedLines) {
  ok({"put", "s", "a\tb", "c\nd\\"});
  ok({"put", "s", "\xff", "\x01"});
  ok({"put", "--ttl", "1h", "s", "t", "v"});
  const Lines lines = sorted_lines(ok({"scan-all", "s"}));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "\\xff\t\\x01");
  EXPECT_EQ(lines[1], "a\\tb\tc\\nd\\\\");
  EXPECT_EQ(lines[2].substr(0, 4), "t\tv\t");
  EXPECT_EQ(sorted_lines(ok({"scan-all", "--keys", "s"})), (Lines{"\\xff", "a\\tb", "t"}));
}

TEST_F(AllItems, ScanPrintsJsonLines) {
  ok({"put", "s", "k", "v"});
  EXPECT_EQ(ok({"--json", "scan-all", "s"}), "{\"key\":\"k\",\"value\":\"v\"}\n");
  EXPECT_EQ(ok({"scan-all", "--format", "jsonl", "--keys", "s"}), "{\"key\":\"k\"}\n");
  EXPECT_EQ(ok({"--json", "scan-all", "--format", "tsv", "s"}), "k\tv\n");
  EXPECT_EQ(loch({"scan-all", "--format", "xml", "s"}).exit_code, 2);
}

TEST_F(AllItems, ScanStopsAtItsLimit) {
  ok({"load", "s"}, {.input = numbered(50)});
  EXPECT_EQ(sorted_lines(ok({"scan-all", "s"})).size(), 50U);
  EXPECT_EQ(sorted_lines(ok({"scan-all", "--limit", "7", "s"})).size(), 7U);
  EXPECT_EQ(ok({"scan-all", "--limit", "0", "s"}), "");
  for (const char* bad : {"x", "-3"}) EXPECT_EQ(loch({"scan-all", "-n", bad, "s"}).exit_code, 2) << bad;
}

TEST_F(AllItems, APrefixSelectsItems) {
  ok({"load", "s"}, {.input = numbered(50) + "k\tshort\nother\tv\n"});
  EXPECT_EQ(sorted_lines(ok({"scan-all", "--prefix", "key4", "s"})).size(), 11U);  // key4, key40 to key49
  EXPECT_EQ(ok({"scan-all", "--prefix", "key49", "s"}), "key49\tvalue 49\n");
  EXPECT_EQ(sorted_lines(ok({"scan-all", "--prefix", "key", "-n", "7", "s"})).size(), 7U);
  EXPECT_EQ(ok({"scan-all", "--prefix", "key50", "s"}), "");
  EXPECT_EQ(ok({"count", "--prefix", "key4", "s"}), "11\n");
  EXPECT_EQ(json({"count", "--prefix", "none", "s"})["count"], 0);
  EXPECT_EQ(ok({"dump", "--prefix", "oth", "s"}), "other\tv\n");
  EXPECT_EQ(json({"dump", "--prefix", "key", "s", file_path("dump.tsv")})["items"], 50);
}

// Receive: the empty prefix, as a variable of a script may be. Expect: it is not taken for every key.
TEST_F(AllItems, AnEmptyOrOverlongPrefixIsUsage) {
  ok({"load", "s"}, {.input = numbered(5)});
  for (const char* command : {"scan-all", "count", "dump", "remove"}) {
    const Outcome empty = loch({"--yes", command, "--prefix=", "s"});
    EXPECT_EQ(empty.exit_code, 2) << command;
    EXPECT_NE(empty.err.find("the prefix is empty"), std::string::npos) << empty.err;
    EXPECT_EQ(loch({"--yes", command, "--prefix", std::string(4097, 'k'), "s"}).exit_code, 2) << command;
  }
  // With a word behind it that could be its value.
  const Outcome dump = loch({"dump", "s", "--prefix=", file_path("dump.tsv")});
  EXPECT_EQ(dump.exit_code, 2);
  EXPECT_NE(dump.err.find("the prefix is empty"), std::string::npos) << dump.err;
  EXPECT_EQ(ok({"count", "s"}), "5\n");
}

TEST_F(AllItems, CountIsANumber) {
  ok({"load", "s"}, {.input = numbered(300)});
  EXPECT_EQ(ok({"count", "s"}), "300\n");
  EXPECT_EQ(json({"count", "s"})["count"], 300);
  EXPECT_EQ(loch({"count", "none"}).exit_code, 3);
}

TEST_F(AllItems, LoadReadsBothFormatsFromFilesAndStandardInput) {
  const std::string jsonl = "{\"key\":\"a\",\"value\":\"1\"}\r\n\n{\"key_base64\":\"/w==\",\"value\":\"2\"}";
  ok({"load", "s", write_file("in.jsonl", jsonl)});
  ok({"load", "--format", "jsonl", "t"}, {.input = jsonl});
  const Lines expected{"\\xff\t2", "a\t1"};
  EXPECT_EQ(sorted_lines(ok({"scan-all", "s"})), expected);
  EXPECT_EQ(sorted_lines(ok({"scan-all", "t"})), expected);
  ok({"load", "u", write_file("in.tsv", "\\xff\t2\r\na\t1")});
  EXPECT_EQ(sorted_lines(ok({"scan-all", "u"})), expected);
  const auto summary = json({"load", "u", file_path("in.tsv")});
  EXPECT_EQ(summary["loaded"], 2);
  EXPECT_EQ(summary["failed"], 0);
}

// Receive: a byte order mark before the first line, and others that begin a key. Expect: the first alone is
// dropped, and those come back from a dump.
TEST_F(AllItems, AByteOrderMarkIsNoPartOfTheFirstKey) {
  const std::string mark = "\xef\xbb\xbf";
  ok({"load", "s", write_file("in.tsv", mark + "a\t1\n" + mark + "b\t2\n")});
  EXPECT_EQ(sorted_lines(ok({"scan-all", "s"})), (Lines{"\\xef\\xbb\\xbfb\t2", "a\t1"}));
  ok({"load", "t", write_file("in.jsonl", mark + R"({"key":"a","value":"1"})")});
  EXPECT_EQ(ok({"scan-all", "t"}), "a\t1\n");
  ok({"put", "u", mark, "v"});
  for (const char* format : {"tsv", "jsonl"}) {
    ok({"load", "--format", format, format}, {.input = ok({"dump", "--format", format, "u"})});
    EXPECT_EQ(ok({"get", format, mark}), "v") << format;
  }
}

TEST_F(AllItems, TheLastOfEqualKeysStays) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += fmt::format("key{}\t{}\n", i % 3, i);
  ok({"load", "s"}, {.input = lines});
  EXPECT_EQ(sorted_lines(ok({"scan-all", "s"})), (Lines{"key0\t999", "key1\t997", "key2\t998"}));
}

TEST_F(AllItems, DumpAndLoadGiveBackEveryByte) {
  std::string lines;
  for (int i = 0; i < 256; ++i) {
    for (int j = 0; j < 4; ++j)
      lines += fmt::format("\\x{:02x}k{}\t\\x{:02x}\\x{:02x}\n", i, j, (i * 37 + j) % 256, i);
  }
  ok({"load", "s"}, {.input = lines});
  ok({"dump", "s", file_path("dump.tsv")});
  ok({"dump", "s", file_path("dump.jsonl")});
  ok({"load", "t", file_path("dump.tsv")});
  ok({"load", "j", file_path("dump.jsonl")});
  const Lines expected = sorted_lines(ok({"scan-all", "s"}));
  EXPECT_EQ(expected.size(), 1024U);
  EXPECT_EQ(sorted_lines(ok({"scan-all", "t"})), expected);
  EXPECT_EQ(sorted_lines(ok({"scan-all", "j"})), expected);
  EXPECT_EQ(sorted_lines(ok({"dump", "s"})), expected);
  EXPECT_EQ(sorted_lines(read_file(file_path("dump.tsv"))), expected);
}

// Receive: an item one byte of which has changed. Expect: all others, and that it is said.
TEST_F(AllItems, DamagedItemsAreNotLeftOutInSilence) {
  ok({"load", "s"}, {.input = "a\t1\nb\tneedle in memory\nc\t3\n"});
  overwrite("s", "needle in memory", 0, "N");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"count", "--prefix", "a", "s"},
                                                    {"scan-all", "s"},
                                                    {"dump", "s"},
                                                    {"dump", "s", file_path("dump.tsv")},
                                                    {"--yes", "remove", "--prefix", "b", "s"}}) {
    const Outcome walked = loch(arguments);
    EXPECT_EQ(walked.exit_code, 1) << walked.err;
    EXPECT_NE(walked.err.find("1 damaged item left out"), std::string::npos) << walked.err;
  }
  EXPECT_EQ(sorted_lines(read_file(file_path("dump.tsv"))), (Lines{"a\t1", "c\t3"}));
  const Outcome checked = loch({"--json", "check", "s"});
  EXPECT_EQ(checked.exit_code, 1) << checked.err;
  const auto report = nlohmann::json::parse(checked.out);
  EXPECT_EQ(report["sound"], false);
  EXPECT_EQ(report["items_corrupt"], 1);
  EXPECT_FALSE(report["findings"].empty());
  ok({"remove", "s", "b"});
  EXPECT_EQ(sorted_lines(ok({"dump", "s"})).size(), 2U);
}

// Receive: an item whose header says another hash. Expect: the same, also of what looks at no value.
TEST_F(AllItems, ItemsWithDamagedHeadersAreNotLeftOutInSilence) {
  ok({"load", "s"}, {.input = "a\t1\nneedle in memory\t2\nc\t3\n"});
  const auto hash = static_cast<std::streamoff>(offsetof(memory::ItemHeader, key_hash));
  overwrite("s", "needle in memory", hash - std::streamoff{sizeof(memory::ItemHeader)}, std::string(8, '\0'));
  const std::pair<Arguments, std::string> cases[] = {
      {{"count", "s"}, "2\n"},
      {{"--json", "count", "s"}, "{\"count\":2}\n"},
      {{"count", "--prefix", "a", "s"}, "1\n"},
      {{"scan-all", "--keys", "s"}, "a\nc\n"},
      {{"dump", "s"}, "a\t1\nc\t3\n"},
      {{"--yes", "--json", "remove", "--all", "s"}, "{\"removed\":2}\n"}};
  for (const auto& [arguments, printed] : cases) {
    const Outcome walked = loch(arguments);
    EXPECT_EQ(walked.exit_code, 1) << testing::PrintToString(arguments);
    EXPECT_NE(walked.err.find("1 damaged item left out"), std::string::npos) << walked.err;
    EXPECT_EQ(sorted_lines(walked.out), sorted_lines(printed)) << testing::PrintToString(arguments);
  }
}

// Receive: a store whose index was cut off. Expect: no command takes it for an empty one.
TEST_F(AllItems, ACutOffIndexIsNoEmptyStore) {
  ok({"load", "s"}, {.input = "a\t1\nb\t2\nc\t3\n"});
  std::filesystem::resize_file(folder() + "/loch.s/region.1", 0);
  const Outcome scanned = loch({"scan-all", "s"});
  EXPECT_EQ(scanned.exit_code, 1) << scanned.out;
  EXPECT_NE(scanned.err.find("3 damaged items left out"), std::string::npos) << scanned.err;
  for (const char* command : {"count", "check", "dump"})
    EXPECT_EQ(loch({command, "s"}).exit_code, 1) << command;
  EXPECT_EQ(loch({"get", "s", "a"}).exit_code, 1);
}

TEST_F(AllItems, DumpsGoWhereALinkLeadsAndLeaveIt) {
  ok({"load", "s"}, {.input = "a\t1\n"});
  std::filesystem::create_symlink("target.tsv", file_path("link.tsv"));
  for (int round = 0; round < 2; ++round) {
    ok({"dump", "s", file_path("link.tsv")});
    EXPECT_EQ(read_file(file_path("target.tsv")), "a\t1\n");
    EXPECT_TRUE(std::filesystem::is_symlink(file_path("link.tsv")));
  }
}

// Receive: names of what is open: a pipe, and a file that has something in it. Expect: the dump goes there,
// after what is there.
TEST_F(AllItems, DumpsGoIntoWhatIsOpen) {
  ok({"load", "s"}, {.input = "a\t1\n"});
  const std::string file = file_path("all.tsv");
  const auto run_script = [&](const char* shell, const std::string& script) {
    const Outcome outcome = run({"-c", script, loch_program(), folder(), file}, {.program = shell});
    EXPECT_EQ(outcome.exit_code, 0) << script << outcome.err;
    return outcome.out;
  };
  const std::string dump = R"("$0" --directory "$1" dump s )";
  for (const char* open : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    EXPECT_EQ(run_script("/bin/sh", dump + open + " | cat"), "a\t1\n") << open;
    write_file("all.tsv", "before\n");
    run_script("/bin/sh", dump + open + R"( >> "$2")");
    EXPECT_EQ(read_file(file), "before\na\t1\n") << open;
  }
  run_script("/bin/sh", R"(exec >> "$2"; )" + dump + "/proc/$$/fd/1; true");
  EXPECT_EQ(read_file(file), "before\na\t1\na\t1\n");
  run_script("/bin/bash", dump + R"(>(cat > "$2"))");
  EXPECT_EQ(read_file(file), "a\t1\n");
}

// Receive: names of descriptors that were not given to it, some of which are the store's own files. Expect:
// none is written to.
TEST_F(AllItems, NoDumpGoesIntoTheStoresOwnFiles) {
  ok({"load", "s"}, {.input = "a\t1\n"});
  const std::string script =
      R"(exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec "$0" --directory "$1" dump s "/dev/fd/$2")";
  for (int number = 3; number <= 9; ++number) {
    const Outcome outcome =
        run({"-c", script, loch_program(), folder(), std::to_string(number)}, {.program = "/bin/sh"});
    EXPECT_EQ(outcome.exit_code, 3) << number;
    EXPECT_NE(outcome.err.find("Bad file descriptor"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(json({"check", "s"})["sound"], true);
  EXPECT_EQ(ok({"dump", "s"}), "a\t1\n");
}

// Receive: the file that a killed dump left, of a process of the same number, as in a container. Expect: it
// is in nobody's way.
TEST_F(AllItems, ADumpPassesByWhatAKilledOneLeft) {
  ok({"load", "s"}, {.input = "a\t1\n"});
  const std::string path = file_path("dump.tsv");
  const Outcome outcome = run(
      {"-c", R"(touch "$2.$$.part"; exec "$0" --directory "$1" dump s "$2")", loch_program(), folder(), path},
      {.program = "/bin/sh"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(read_file(path), "a\t1\n");
}

TEST_F(AllItems, TimesToLiveAreDumpedAndLoaded) {
  ok({"load", "s"}, {.input = "a\t1\t3600000\nb\t2\n"});
  ok({"load", "t"}, {.input = ok({"dump", "s"})});
  EXPECT_GT(json({"get", "t", "a"})["ttl_ms"], 3'000'000);
  EXPECT_FALSE(json({"get", "t", "b"}).contains("ttl_ms"));
  ok({"load", "--ttl", "1h", "u"}, {.input = "a\t1\nb\t2\t7200000\n"});
  EXPECT_LE(json({"get", "u", "a"})["ttl_ms"], 3'600'000);
  EXPECT_GT(json({"get", "u", "b"})["ttl_ms"], 3'600'000);
}

TEST_F(AllItems, LoadStopsAtABadLineAndNamesIt) {
  const std::string path = write_file("bad.tsv", "a\t1\nb\t2\nno tab\nc\t3\n");
  const Outcome outcome = loch({"load", "s", path});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find(path + ", line 3: no tab"), std::string::npos) << outcome.err;
  EXPECT_EQ(sorted_lines(ok({"scan-all", "s"})), (Lines{"a\t1", "b\t2"}));
}

TEST_F(AllItems, LoadGoesOnWhenToldTo) {
  const std::string lines =
      "a\t1\nno tab\n\t empty key\n" + std::string(5000, 'k') + "\tlong key\nb\\q\t2\nc\t3\n";
  const Outcome outcome = loch({"load", "--continue-on-error", "s"}, {.input = lines});
  EXPECT_EQ(outcome.exit_code, 1);
  for (const char* line : {"line 2: ", "line 3: ", "line 4: ", "line 5: "}) {
    EXPECT_NE(outcome.err.find(line), std::string::npos) << line << outcome.err;
  }
  EXPECT_EQ(outcome.err.find("line 6: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("2 items loaded, 4 failed"), std::string::npos) << outcome.err;
  EXPECT_EQ(sorted_lines(ok({"scan-all", "s"})), (Lines{"a\t1", "c\t3"}));
}

TEST_F(AllItems, ManyErrorsAreCountedNotListed) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "bad\n";
  const Outcome outcome = loch({"load", "--continue-on-error", "s"}, {.input = lines});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_LT(sorted_lines(outcome.err).size(), 110U);
  EXPECT_NE(outcome.err.find("1,000 failed"), std::string::npos) << outcome.err;
}

TEST_F(AllItems, LoadNeedsItsFile) {
  const Outcome outcome = loch({"load", "s", file_path("missing.tsv")});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.err.find("missing.tsv: No such file or directory\n"), std::string::npos) << outcome.err;
  EXPECT_EQ(ok({"ls"}), "");  // and no store is made for nothing
  EXPECT_EQ(loch({"load", "--no-create", "s"}, {.input = "a\t1\n"}).exit_code, 3);
}

TEST_F(AllItems, NoStoreIsMadeForWhatCanNotBeRead) {
  const Outcome of_folder = loch({"load", "new", folder()});
  EXPECT_EQ(of_folder.exit_code, 3);
  EXPECT_NE(of_folder.err.find(folder() + ": Is a directory"), std::string::npos) << of_folder.err;
  const Outcome garbage = loch({"load", "new"}, {.input = "\ngarbage\na\t1\n"});
  EXPECT_EQ(garbage.exit_code, 1);
  EXPECT_NE(garbage.err.find("standard input, line 2: no tab"), std::string::npos) << garbage.err;
  EXPECT_NE(garbage.err.find("0 items loaded, 1 failed, 2 lines read"), std::string::npos) << garbage.err;
  EXPECT_EQ(ok({"ls"}), "");
  ok({"load", "empty"}, {.input = ""});  // as a dump of an empty store is
  EXPECT_EQ(ok({"ls"}), "empty\n");
}

// Receive: lines that can not be read, and that are gone past, before one that can, and before none. Expect:
// a store for that one alone.
TEST_F(AllItems, ALoadThatGoesOnMakesNoStoreForNothing) {
  const Outcome nothing = loch({"load", "--continue-on-error", "new"}, {.input = "garbage\n\nmore\n"});
  EXPECT_EQ(nothing.exit_code, 1);
  for (const char* said : {"line 1: no tab", "line 3: no tab", "0 items loaded, 2 failed, 3 lines read"})
    EXPECT_NE(nothing.err.find(said), std::string::npos) << nothing.err;
  EXPECT_EQ(ok({"ls"}), "");
  const Outcome something = loch({"load", "--continue-on-error", "new"}, {.input = "garbage\na\t1\n"});
  EXPECT_EQ(something.exit_code, 1);
  EXPECT_NE(something.err.find("1 item loaded, 1 failed, 2 lines read"), std::string::npos) << something.err;
  EXPECT_EQ(ok({"scan-all", "new"}), "a\t1\n");
}

TEST_F(AllItems, AnEmptyFileNameIsUsage) {
  ok({"put", "s", "k", "v"});
  for (const char* command : {"load", "dump"}) {
    const Outcome outcome = loch({command, "s", ""});
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_NE(outcome.err.find("FILE: the name is empty"), std::string::npos) << outcome.err;
  }
}

// Receive: a batch of which many lines find no room. Expect: the first alone is named, and the others
// counted.
TEST_F(AllItems, OfABatchThatEndsALoadTheFirstLineSpeaks) {
  ok({"create", "s", "--max-bytes", "32M"});
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += fmt::format("key{}\t{}\n", i, std::string(20'000, 'x'));
  const Outcome outcome = loch({"load", "s"}, {.input = lines});
  EXPECT_EQ(outcome.exit_code, 1);
  const auto named = outcome.err.find("standard input, line ");
  ASSERT_NE(named, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("standard input, line ", named + 1), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("could not be stored"), std::string::npos) << outcome.err;
}

// Receive: a load that goes on after errors, into a store that may only be read, and into one that is full.
// Expect: it ends at the first batch of the one, and soon after the other has no room, and says where.
TEST_F(AllItems, ALoadThatGoesOnEndsWhereNothingCanBeStored) {
  ok({"create", "s", "--max-bytes", "32M"});
  const std::string file = write_file("in.tsv", numbered(2'000));  // of which whole batches are read
  const Outcome refused = loch({"--read-only", "load", "--continue-on-error", "s", file});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.err.find(", line 2: "), std::string::npos) << refused.err;
  for (const char* said : {", line 1: this client may only read", "the load ends at line 256",
                           "0 items loaded, 256 failed, 256 lines read"})
    EXPECT_NE(refused.err.find(said), std::string::npos) << refused.err;
  std::string lines;
  for (int i = 0; i < 3'000; ++i) lines += fmt::format("key{}\t{}\n", i, std::string(20'000, 'x'));
  write_file("in.tsv", lines);
  const Outcome full = loch({"--json", "load", "--continue-on-error", "s", file});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_NE(full.err.find("no_space"), std::string::npos) << full.err;
  EXPECT_NE(full.err.find("the load ends at line "), std::string::npos) << full.err;
  const auto summary = nlohmann::json::parse(full.out);
  EXPECT_GT(summary["loaded"], 0);
  EXPECT_GE(summary["failed"], 256);
  EXPECT_LT(summary["failed"], 1'000) << summary;
  EXPECT_LT(summary["lines"], 2'500) << summary;
}

// Receive: one value that finds no room, among others that do. Expect: the load goes on after it.
TEST_F(AllItems, ALoadGoesOnAfterAValueThatIsTooLargeForTheStore) {
  ok({"create", "s", "--max-bytes", "32M"});
  const std::string lines = "a\t1\nlarge\t" + std::string(40 << 20, 'x') + "\nb\t2\n";
  const Outcome outcome = loch({"load", "--continue-on-error", "s"}, {.input = lines});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("2 items loaded, 1 failed, 3 lines read"), std::string::npos) << outcome.err;
  EXPECT_EQ(sorted_lines(ok({"scan-all", "s"})), (Lines{"a\t1", "b\t2"}));
}

TEST_F(AllItems, AFullStoreFailsClearlyAndStaysUsable) {
  ok({"create", "s", "--max-bytes", "32M"});
  std::string lines;
  const std::string value(100'000, 'x');
  for (int i = 0; i < 500; ++i) lines += fmt::format("key{}\t{}\n", i, value);
  const Outcome outcome = loch({"load", "s"}, {.input = lines});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("no_space"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(", line "), std::string::npos) << outcome.err;
  const Outcome again = loch({"--json", "load", "s"}, {.input = lines});
  const auto first = nlohmann::json::parse(again.err.substr(0, again.err.find('\n')));
  EXPECT_EQ(first["error"]["code"], "no_space") << first;
  EXPECT_EQ(loch({"put", "s", "one more", "-"}, {.input = std::string(20 << 20, 'y')}).exit_code, 1);
  EXPECT_EQ(ok({"get", "s", "key0"}), value);
  ok({"remove", "s", "key0"});
  EXPECT_EQ(loch({"get", "s", "key0"}).exit_code, 4);
}

TEST_F(AllItems, AReaderThatLeavesEndsAScanQuietly) {
  ok({"load", "s"}, {.input = numbered(20'000)});
  Running scan(in_folder({"scan-all", "s"}), false);
  ASSERT_TRUE(scan.await("key"));
  scan.close_output();
  EXPECT_EQ(scan.wait(), 0);
}

TEST_F(AllItems, AnUnwritableOutputIsAFailure) {
  ok({"load", "s"}, {.input = numbered(20'000)});
  EXPECT_EQ(loch({"scan-all", "s"}, {.output_path = "/dev/full"}).exit_code, 1);
  EXPECT_EQ(loch({"dump", "s"}, {.output_path = "/dev/full"}).exit_code, 1);
  EXPECT_EQ(loch({"dump", "s", "/dev/full"}).exit_code, 1);
  EXPECT_EQ(loch({"dump", "s", "/dev/null"}).exit_code, 0);
}

TEST_F(AllItems, ADumpThatCanNotOpenItsFileSaysSo) {
  ok({"load", "s"}, {.input = "a\t1\n"});
  for (const std::string& path : {file_path("no/such/folder.tsv"), folder()}) {
    const Outcome outcome = loch({"dump", "s", path});
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_NE(outcome.err.find(" " + path + ": "), std::string::npos) << outcome.err;
  }
}

TEST_F(AllItems, AFailedDumpLeavesTheOldFile) {
  ok({"load", "s"}, {.input = numbered(20'000)});
  const std::string path = write_file("dump.tsv", "old");
  const Outcome outcome =
      run({"-c", R"(ulimit -f 1; exec "$0" --directory "$1" dump s "$2")", loch_program(), folder(), path},
          {.program = "/bin/sh"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("cannot write " + path), std::string::npos) << outcome.err;
  EXPECT_EQ(read_file(path), "old");
  const std::filesystem::directory_iterator beside(std::filesystem::path(path).parent_path());
  EXPECT_EQ(std::distance(begin(beside), end(beside)), 1);
}

// Receive: a file of another group, where this process may give it one, which that group may read and write.
// Expect: the new one is that group's, too.
TEST_F(AllItems, ADumpHasTheModeAndTheGroupOfTheFileThatItReplaces) {
  ok({"put", "s", "key", "value"});
  const std::string path = write_file("dump.tsv", "old");
  constexpr gid_t other_group = 4'321;
  [[maybe_unused]] const int given = ::chown(path.c_str(), static_cast<uid_t>(-1), other_group);
  ASSERT_EQ(::chmod(path.c_str(), 0664), 0);
  const auto status_of = [&] {
    struct stat status{};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status;
  };
  const struct stat before = status_of();
  ok({"dump", "s", path});
  EXPECT_EQ(status_of().st_gid, before.st_gid);
  EXPECT_EQ(status_of().st_mode, before.st_mode);
  EXPECT_EQ(read_file(path), "key\tvalue\n");
}

// Receive: a signal in the midst of a dump. Expect: the old file is whole, and nothing of the new one stays.
TEST_F(AllItems, AnInterruptedDumpLeavesTheOldFile) {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += fmt::format("key{}\t{}\n", i, std::string(100'000, 'v'));
  ok({"load", "s"}, {.input = lines});
  const std::string path = write_file("dump.tsv", "old");
  const auto written_bytes = [&] {  // so far, of the new one
    std::uintmax_t bytes = 0;
    for (const auto& each : std::filesystem::directory_iterator(std::filesystem::path(path).parent_path()))
      if (each.path().extension() == ".part") bytes = each.file_size();
    return bytes;
  };
  Running dump(in_folder({"dump", "s", path}), false);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (written_bytes() == 0 && std::chrono::steady_clock::now() < deadline) {
  }
  dump.send_signal(SIGINT);
  EXPECT_EQ(dump.wait(), 128 + SIGINT);
  EXPECT_EQ(read_file(path), "old");
  const std::filesystem::directory_iterator beside(std::filesystem::path(path).parent_path());
  EXPECT_EQ(std::distance(begin(beside), end(beside)), 1);
}

// Receive: one signal while the reader of the output lets it wait. Expect: that ends it, and no word about
// the output.
TEST_F(AllItems, OneSignalEndsWhatWaitsForItsReader) {
  ok({"load", "s"}, {.input = numbered(20'000)});
  const std::string errors = file_path("errors");
  const Arguments waiting[] = {{"scan-all", "s"}, {"dump", "s"}, {"stat", "--watch", "1ms", "s"}};
  for (const Arguments& arguments : waiting) {
    for (const int number : {SIGINT, SIGTERM}) {
      Arguments words{"-c", R"(exec "$@" 2> "$0")", errors, loch_program()};
      std::ranges::copy(in_folder(arguments), std::back_inserter(words));
      Running waits(words, false, "/bin/sh");
      ASSERT_TRUE(waits.await_full()) << arguments[0];
      waits.send_signal(number);
      EXPECT_EQ(waits.wait_unread(), 128 + number) << arguments[0];
      EXPECT_EQ(read_file(errors), "") << arguments[0];
    }
  }
}

TEST_F(AllItems, LoadStoresLinesAsTheyComeAndEndsBySignal) {
  ok({"create", "s"});
  Running load(in_folder({"load", "s"}), false);
  load.type("a\t1\nb\t2\n");
  ASSERT_TRUE(await_count("s", "2"));
  load.send_signal(SIGINT);
  EXPECT_EQ(load.wait(), 128 + SIGINT);
  EXPECT_EQ(ok({"count", "s"}), "2\n");
}

// Receive: a store of whose files one is truncated while a load has it open. Expect: the load ends with a
// message and no signal, and so does what is asked of the store after that.
TEST_F(AllItems, ATruncatedStoreIsAClearError) {
  for (const char* region : {"region.0", "region.1", "region.2"}) {
    const auto load = run_all_said({"load", "s"});
    load->type("a\t1\n");
    ASSERT_TRUE(await_count("s", "1"));
    const std::string file = fmt::format("{}/loch.s/{}", folder(), region);
    std::filesystem::resize_file(file, 0);
    load->type("b\t2\n");
    load->close_input();
    EXPECT_EQ(load->wait(), 1) << load->output();
    EXPECT_NE(load->output().find(file + " is shorter than what was mapped"), std::string::npos)
        << load->output();
    const Outcome after = loch({"get", "s", "a"});
    EXPECT_TRUE(after.exit_code == 1 || after.exit_code == 3) << after.exit_code << after.err;
    EXPECT_NE(after.err.find("corrupt"), std::string::npos) << after.err;
    ok({"--yes", "rm", "s"});
  }
}

#ifdef LOCH_FAULT_POINTS
// Receive: a signal in the midst of the second 64. Expect: these are removed still, and counted.
TEST_F(AllItems, AnInterruptedRemovalSaysHowManyItRemoved) {
  ok({"load", "s"}, {.input = numbered(500)});
  Running remove({"LOCH_FAULT=remove.after_unlink:stop:100", loch_program(), "--directory", folder(),
                  "--json", "remove", "--all", "--yes", "s"},
                 false, "/usr/bin/env");
  ASSERT_TRUE(await_count("s", "400"));
  remove.send_signal(SIGINT);
  remove.send_signal(SIGCONT);
  EXPECT_EQ(remove.wait(), 128 + SIGINT);
  EXPECT_EQ(remove.output(), "{\"removed\":128}\n");
  EXPECT_EQ(ok({"count", "s"}), "372\n");
}

// Receive: a signal of each kind before the first could be looked at. Expect: the second ends it where it is.
TEST_F(AllItems, ASecondSignalOfAnotherKindEndsARemovalAtOnce) {
  ok({"load", "s"}, {.input = numbered(500)});
  Running remove({"LOCH_FAULT=remove.after_unlink:stop:100", loch_program(), "--directory", folder(),
                  "--json", "remove", "--all", "--yes", "s"},
                 false, "/usr/bin/env");
  ASSERT_TRUE(await_count("s", "400"));
  for (const int number : {SIGINT, SIGTERM, SIGCONT}) remove.send_signal(number);
  EXPECT_EQ(remove.wait(), 128 + SIGTERM);
  EXPECT_EQ(remove.output(), "");
}
#endif

TEST_F(AllItems, RemoveAllNeedsYesWithoutATerminal) {
  ok({"load", "s"}, {.input = numbered(500)});
  EXPECT_EQ(loch({"remove", "--all", "s"}).exit_code, 2);
  EXPECT_EQ(ok({"count", "s"}), "500\n");
  EXPECT_EQ(json({"remove", "--all", "--yes", "s"})["removed"], 500);
  EXPECT_EQ(ok({"count", "s"}), "0\n");
  EXPECT_EQ(ok({"ls"}), "s\n");
}

TEST_F(AllItems, RemoveTakesAPrefix) {
  ok({"load", "s"}, {.input = numbered(50) + "other\tv\n"});
  EXPECT_EQ(loch({"remove", "--prefix", "key", "s"}).exit_code, 2);  // it asks first
  EXPECT_EQ(ok({"count", "s"}), "51\n");
  EXPECT_EQ(json({"remove", "--prefix", "key4", "--yes", "s"})["removed"], 11);
  EXPECT_EQ(loch({"--yes", "remove", "--prefix", "key", "s"}).err, "39 items removed\n");
  EXPECT_EQ(ok({"scan-all", "s"}), "other\tv\n");
  for (const Arguments& too_many : {Arguments{"k"}, Arguments{"--all"}, Arguments{"--hex-key"}}) {
    Arguments arguments{"--yes", "remove", "s", "--prefix", "other"};
    arguments.insert(arguments.end(), too_many.begin(), too_many.end());
    EXPECT_EQ(loch(arguments).exit_code, 2) << too_many.front();
  }
  EXPECT_EQ(ok({"count", "s"}), "1\n");
}

}  // namespace
}  // namespace loch::cli
