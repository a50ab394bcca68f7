// What differs on a terminal: questions before what can not be undone, progress, a newline after a value.
#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "tests/cli/run.h"

namespace loch::cli {
namespace {

class OnTerminal : public CliTest {
 protected:
  // Runs a command that asks, answers it, and gives the exit code.
  int answer(const Arguments& arguments, std::string_view typed) const {
    Running loch(in_folder(arguments), true);
    EXPECT_TRUE(loch.await("[y/N] ")) << loch.output();
    loch.type(typed);
    return loch.wait();
  }

  // The lines that show how far a load is on a terminal of so many columns: of the first file that takes long
  // enough for any, as machines differ.
  std::vector<std::string> progress_lines(int columns) const {
    std::vector<std::string> shown;
    for (int count = 50'000; count < 4'000'000 && shown.empty(); count *= 2) {
      std::string lines;
      for (int i = 0; i < count; ++i) lines += fmt::format("key{}\tvalue\n", i);
      Arguments words{"-c", fmt::format(R"(stty cols {}; exec "$0" "$@")", columns), loch_program()};
      std::ranges::copy(in_folder({"load", "s", write_file("in.tsv", lines)}), std::back_inserter(words));
      Running load(words, true, "/bin/sh");
      EXPECT_EQ(load.wait(), 0) << load.output();
      const std::string& output = load.output();
      for (std::size_t at = output.find("\rload "); at != std::string::npos;
           at = output.find("\rload ", at + 1))
        shown.push_back(output.substr(at + 1, output.find("\x1b[K", at) - at - 1));
    }
    return shown;
  }
};

TEST_F(OnTerminal, RmAsksAndTakesNoForNo) {
  ok({"put", "s", "k", "v"});
  for (const char* no : {"n\n", "\n", "no\n", "yesterday\n", "\x04"})
    EXPECT_EQ(answer({"rm", "s"}, no), 1) << no;
  EXPECT_EQ(ok({"get", "s", "k"}), "v");
}

TEST_F(OnTerminal, RmDestroysAfterYes) {
  ok({"put", "s", "k", "v"});
  EXPECT_EQ(answer({"rm", "s"}, "y\n"), 0);
  EXPECT_EQ(ok({"ls"}), "");
  ok({"put", "s", "k", "v"});
  EXPECT_EQ(answer({"rm", "s"}, "YES\n"), 0);
  EXPECT_EQ(ok({"ls"}), "");
}

// Receive: what is no store of this host. Expect: that is said, and nothing asked.
TEST_F(OnTerminal, RmAsksAboutNothingThatItCanNotDestroy) {
  const struct {
    const char* store;
    int exit_code;
    const char* said;
  } cases[] = {{"nosuch", 4, "no such store 'nosuch'"},
               {"a/b", 2, "cannot destroy store 'a/b'"},
               {"tcp://127.0.0.1:1/s", 2, "is on another host"}};
  for (const auto& [store, exit_code, said] : cases) {
    Running rm(in_folder({"rm", store}), true);
    EXPECT_EQ(rm.wait(), exit_code);
    EXPECT_NE(rm.output().find(said), std::string::npos) << rm.output();
    EXPECT_EQ(rm.output().find("[y/N]"), std::string::npos) << rm.output();
  }
}

TEST_F(OnTerminal, TheQuestionNamesTheStore) {
  ok({"put", "sessions", "k", "v"});
  Running rm(in_folder({"rm", "sessions"}), true);
  ASSERT_TRUE(rm.await("[y/N] "));
  EXPECT_NE(rm.output().find("Destroy store 'sessions' in " + folder()), std::string::npos) << rm.output();
}

TEST_F(OnTerminal, YesAsksNothing) {
  ok({"put", "s", "k", "v"});
  Running rm(in_folder({"--yes", "rm", "s"}), true);
  EXPECT_EQ(rm.wait(), 0);
  EXPECT_EQ(rm.output().find("[y/N]"), std::string::npos);
}

TEST_F(OnTerminal, RemovingOneKeyAsksNothing) {
  ok({"put", "s", "k", "v"});
  Running remove(in_folder({"remove", "s", "k"}), true);
  EXPECT_EQ(remove.wait(), 0);
  EXPECT_EQ(remove.output(), "");
}

TEST_F(OnTerminal, RemovingAllKeysAsks) {
  ok({"load", "s"}, {.input = "a\t1\nb\t2\n"});
  EXPECT_EQ(answer({"remove", "--all", "s"}, "n\n"), 1);
  EXPECT_EQ(ok({"count", "s"}), "2\n");
  EXPECT_EQ(answer({"remove", "--all", "s"}, "y\n"), 0);
  EXPECT_EQ(ok({"count", "s"}), "0\n");
}

TEST_F(OnTerminal, RemovingByPrefixAsksHowMany) {
  ok({"load", "s"}, {.input = "a1\t1\na2\t2\nb\t3\n"});
  Running remove(in_folder({"remove", "--prefix", "a", "s"}), true);
  ASSERT_TRUE(remove.await("Remove the 2 items of store 's' whose keys begin with 'a'?")) << remove.output();
  remove.type("y\n");
  EXPECT_EQ(remove.wait(), 0);
  EXPECT_EQ(ok({"count", "s"}), "1\n");
}

TEST_F(OnTerminal, InterruptingTheQuestionChangesNothing) {
  ok({"put", "s", "k", "v"});
  EXPECT_NE(answer({"rm", "s"}, "\x03"), 0);
  EXPECT_EQ(ok({"get", "s", "k"}), "v");
}

TEST_F(OnTerminal, GetEndsTheLine) {
  ok({"put", "s", "k", "v"});
  Running get(in_folder({"get", "s", "k"}), true);
  EXPECT_EQ(get.wait(), 0);
  EXPECT_EQ(get.output(), "v\r\n");
}

TEST_F(OnTerminal, LoadShowsProgressAndTakesItAway) {
  ok({"create", "s"});
  Running load(in_folder({"load", "s"}), true);
  // A line at a time until it has gone on for long enough to be shown.
  bool shown = false;
  for (int i = 0; i < 1000 && !shown; ++i) {
    load.type(fmt::format("key{}\tvalue\n", i));
    shown = load.await(" items, ", std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(shown) << load.output();
  load.type("\x04");
  EXPECT_EQ(load.wait(), 0);
  const std::size_t erased = load.output().rfind("\r\x1b[K");
  ASSERT_NE(erased, std::string::npos);
  EXPECT_NE(load.output().find("items loaded", erased), std::string::npos);
}

// A bar as of a work whose end is known, and after it that it was taken away. Empty if there was none.
testing::AssertionResult shows_bar(const std::string& output, std::string_view title,
                                   std::string_view after) {
  const std::size_t bar = output.find(fmt::format("\r{} ", title));
  if (bar == std::string::npos) return testing::AssertionFailure() << "no bar: " << output;
  const std::string line = output.substr(bar, output.find("\x1b[K", bar) - bar);
  for (const char* part : {"% [", "] ", " left", " items, "}) {
    if (line.find(part) == std::string::npos)
      return testing::AssertionFailure() << "no '" << part << "' in: " << line;
  }
  const std::size_t erased = output.rfind("\r\x1b[K");
  if (erased == std::string::npos || erased < output.rfind("% ["))
    return testing::AssertionFailure() << "it stays: " << output;
  if (output.find(after, erased) == std::string::npos)
    return testing::AssertionFailure() << "no '" << after << "' after it: " << output;
  return testing::AssertionSuccess();
}

// Of a file that takes long enough for that: the first that does, as machines differ.
TEST_F(OnTerminal, LoadAndDumpOfAFileShowABarAndTakeItAway) {
  std::string lines;
  bool load_is_shown = false;
  bool dump_is_shown = false;
  for (int count = 50'000; count < 4'000'000 && !(load_is_shown && dump_is_shown); count *= 2) {
    lines.clear();
    for (int i = 0; i < count; ++i) lines += fmt::format("key{}\tvalue\n", i);
    const std::string file = write_file("in.tsv", lines);
    Running load(in_folder({"load", "s", file}), true);
    ASSERT_EQ(load.wait(), 0) << load.output();
    load_is_shown = load.output().find("\rload ") != std::string::npos;
    if (load_is_shown) EXPECT_TRUE(shows_bar(load.output(), "load", " items loaded"));
    Running dump(in_folder({"dump", "s", file_path("out.tsv")}), true);
    ASSERT_EQ(dump.wait(), 0) << dump.output();
    dump_is_shown = dump.output().find("\rdump ") != std::string::npos;
    if (dump_is_shown) EXPECT_TRUE(shows_bar(dump.output(), "dump", " items, "));
  }
  EXPECT_TRUE(load_is_shown);
  EXPECT_TRUE(dump_is_shown);
}

// Receive: a terminal that is too narrow for the bar, and one that is too narrow for what is beside it.
// Expect: the bar is left out, and the rest is cut, so that no line wraps.
TEST_F(OnTerminal, ProgressIsNoWiderThanTheTerminal) {
  const auto without_bar = progress_lines(50);
  EXPECT_FALSE(without_bar.empty());
  for (const std::string& line : without_bar) {
    EXPECT_LT(line.size(), 50U) << line;
    EXPECT_EQ(line.find('['), std::string::npos) << line;
    EXPECT_NE(line.find(" items, "), std::string::npos) << line;
  }
  const auto cut = progress_lines(20);
  EXPECT_FALSE(cut.empty());
  for (const std::string& line : cut) EXPECT_EQ(line.size(), 19U) << line;
}

// The items themselves show how far it is.
TEST_F(OnTerminal, DumpToTheTerminalShowsNoBar) {
  std::string lines;
  for (int i = 0; i < 50'000; ++i) lines += fmt::format("key{}\tvalue\n", i);
  ok({"load", "s", write_file("in.tsv", lines)});
  Running dump(in_folder({"dump", "s"}), true);
  EXPECT_EQ(dump.wait(), 0);
  EXPECT_NE(dump.output().find("key49999\tvalue\r\n"), std::string::npos);
  EXPECT_EQ(dump.output().find("\rdump"), std::string::npos);
}

TEST_F(OnTerminal, QuietShowsNoProgress) {
  ok({"create", "s"});
  Running load(in_folder({"--quiet", "load", "s", write_file("in.tsv", "a\t1\n")}), true);
  EXPECT_EQ(load.wait(), 0);
  EXPECT_EQ(load.output(), "");
}

}  // namespace
}  // namespace loch::cli
