// What Store::open finds in place of a store of its own: one of another user, of another version, or a file
// system without room.
#include <cstddef>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <loch/loch.h>

#include "base/file_descriptor.h"
#include "base/testing/in_child.h"
#include "lab/temp_folder.h"
#include "memory/layout.h"

namespace loch {
namespace {

using base::fake::give_up_root;
using base::fake::in_child;
using base::fake::outcome;

constexpr uid_t mallory = base::fake::nobody;
constexpr uid_t bob = 1;

// A folder that any user may make stores in.
class MakersTest : public testing::Test {
 protected:
  MakersTest() {
    EXPECT_EQ(::chmod(temp_.path().c_str(), 01777), 0);
    options_.directory = temp_.path();
    options_.huge_pages = false;
  }

  // What comes of opening the store as that user, who may be of one group more.
  [[nodiscard]] std::string open_as(uid_t user, const Options& options, gid_t group = 0) const {
    return in_child([&]() -> std::string {
      if (group != 0 && (::setgroups(1, &group) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0))
        return "setgroups failed";
      if (!give_up_root(user)) return "setuid failed";
      auto store = Store::open("shm://sessions", options);
      return store ? outcome(store->put("password", "secret")) : outcome(store);
    });
  }
  void create_as(uid_t user, std::uint32_t file_mode) {
    Options made = options_;
    made.file_mode = file_mode;
    const std::string said = in_child([&]() -> std::string {
      if (!give_up_root(user)) return "setuid failed";
      return outcome(Store::create("shm://sessions", made));
    });
    ASSERT_EQ(said, "ok");
  }

  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  Options options_;
};

// Receive: a store's name that another user took first, and opened to all. Expect: whoever would have created
// it is told whose it is, and puts nothing there unless that is meant.
TEST_F(MakersTest, AStoreOfAnotherUserIsTakenForNoneOfOurs) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be several users";
  create_as(mallory, 0666);
  for (const uid_t user : {bob, uid_t{0}}) {
    SCOPED_TRACE(user);
    const std::string said =
        user == 0 ? outcome(Store::open("shm://sessions", options_)) : open_as(user, options_);
    EXPECT_TRUE(said.starts_with("permission: ")) << said;
    EXPECT_NE(said.find(options_.directory + "/loch.sessions"), std::string::npos) << said;
    EXPECT_NE(said.find("65534"), std::string::npos) << said;
    EXPECT_NE(said.find("Mode::attach"), std::string::npos) << said;
  }
  Options meant = options_;
  meant.mode = Options::Mode::attach;
  EXPECT_EQ(open_as(bob, meant), "ok");
  EXPECT_EQ(open_as(mallory, options_), "ok") << "it is his";
  // Who would have opened it to all himself hides nothing.
  Options open_to_all = options_;
  open_to_all.file_mode = 0666;
  EXPECT_EQ(open_as(bob, open_to_all), "ok");
}

TEST_F(MakersTest, AStoreOfRootOrOfAGroupIsTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be several users";
  create_as(0, 0666);
  EXPECT_EQ(open_as(bob, options_), "ok");
  ASSERT_TRUE(Store::destroy("shm://sessions", options_).has_value());
  create_as(mallory, 0660);
  EXPECT_TRUE(open_as(bob, options_).starts_with("permission: "));
  EXPECT_EQ(open_as(bob, options_, mallory), "ok") << "he is of the store's group";
}

TEST_F(MakersTest, AStoreOfAnotherVersionIsRefused) {
  ASSERT_TRUE(Store::create("shm://sessions", options_).has_value());
  const std::string control = options_.directory + "/loch.sessions/region.0";
  const base::FileDescriptor file(::open(control.c_str(), O_RDWR | O_CLOEXEC));
  const std::uint32_t other = memory::format_version + 1;
  ASSERT_EQ(::pwrite(file.get(), &other, sizeof other, offsetof(memory::Superblock, version)),
            static_cast<ssize_t>(sizeof other));
  for (const auto mode : {Options::Mode::attach_or_create, Options::Mode::attach}) {
    options_.mode = mode;
    const auto opened = Store::open("shm://sessions", options_);
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code, Errc::incompatible);
    EXPECT_NE(opened.error().detail.find(
                  fmt::format("has format {}, this program {}", other, memory::format_version)),
              std::string::npos)
        << opened.error().message();
  }
  EXPECT_TRUE(Store::destroy("shm://sessions", options_).has_value()) << "it can be removed";
}

// Receive: puts until the file system has no room, without a limit of the store's own. Expect: an error that
// names the store and what is free; what is there is read and removed.
TEST_F(MakersTest, AFullFileSystemIsAClearErrorOfPut) {
  const std::string said = in_child([&]() -> std::string {
    if (!base::fake::mount_small(options_.directory, "size=12m")) return "may not";
    auto store = Store::open("shm://sessions", options_);
    if (!store) return outcome(store);
    const std::string value(50'000, 'v');
    std::vector<std::string> keys;
    Result<Version> put;
    while (put && keys.size() < 1'000) {
      keys.push_back(fmt::format("key{}", keys.size()));
      put = store->put(keys.back(), value);
    }
    if (put) return "all were stored";
    keys.pop_back();
    const std::string why = outcome(put);
    if (put.error().code != Errc::no_space || !why.contains(options_.directory + "/loch.sessions") ||
        !why.contains("bytes are free")) {
      return why;
    }
    if (keys.size() < 50) return fmt::format("there was room for {}", keys.size());
    for (const std::string& key : keys) {
      if (const auto got = store->get(key); !got || *got != value) return key + ": " + outcome(got);
    }
    if (store->count().value_or(0) != keys.size()) return "not as many as were stored";
    for (const std::string& key : keys) {
      if (const auto removed = store->remove(key); !removed) return key + ": " + outcome(removed);
    }
    return store->count().value_or(1) == 0 ? "ok" : "some are left";
  });
  if (said == "may not" && ::geteuid() != 0) GTEST_SKIP() << "this process may mount nothing";
  EXPECT_EQ(said, "ok");
}

}  // namespace
}  // namespace loch
