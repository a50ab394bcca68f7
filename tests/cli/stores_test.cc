// loch create, ls, stat, inspect, rm, gc, check: whole stores.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/layout.h"
#include "tests/cli/run.h"

namespace loch::cli {
namespace {

using Stores = CliTest;

TEST_F(Stores, CreateKeepsItsGeometry) {
  ok({"create", "s", "--candidates", "2", "--max-bytes", "64M", "--expiry", "250ms"});
  const auto geometry = json({"inspect", "s"});
  EXPECT_EQ(geometry["name"], "s");
  EXPECT_TRUE(std::string(geometry["location"]).starts_with(folder())) << geometry;
  EXPECT_EQ(geometry["candidates"], 2);
  EXPECT_EQ(geometry["max_bytes"], 64 << 20);
  EXPECT_EQ(geometry["expiry_ms"], 250);
  EXPECT_FALSE(geometry.contains("totals"));
  EXPECT_NE(ok({"inspect", "s"}).find("2 slots a key"), std::string::npos);
}

// Receive: figures that are rounded for people. Expect: what inspect says, in text and in JSON, makes the
// same store again.
TEST_F(Stores, WhatInspectSaysMakesTheSameStoreAgain) {
  ok({"create", "s", "--candidates", "2", "--max-bytes", "300000001", "--expiry", "12345ms"});
  const auto inspected = json({"inspect", "s"});
  const std::string text = ok({"inspect", "s"});
  const auto exactly = [&](std::string_view row) {  // what stands in parentheses, without its space
    const std::size_t begin = text.find('(', text.find(fmt::format("\n{} ", row))) + 1;
    std::string figure = text.substr(begin, text.find(')', begin) - begin);
    std::erase(figure, ' ');
    return figure;
  };
  EXPECT_EQ(exactly("limit"), "300000001B") << text;
  EXPECT_EQ(exactly("expiry"), "12345ms") << text;
  ok({"create", "t", "--candidates", "2", "--max-bytes", exactly("limit"), "--expiry", exactly("expiry")});
  ok({"create", "u", "--candidates", inspected["candidates"].dump(), "--max-bytes",
      inspected["max_bytes"].dump(), "--expiry", inspected["expiry_ms"].dump() + "ms"});
  for (const char* store : {"t", "u"}) {
    const auto again = json({"inspect", store});
    for (const char* field : {"candidates", "max_bytes", "expiry_ms"})
      EXPECT_EQ(again[field], inspected[field]) << store << " " << field;
  }
}

TEST_F(Stores, CreateRefusesWhatExistsAndWhatIsAbsurd) {
  ok({"create", "s"});
  const Outcome again = loch({"create", "s"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_EQ(again.err, "loch: create: cannot create store 's': " + folder() + "/loch.s is there already\n");
  EXPECT_EQ(loch({"create", "t", "--candidates", "9"}).exit_code, 2);
  EXPECT_EQ(loch({"create", "t", "--candidates", "-1"}).exit_code, 2);
  EXPECT_EQ(loch({"create", "t", "--expiry", "1d"}).exit_code, 2);
  EXPECT_EQ(loch({"create", "t", "--max-bytes", "1X"}).exit_code, 2);
  EXPECT_EQ(loch({"create", "t", "--mode", "9"}).exit_code, 2);
  EXPECT_EQ(loch({"create", "t", "--mode", "640"}).exit_code, 2)
      << "who only reads the files has no use of them";
  EXPECT_NE(loch({"create", "t", "--group", "no-such-group"}).exit_code, 0);
  EXPECT_EQ(ok({"ls"}), "s\n");
}

TEST_F(Stores, CreateSaysWhichOptionIsWrong) {
  const std::pair<Arguments, const char*> cases[] = {{{"--max-bytes", "1M"}, "': max_bytes is at least "},
                                                     {{"--candidates", "9"}, "': candidates is 2 to 4"},
                                                     {{"--expiry", "1d"}, "': expiry is 50 ms to 60 s"},
                                                     {{"--mode", "640"}, "': file_mode 640 is no mode"}};
  for (const auto& [option, said] : cases) {
    Arguments words{"create", "s"};
    words.insert(words.end(), option.begin(), option.end());
    const Outcome outcome = loch(words);
    EXPECT_EQ(outcome.exit_code, 2) << said;
    EXPECT_NE(outcome.err.find(said), std::string::npos) << outcome.err;
  }
}

TEST_F(Stores, JsonOfCreateAndRmNamesTheStore) {
  EXPECT_EQ(json({"create", "s"}), (nlohmann::json{{"name", "s"}, {"location", folder() + "/loch.s"}}));
  EXPECT_EQ(json({"rm", "--yes", "shm://s"}), (nlohmann::json{{"name", "s"}, {"destroyed", true}}));
  const Outcome gone = loch({"--json", "rm", "--yes", "s"});
  EXPECT_EQ(gone.exit_code, 4);
  EXPECT_EQ(nlohmann::json::parse(gone.err)["error"]["code"], "not_found") << gone.err;
}

TEST_F(Stores, CreateGivesTheFilesTheirMode) {
  ok({"create", "s", "--mode", "660"});
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder())) {
    if (!entry.is_regular_file()) continue;
    struct stat status{};
    ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0660U) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 0U);
}

TEST_F(Stores, WhoMayNotOpenTheFilesMayNotUseTheStore) {
  ok({"put", "s", "k", "v"});
  // Root may open anything, so root hands the store to somebody else's eyes; others take their own right
  // away.
  std::filesystem::permissions(folder(), std::filesystem::perms(0755));
  if (::geteuid() != 0) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder())) {
      if (entry.is_regular_file()) std::filesystem::permissions(entry.path(), std::filesystem::perms::none);
    }
  }
  const Outcome outcome = loch({"get", "s", "k"}, {.unprivileged = true});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.err.find("Permission denied"), std::string::npos) << outcome.err;
}

// Receive: a store that another user made and opened to all, under the name that is put into. Expect: nothing
// is put there unless that is meant; whoever asks for it by name reads it.
TEST_F(Stores, WhatAnotherUserMadeIsNotPutIntoUnlessMeant) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  std::filesystem::permissions(folder(), std::filesystem::perms(01777));
  ok({"create", "s", "--mode", "666"}, {.unprivileged = true});
  for (const Arguments& arguments : {Arguments{"put", "s", "k", "v"}, Arguments{"load", "s"}}) {
    const Outcome refused = loch(arguments, {.input = "k\tv\n"});
    EXPECT_EQ(refused.exit_code, 3) << refused.err;
    EXPECT_NE(refused.err.find("was made by user"), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("(loch: --no-create)\n"), std::string::npos) << refused.err;
  }
  EXPECT_EQ(loch({"get", "s", "k"}).exit_code, 4);
  ok({"put", "--no-create", "s", "k", "v"});
  EXPECT_EQ(ok({"get", "s", "k"}), "v");
  ok({"put", "s", "k", "w"}, {.unprivileged = true});
  EXPECT_EQ(ok({"get", "s", "k"}), "w");
}

TEST_F(Stores, AStoreOfAnotherVersionCanNotBeOpened) {
  ok({"create", "s"});
  const std::uint32_t version = memory::format_version + 1;
  {
    std::fstream control(folder() + "/loch.s/region.0", std::ios::in | std::ios::out | std::ios::binary);
    control.seekp(offsetof(memory::Superblock, version));
    control.write(reinterpret_cast<const char*>(&version), sizeof version);
    ASSERT_TRUE(control.good());
  }
  for (const Arguments& arguments : {Arguments{"get", "s", "k"}, Arguments{"put", "s", "k", "v"},
                                     Arguments{"stat", "s"}, Arguments{"check", "s"}}) {
    const Outcome refused = loch(arguments);
    EXPECT_EQ(refused.exit_code, 3) << refused.err;
    EXPECT_NE(refused.err.find(fmt::format("has format {}", version)), std::string::npos) << refused.err;
  }
  const auto error = json({"ls", "-l"})[0]["error"];
  EXPECT_EQ(error["code"], "incompatible");
  EXPECT_NE(std::string(error["text"]).find(fmt::format("has format {}", version)), std::string::npos)
      << error;
  ok({"--yes", "rm", "s"});
  EXPECT_EQ(ok({"ls"}), "");
}

TEST_F(Stores, LsListsThem) {
  EXPECT_EQ(ok({"ls"}), "");
  EXPECT_EQ(json({"ls"}), nlohmann::json::array());
  ok({"create", "b"});
  ok({"create", "a"});
  EXPECT_EQ(ok({"ls"}), "a\nb\n");
  EXPECT_EQ(json({"ls"}), (nlohmann::json{"a", "b"}));
  const std::string details = ok({"ls", "--long"});
  EXPECT_NE(details.find("NAME"), std::string::npos);
  EXPECT_NE(details.find("\na  "), std::string::npos) << details;
  const auto list = json({"ls", "-l"});
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1]["name"], "b");
  EXPECT_TRUE(list[1].contains("data_bytes"));
}

TEST_F(Stores, AMissingDirectoryIsAClearError) {
  const std::string missing = folder() + "/missing";
  for (const char* command : {"ls", "create"}) {
    Arguments arguments{"--directory", missing, command};
    if (command == std::string_view("create")) arguments.emplace_back("s");
    const Outcome refused = run(arguments);
    EXPECT_EQ(refused.exit_code, 3) << command;
    EXPECT_NE(refused.err.find(missing), std::string::npos) << refused.err;
  }
  const Outcome put = run({"--directory", missing, "put", "s", "k", "v"});
  EXPECT_EQ(put.exit_code, 3);
  EXPECT_NE(put.err.find(missing), std::string::npos) << put.err;
}

TEST_F(Stores, TheDirectoryComesFromTheEnvironmentToo) {
  ok({"create", "s"});
  EXPECT_EQ(run({"ls"}, {.variables = {"LOCH_DIRECTORY=" + folder()}}).out, "s\n");
}

TEST_F(Stores, StatCountsWhatClientsDid) {
  ok({"put", "s", "k", "v"});
  ok({"get", "s", "k"});
  EXPECT_EQ(loch({"get", "s", "other"}).exit_code, 4);
  const auto stat = json({"stat", "s"});
  EXPECT_EQ(stat["totals"]["put_insert"], 1);
  EXPECT_EQ(stat["totals"]["get_hit"], 1);
  EXPECT_EQ(stat["totals"]["get_miss"], 1);
  const std::string text = ok({"stat", "s"});
  EXPECT_NE(text.find("put_insert"), std::string::npos) << text;
  EXPECT_NE(text.find("store "), std::string::npos) << text;
}

// Expect: the command that tells of the clients is none of them.
TEST_F(Stores, ClientsAreThoseOfOthers) {
  ok({"put", "s", "k", "v"});
  const auto expect_clients = [&](int count) {
    EXPECT_EQ(json({"stat", "s"})["clients"], count);
    EXPECT_EQ(json({"inspect", "s"})["clients"], count);
    EXPECT_EQ(json({"ls", "--long"})[0]["clients"], count);
    EXPECT_TRUE(ok({"ls", "--long"}).ends_with(fmt::format(" {}\n", count)));
    EXPECT_NE(ok({"stat", "s"}).find(fmt::format("clients     {}\n", count)), std::string::npos);
  };
  expect_clients(0);
  Running load(in_folder({"load", "s"}), false);
  load.type("other\tv\n");
  ASSERT_TRUE(await_count("s", "2"));
  expect_clients(1);
  load.close_input();
  EXPECT_EQ(load.wait(), 0);
}

TEST_F(Stores, StatWatches) {
  ok({"put", "s", "k", "v"});
  const std::string lines = ok({"--json", "stat", "--watch", "20ms", "--times", "3", "s"});
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  const std::string text = ok({"stat", "--watch", "0.02", "--times", "2", "s"});
  EXPECT_NE(text.find("/s\n"), std::string::npos) << text;  // rates in the second
  EXPECT_EQ(loch({"stat", "--watch", "0", "s"}).exit_code, 2);
  EXPECT_EQ(loch({"stat", "--times", "2", "s"}).exit_code, 2);
}

TEST_F(Stores, AWatchEndsWhenInterrupted) {
  ok({"create", "s"});
  Running watch(in_folder({"stat", "--watch", "600", "s"}), false);
  ASSERT_TRUE(watch.await("clients"));
  watch.send_signal(SIGINT);
  EXPECT_EQ(watch.wait(), 128 + SIGINT);
}

TEST_F(Stores, RmNeedsYesWithoutATerminal) {
  ok({"put", "s", "k", "v"});
  const Outcome refused = loch({"rm", "s"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--yes"), std::string::npos) << refused.err;
  EXPECT_EQ(ok({"get", "s", "k"}), "v");
  ok({"rm", "--yes", "s"});
  EXPECT_EQ(ok({"ls"}), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
  EXPECT_EQ(loch({"rm", "--yes", "s"}).exit_code, 4);
  EXPECT_EQ(loch({"--yes", "rm", "a/b"}).exit_code, 2);
}

// Receive: a store that all may use, in a sticky directory. Expect: its owner alone destroys it, and that is
// said.
TEST_F(Stores, RmOfAStoreOfAnotherSaysWhoMay) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  std::filesystem::permissions(folder(), std::filesystem::perms(01777));
  ok({"create", "s", "--mode", "666"});
  const Outcome outcome = loch({"--yes", "rm", "s"}, {.unprivileged = true});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("in a sticky one, as /dev/shm, its owner"), std::string::npos) << outcome.err;
  EXPECT_EQ(ok({"ls"}), "s\n");
}

TEST_F(Stores, ReadOnlyNeitherCreatesNorDestroys) {
  EXPECT_EQ(loch({"--read-only", "create", "s"}).exit_code, 1);
  EXPECT_EQ(ok({"ls"}), "");
  ok({"create", "s"});
  EXPECT_EQ(loch({"--read-only", "--yes", "rm", "s"}).exit_code, 1);
  EXPECT_EQ(ok({"ls"}), "s\n");
}

TEST_F(Stores, GcSaysWhatItGotBack) {
  ok({"put", "--ttl", "1ms", "s", "short", "v"});
  ok({"put", "s", "k", "v"});
  const auto collected = json({"gc", "s"});
  for (const char* field :
       {"sessions_reaped", "items_reclaimed", "items_expired", "blocks_freed", "slots_repaired"}) {
    EXPECT_TRUE(collected.contains(field)) << field;
  }
  EXPECT_NE(ok({"gc", "s"}).find("blocks freed"), std::string::npos);
  EXPECT_EQ(ok({"get", "s", "k"}), "v");
  EXPECT_EQ(loch({"gc", "none"}).exit_code, 3);
}

TEST_F(Stores, CheckFindsASoundStoreSound) {
  ok({"load", "s"}, {.input = "a\t1\nb\t2\n"});
  const auto report = json({"check", "s"});
  EXPECT_EQ(report["sound"], true);
  EXPECT_EQ(report["items"], 2);
  EXPECT_EQ(report["items_corrupt"], 0);
  EXPECT_NE(ok({"check", "s"}).find("items corrupt"), std::string::npos);
}

}  // namespace
}  // namespace loch::cli
