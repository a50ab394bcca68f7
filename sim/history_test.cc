#include "sim/history.h"

#include <fstream>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/testing/comes_true.h"
#include "lab/temp_folder.h"

namespace loch::sim {
namespace {

namespace fs = std::filesystem;

// A folder of this test's own, removed at its end.
class HistoryTest : public testing::Test {
 protected:
  static HistoryWriter open(const fs::path& path, std::uint64_t client) {
    auto writer = HistoryWriter::open(path, client);
    EXPECT_TRUE(writer.has_value()) << writer.error().detail;
    return *std::move(writer);
  }

  static std::vector<Operation> read(const fs::path& path) {
    auto operations = read_history(path);
    EXPECT_TRUE(operations.has_value()) << operations.error().detail;
    return operations.value_or(std::vector<Operation>{});
  }

  static void append(const fs::path& path, std::string_view text) {
    std::ofstream(path, std::ios::app | std::ios::binary) << text;
  }

  const lab::TempFolder temp_ = lab::TempFolder::make(fs::temp_directory_path()).value();
  const fs::path folder_ = temp_.path();
};

TEST_F(HistoryTest, EveryKindOfOperationIsReadAsItWasWritten) {
  std::vector<Operation> all = {
      {.client = 5,
       .key = "hot",
       .kind = Kind::get,
       .outcome = Outcome::ok,
       .found = 9,
       .invoked_ns = 10,
       .responded_ns = 11},
      {.client = 5,
       .key = "hot",
       .kind = Kind::get,
       .outcome = Outcome::not_found,
       .invoked_ns = 12,
       .responded_ns = 12},
      {.client = 5,
       .key = "a b%\n\xff",
       .kind = Kind::exists,
       .outcome = Outcome::ok,
       .invoked_ns = 13,
       .responded_ns = 14},
      {.client = 5,
       .key = "hot",
       .kind = Kind::put,
       .written = ~0ULL,
       .outcome = Outcome::ok,
       .invoked_ns = 15,
       .responded_ns = 16},
      {.client = 5,
       .key = "hot",
       .kind = Kind::insert,
       .written = 2,
       .outcome = Outcome::exists,
       .invoked_ns = 17,
       .responded_ns = 18},
      {.client = 5,
       .key = "hot",
       .kind = Kind::replace,
       .written = 3,
       .expected = 2,
       .outcome = Outcome::changed,
       .invoked_ns = 19,
       .responded_ns = 20},
      {.client = 5,
       .key = "hot",
       .kind = Kind::remove,
       .outcome = Outcome::failed,
       .invoked_ns = 21,
       .responded_ns = 22},
      {.client = 5, .key = "hot", .kind = Kind::expire, .expected = 2, .invoked_ns = 23},
  };
  for (std::size_t i = 0; i < kind_count; ++i) {
    const auto kind = static_cast<Kind>(i);
    all.push_back({.client = 5,
                   .key = "hot",
                   .kind = kind,
                   .written = writes(kind) ? 100 + i : no_value,
                   .expected = expects(kind) ? 200 + i : no_value,
                   .outcome = Outcome::ok,
                   .found = kind == Kind::get ? 300 : no_value,
                   .invoked_ns = 24 + i,
                   .responded_ns = 24 + i});
  }
  const fs::path path = folder_ / "h";
  HistoryWriter writer = open(path, 5);
  for (const Operation& o : all) {
    const auto sequence = writer.invoke(
        {.kind = o.kind, .key = o.key, .written = o.written, .expected = o.expected, .at_ns = o.invoked_ns});
    ASSERT_TRUE(sequence.has_value());
    if (o.outcome == Outcome::unknown) continue;
    ASSERT_TRUE(writer.respond(
        {.sequence = *sequence, .outcome = o.outcome, .found = o.found, .at_ns = o.responded_ns}));
  }
  EXPECT_EQ(read(path), all);
}

TEST_F(HistoryTest, TheFileIsWhatTheHeaderSays) {
  const fs::path path = folder_ / "h";
  HistoryWriter writer = open(path, 3);
  ASSERT_TRUE(
      writer.invoke({.kind = Kind::replace, .key = "hot 1", .written = 8, .expected = 7, .at_ns = 100}));
  ASSERT_TRUE(writer.respond({.sequence = 1, .outcome = Outcome::changed, .at_ns = 200}));
  ASSERT_TRUE(writer.invoke({.kind = Kind::get, .key = "hot 1", .at_ns = 300}));
  ASSERT_TRUE(writer.respond({.sequence = 2, .outcome = Outcome::ok, .found = 7, .at_ns = 400}));
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text,
            "> 1 3 100 replace hot%201 8 7\n"
            "< 1 3 200 changed\n"
            "> 2 3 300 get hot%201\n"
            "< 2 3 400 ok 7\n");
}

// Receive: a value with a time to live, whose writer is killed in the midst of the write, or sees its end.
// Expect: the history has its end, which is known in the second case alone.
TEST_F(HistoryTest, TheEndOfAValueIsThereBeforeItsWrite) {
  const fs::path path = folder_ / "h";
  HistoryWriter writer = open(path, 3);
  ASSERT_TRUE(writer.invoke({.kind = Kind::expire, .key = "k", .expected = 8, .at_ns = 500}));
  ASSERT_TRUE(writer.invoke({.kind = Kind::put, .key = "k", .written = 8, .at_ns = 100}));
  std::vector<Operation> operations = read(path);
  ASSERT_EQ(operations.size(), 2U);
  EXPECT_EQ(operations[0].invoked_ns, 500U);
  EXPECT_EQ(operations[0].outcome, Outcome::unknown);
  ASSERT_TRUE(writer.respond({.sequence = 2, .outcome = Outcome::ok, .at_ns = 200}));
  ASSERT_TRUE(writer.respond({.sequence = 1, .outcome = Outcome::ok, .at_ns = 600}));
  operations = read(path);
  ASSERT_EQ(operations.size(), 2U);
  EXPECT_EQ(operations[0].outcome, Outcome::ok);
  EXPECT_EQ(operations[0].responded_ns, 600U);
  EXPECT_EQ(operations[1].responded_ns, 200U);
}

TEST_F(HistoryTest, AnInvocationWithoutAResponseIsOfUnknownOutcome) {
  const auto operations = parse_history("> 1 3 100 put k 8\n", "text");
  ASSERT_TRUE(operations.has_value());
  ASSERT_EQ(operations->size(), 1U);
  EXPECT_EQ(operations->front().outcome, Outcome::unknown);
  EXPECT_EQ(operations->front().responded_ns, never_ns);
}

TEST_F(HistoryTest, AResponseOfUnknownOutcomeEndsNothing) {
  const auto operations = parse_history("> 1 3 100 put k 8\n< 1 3 200 unknown\n", "text");
  ASSERT_TRUE(operations.has_value());
  EXPECT_EQ(operations->front().responded_ns, never_ns);
}

TEST_F(HistoryTest, ATornLastLineIsLeftOut) {
  const std::string whole = "> 1 3 100 put k 8\n< 1 3 200 ok\n";
  const std::string last = "> 2 3 300 get k\n";
  for (std::size_t length = 0; length < last.size(); ++length) {
    const auto operations = parse_history(whole + last.substr(0, length), "text");
    ASSERT_TRUE(operations.has_value()) << operations.error().detail;
    EXPECT_EQ(operations->size(), 1U);
  }
}

TEST_F(HistoryTest, ATornResponseLeavesTheOperationOpen) {
  const auto operations = parse_history("> 1 3 100 get k\n< 1 3 200 ok 1", "text");
  ASSERT_TRUE(operations.has_value());
  EXPECT_EQ(operations->front().outcome, Outcome::unknown);
}

TEST_F(HistoryTest, AWriterThatGoesOnCutsTheTornLineOff) {
  const fs::path path = folder_ / "h";
  append(path, "> 1 3 100 put k 8\n< 1 3 2");
  {
    HistoryWriter writer = open(path, 3);  // numbers from 1 again
    ASSERT_TRUE(writer.invoke({.kind = Kind::get, .key = "k", .at_ns = 300}));
    ASSERT_TRUE(writer.respond({.sequence = 1, .outcome = Outcome::ok, .found = 8, .at_ns = 400}));
  }
  const std::vector<Operation> operations = read(path);
  ASSERT_EQ(operations.size(), 2U);
  EXPECT_EQ(operations[0].outcome, Outcome::unknown);
  EXPECT_EQ(operations[1].found, 8U);
}

TEST_F(HistoryTest, AFileThatIsOneTornLineBecomesEmpty) {
  const fs::path path = folder_ / "h";
  append(path, "> 1 3");
  open(path, 3);
  EXPECT_EQ(fs::file_size(path), 0U);
  EXPECT_TRUE(read(path).empty());
}

TEST_F(HistoryTest, BrokenLinesAreNamedByFileAndLine) {
  const std::vector<std::string> broken = {"nonsense",
                                           "> 1 3 100 get",
                                           "> 1 3 100 fetch k",
                                           "> 1 3 100 put k",
                                           "> 1 3 100 get k 8",
                                           "> x 3 100 get k",
                                           "> 1 3 -1 get k",
                                           "> 1 3 100 get %4",
                                           "> 1 3 100 get %zz",
                                           "< 7 3 100 ok",
                                           "> 1 3 100 replace k 2",
                                           "> 1 3 100 put k 2 3",
                                           "> 1  3 100 get k",
                                           "< 9 3 100 maybe",
                                           "",
                                           "> 1 3 100 put k 99999999999999999999"};
  for (const std::string& line : broken) {
    const auto operations = parse_history("# remark\n> 9 3 100 get k\n" + line + "\n", "some.file");
    ASSERT_FALSE(operations.has_value()) << line;
    EXPECT_EQ(operations.error().code, Errc::corrupt);
    EXPECT_NE(operations.error().detail.find("some.file:3:"), std::string::npos) << operations.error().detail;
  }
}

TEST_F(HistoryTest, ResponsesThatDoNotFitTheirInvocationAreRefused) {
  for (const std::string line :
       {"< 9 3 99 ok 4", "< 9 3 100 ok", "< 9 3 100 not_found 4", "< 9 4 100 ok 4"}) {
    EXPECT_FALSE(parse_history("> 9 3 100 get k\n" + line + "\n", "text").has_value()) << line;
  }
  EXPECT_FALSE(parse_history("> 9 3 100 get k\n< 9 3 100 ok 4\n< 9 3 100 ok 4\n", "text").has_value());
}

TEST_F(HistoryTest, FilesAreMergedInTheOrderOfInvocations) {
  append(folder_ / "a", "> 1 1 100 put k 8\n> 2 1 300 get k\n");
  append(folder_ / "b", "> 1 2 200 remove k\n");
  const std::vector<fs::path> paths = {folder_ / "a", folder_ / "b"};
  const auto operations = read_histories(paths);
  ASSERT_TRUE(operations.has_value());
  ASSERT_EQ(operations->size(), 3U);
  EXPECT_EQ((*operations)[0].kind, Kind::put);
  EXPECT_EQ((*operations)[1].kind, Kind::remove);
  EXPECT_EQ((*operations)[2].kind, Kind::get);
}

TEST_F(HistoryTest, AFileThatCanNotBeReadOrOpenedIsNamed) {
  const fs::path path = folder_ / "nowhere" / "h";
  const auto operations = read_history(path);
  ASSERT_FALSE(operations.has_value());
  EXPECT_EQ(operations.error().code, Errc::io);
  EXPECT_NE(operations.error().detail.find(path.string()), std::string::npos);
  EXPECT_FALSE(HistoryWriter::open(path, 1).has_value());
}

TEST_F(HistoryTest, AFullFileSystemIsAnError) {
  auto writer = HistoryWriter::open("/dev/full", 1);
  ASSERT_TRUE(writer.has_value()) << writer.error().detail;
  const auto sequence = writer->invoke({.kind = Kind::get, .key = "k", .at_ns = 1});
  ASSERT_FALSE(sequence.has_value());
  EXPECT_EQ(sequence.error().code, Errc::io);
}

TEST_F(HistoryTest, AKilledWriterLeavesAReadableHistory) {
  const fs::path path = folder_ / "h";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    HistoryWriter writer = open(path, 1);
    for (std::uint64_t i = 1;; ++i) {
      const auto sequence = writer.invoke({.kind = Kind::put, .key = "k", .written = i, .at_ns = i});
      if (!sequence || !writer.respond({.sequence = *sequence, .outcome = Outcome::ok, .at_ns = i})) _exit(1);
    }
  }
  std::error_code none;
  const bool has_written =
      base::fake::comes_true([&] { return fs::exists(path, none) && fs::file_size(path, none) >= 100'000; });
  ASSERT_EQ(kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(has_written);
  const std::vector<Operation> operations = read(path);
  ASSERT_GT(operations.size(), 1000U);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    ASSERT_EQ(operations[i].written, i + 1);
    if (i + 1 < operations.size()) {
      ASSERT_EQ(operations[i].outcome, Outcome::ok);
    }
  }
}

TEST_F(HistoryTest, DescriptionsAreOneLine) {
  EXPECT_EQ(describe({.client = 3,
                      .key = "k",
                      .kind = Kind::replace,
                      .written = 5,
                      .expected = 4,
                      .outcome = Outcome::changed}),
            "client 3: replace k 5 expecting 4 -> changed");
  EXPECT_EQ(describe({.client = 3, .key = "k", .outcome = Outcome::ok, .found = 4}),
            "client 3: get k -> ok 4");
  EXPECT_EQ(describe({.client = 3, .key = "k", .kind = Kind::put, .written = 5}),
            "client 3: put k 5 -> (unknown)");
  EXPECT_EQ(describe({.client = 3, .key = "k", .kind = Kind::expire, .expected = 5}),
            "client 3: expire k expecting 5 -> (unknown)");
}

}  // namespace
}  // namespace loch::sim
