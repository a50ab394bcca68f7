// Folders of stores: what is one, whose files are reached when one is replaced, and links in them.
#include "fabric/shm/folder.h"

#include <array>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <vector>

#include "fabric/shm/testing/shm_test.h"

namespace loch::fabric {
namespace {

using shm::fake::mark;
using shm::fake::region_bytes;
using shm::fake::ShmTest;

TEST_F(ShmTest, ListTellsTheStoresAlone) {
  EXPECT_TRUE(shm::list(access_)->empty());
  for (const char* store : {"b", "a", "c.d"}) ASSERT_TRUE(shm::create(store, access_, plan()).has_value());
  std::filesystem::create_directory(access_.directory + "/loch.empty-folder");
  std::filesystem::create_directory(access_.directory + "/.loch.private.123456");
  std::filesystem::create_directory(access_.directory + "/other");
  // A name that is none may be anything in a shell.
  for (const char* no_store : {"loch.$(touch x)", "loch.notes"})
    std::filesystem::create_directory(access_.directory + "/" + no_store);
  for (const char* file : {"loch.$(touch x)/present", "loch.notes/mine"})
    std::ofstream(access_.directory + "/" + file) << "x";
  EXPECT_EQ(shm::list(access_).value(), (std::vector<std::string>{"a", "b", "c.d"}));
  ASSERT_TRUE(shm::destroy("b", access_).has_value());
  EXPECT_EQ(shm::list(access_).value(), (std::vector<std::string>{"a", "c.d"}));
  Access nowhere = access_;
  nowhere.directory += "/nowhere";
  EXPECT_EQ(shm::list(nowhere).error().code, Errc::not_found);
}

// Receive: names of stores that something else has: a folder of somebody's, an empty one, a plain file, and a
// link that leads nowhere. Expect: it is said to be no store, whatever is done, and stays.
TEST_F(ShmTest, WhatIsNoStoreIsSaidToBeNone) {
  const auto path_of = [this](const std::string& name) { return access_.directory + "/loch." + name; };
  std::filesystem::create_directory(path_of("notes"));
  std::ofstream(path_of("notes") + "/mine") << "x";
  std::filesystem::create_directory(path_of("empty"));
  std::ofstream(path_of("file")) << "x";
  std::filesystem::create_symlink("nowhere", path_of("link"));
  const auto before = files_in_folder();
  for (const std::string name : {"notes", "empty", "file", "link"}) {
    const std::string said = path_of(name) + " is there, and is no store; remove it by hand";
    const auto attached = shm::attach(name, access_);
    const auto created = shm::create(name, access_, plan());
    const auto destroyed = shm::destroy(name, access_);
    ASSERT_FALSE(attached || created || destroyed) << name;
    EXPECT_EQ(attached.error().code, Errc::io);
    EXPECT_EQ(created.error().code, Errc::exists);
    EXPECT_EQ(destroyed.error().code, Errc::io);
    for (const Error& error : {attached.error(), created.error(), destroyed.error()})
      EXPECT_TRUE(error.detail.starts_with(said)) << error.detail;
  }
  EXPECT_EQ(files_in_folder(), before);
  EXPECT_TRUE(std::filesystem::exists(path_of("notes") + "/mine"));
}

TEST_F(ShmTest, WhoIsAttachedGoesOnWhenTheStoreIsDestroyed) {
  const auto attached = shm::create("store", access_, plan()).value();
  Endpoint endpoint(attached, attached->connect());
  ASSERT_NE(endpoint.mapped({0, 0}, 8), nullptr);
  ASSERT_NE(endpoint.mapped({1, 0}, 8), nullptr);
  EXPECT_TRUE(attached->is_published());
  ASSERT_TRUE(shm::destroy("store", access_).has_value());
  EXPECT_FALSE(attached->is_published());
  EXPECT_TRUE(files_in_folder().empty());
  EXPECT_EQ(load_word(endpoint.mapped({0, 0}, 8)), mark);
  store_word(endpoint.mapped({1, 64}, 8), 5);
  EXPECT_EQ(load_word(endpoint.mapped({1, 64}, 8)), 5U);
  EXPECT_TRUE(endpoint.port().claim_presence(3).value());
  EXPECT_EQ(shm::attach("store", access_).error().code, Errc::not_found);
  EXPECT_EQ(shm::destroy("store", access_).error().code, Errc::not_found);
  // One of the same name is another.
  ASSERT_TRUE(shm::create("store", access_, plan()).has_value());
  EXPECT_FALSE(attached->is_published());
  const auto other = shm::attach("store", access_).value();
  EXPECT_FALSE(other->connect()->present(3));
}

// Receive: the name of a store taken by another while the first is attached, with some of its regions used
// already and some not. Expect: the first one's memory, or an error that says why there is none; never the
// other's.
TEST_F(ShmTest, WhoIsAttachedNeverReachesAnotherStoreOfTheName) {
  const auto attached = shm::create("store", access_, plan()).value();
  Endpoint endpoint(attached, attached->connect());
  ASSERT_NE(endpoint.mapped({0, 0}, 8), nullptr);
  ASSERT_TRUE(shm::destroy("store", access_).has_value());
  ASSERT_TRUE(shm::create("store", access_, plan()).has_value());
  store_word(endpoint.mapped({0, 0}, 8), 5);
  EXPECT_EQ(endpoint.mapped({1, 0}, 8), nullptr);
  const auto error = endpoint.port().map(1).error();
  EXPECT_EQ(error.code, Errc::unavailable);
  EXPECT_NE(error.detail.find("was removed"), std::string::npos) << error.detail;
  EXPECT_FALSE(attached->extend(1, 2 * region_bytes).has_value());
  EXPECT_TRUE(is_whole(shm::attach("store", access_).value()));
}

// ---- links, and files that are none

// Receive: what looks like the folder of a creator that died, and is a link to somebody's files. Expect:
// these are left alone.
TEST_F(ShmTest, WhatIsLeftByCreatorsIsRemovedThroughNoLink) {
  const std::string victim = access_.directory + "/victim";
  ASSERT_TRUE(std::filesystem::create_directory(victim));
  const base::FileDescriptor file(::open((victim + "/file").c_str(), O_CREAT | O_RDWR, 0600));
  std::filesystem::create_directory_symlink(victim, access_.directory + "/.loch.x");
  const std::array<timespec, 2> long_ago{timespec{.tv_sec = 1'000, .tv_nsec = 0},
                                         timespec{.tv_sec = 1'000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, victim.c_str(), long_ago.data(), 0), 0);
  ASSERT_TRUE(shm::create("store", access_, plan()).has_value());
  EXPECT_TRUE(std::filesystem::exists(victim + "/file"));
  EXPECT_EQ(shm::list(access_).value(), std::vector<std::string>{"store"});
}

// Receive: the folder of a creator that was thought dead, and published its store just now. Expect: its files
// stay.
TEST_F(ShmTest, WhatWasPublishedMeanwhileIsNotRemoved) {
  const std::string path = access_.directory + "/.loch.store.abcdef";
  const std::string published = access_.directory + "/loch.store";
  ASSERT_TRUE(std::filesystem::create_directory(path));
  const auto folder = shm::Folder::open(path, "test").value();
  ASSERT_TRUE(folder.create_file("file", 0600, shm::no_group, "test").has_value());
  std::filesystem::rename(path, published);
  folder.remove();
  EXPECT_TRUE(std::filesystem::exists(published + "/file"));
  std::filesystem::rename(published, path);
  folder.remove();
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Receive: links and a pipe where a store's files are looked for. Expect: errors that name them; nothing is
// waited for, and what the links lead to stays as it is.
TEST_F(ShmTest, LinksAndPipesAreNoRegions) {
  const auto attached = shm::create("store", access_, plan()).value();
  const std::string folder = access_.directory + "/loch.store/";
  const std::string secret = access_.directory + "/secret";
  const base::FileDescriptor file(::open(secret.c_str(), O_CREAT | O_RDWR, 0600));
  std::filesystem::create_symlink(secret, folder + "region.2");
  std::filesystem::create_symlink(secret, folder + "sessions");
  ASSERT_EQ(::mkfifo((folder + "region.3").c_str(), 0600), 0);
  const auto port = attached->connect();
  for (const RegionId region : {RegionId{2}, RegionId{3}}) {
    const auto mapped = port->map(region);
    ASSERT_FALSE(mapped.has_value());
    EXPECT_NE(mapped.error().detail.find(fmt::format("region.{}", region)), std::string::npos)
        << mapped.error().detail;
    EXPECT_FALSE(attached->extend(region, region_bytes).has_value());
  }
  EXPECT_FALSE(attached->note_session(3, "session").has_value());
  EXPECT_FALSE(attached->noted_sessions().has_value());
  EXPECT_EQ(std::filesystem::file_size(secret), 0U);
}

// Receive: a process that can open no more files, once it has noted a session. Expect: it notes others; what
// was noted it can not tell, and does not take for nothing.
TEST_F(ShmTest, SessionsAreNotedThoughNoFileCanBeOpened) {
  const auto attached = shm::create("store", access_, plan()).value();
  EXPECT_TRUE(attached->noted_sessions().value().empty()) << "there is no file yet";
  ASSERT_TRUE(attached->note_session(3, "first").has_value());
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto noted = attached->note_session(5, "second");
  const auto unknown = attached->noted_sessions();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_TRUE(noted.has_value());
  EXPECT_FALSE(unknown.has_value());
  const Fabric::NotedSessions expected{{3, "first"}, {5, "second"}};
  EXPECT_EQ(attached->noted_sessions().value(), expected);
}

}  // namespace
}  // namespace loch::fabric
