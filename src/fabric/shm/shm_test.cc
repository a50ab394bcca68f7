// Stores as files: made whole or not at all, who may use them, where they are, what is left when a process
// dies.
#include "fabric/shm/shm.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <functional>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/file_descriptor.h"
#include "base/random.h"
#include "base/testing/in_child.h"
#include "fabric/shm/file.h"
#include "fabric/shm/owner.h"
#include "fabric/shm/testing/shm_test.h"

namespace loch::fabric {
namespace {

using base::fake::give_up_root;
using base::fake::in_child;
using base::fake::mount_small;
using base::fake::outcome;
using shm::fake::mark;
using shm::fake::region_bytes;
using shm::fake::ShmTest;

// ---- creating

// Receive: a creator that is killed at any moment. Expect: the store is there whole or not at all, and a
// later creator removes what is left.
TEST_F(ShmTest, ACreatorThatDiesLeavesAWholeStoreOrNone) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  int whole = 0;
  int none = 0;
  // On a slow machine it takes longer until there may be a whole one.
  std::uint64_t longest_ns = 8'000'000;
  constexpr int rounds_together = 60;
  constexpr int rounds_max = 7 * rounds_together;
  for (int round = 0; round < rounds_together || whole == 0 || none == 0; ++round) {
    ASSERT_LT(round, rounds_max) << "whole: " << whole << ", none: " << none;
    if (round != 0 && round % rounds_together == 0) longest_ns *= 2;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) {
        if (!shm::create("victim", access_, plan()).has_value()) ::_exit(1);
        if (!shm::destroy("victim", access_).has_value()) ::_exit(2);
      }
    }
    const timespec moment{.tv_sec = 0, .tv_nsec = static_cast<long>(random.below(longest_ns))};
    ::nanosleep(&moment, nullptr);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the creator failed with " << WEXITSTATUS(status);
    const auto attached = shm::attach("victim", access_);
    if (attached) {
      EXPECT_TRUE(is_whole(*attached));
      ASSERT_TRUE(shm::destroy("victim", access_).has_value());
      ++whole;
    } else {
      EXPECT_EQ(attached.error().code, Errc::not_found) << attached.error().message();
      ++none;
    }
  }
  // What was left is younger than the grace: it may belong to somebody who is at work.
  const auto left = files_in_folder();
  ASSERT_TRUE(shm::create("other", access_, plan()).has_value());
  EXPECT_EQ(files_in_folder().size(), left.size() + 1);
  ASSERT_TRUE(shm::destroy("other", access_).has_value());
  for (const std::string& file : left) {
    const std::array<timespec, 2> long_ago{timespec{.tv_sec = 1'000, .tv_nsec = 0},
                                           timespec{.tv_sec = 1'000, .tv_nsec = 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (access_.directory + "/" + file).c_str(), long_ago.data(), 0), 0) << file;
  }
  ASSERT_TRUE(shm::create("other", access_, plan()).has_value());
  EXPECT_EQ(files_in_folder(), std::vector<std::string>{"loch.other"});
}

// Receive: an old private folder whose creator is alive, in a long creation. Expect: it is left alone.
TEST_F(ShmTest, ALivingCreatorsFolderIsLeftAlone) {
  Plan slow = plan();
  const auto fill = slow.fill;
  slow.fill = [&](std::span<const Mapping> regions) {
    fill(regions);
    for (const std::string& file : files_in_folder()) {
      const std::array<timespec, 2> long_ago{timespec{.tv_sec = 1'000, .tv_nsec = 0},
                                             timespec{.tv_sec = 1'000, .tv_nsec = 0}};
      EXPECT_EQ(::utimensat(AT_FDCWD, (access_.directory + "/" + file).c_str(), long_ago.data(), 0), 0);
    }
    EXPECT_EQ(in_child([&] { return outcome(shm::create("other", access_, plan())); }), "ok");
  };
  const auto created = shm::create("slow", access_, slow);
  ASSERT_TRUE(created.has_value()) << created.error().message();
  EXPECT_TRUE(is_whole(*created));
  EXPECT_EQ(shm::list(access_).value(), (std::vector<std::string>{"other", "slow"}));
}

TEST_F(ShmTest, OneOfManyCreatorsWins) {
  for (int round = 0; round < 10; ++round) {
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        const auto created = shm::create("one", access_, plan());
        ::_exit(created ? 10 : created.error().code == Errc::exists ? 11 : 12);
      }
      children.push_back(child);
    }
    int winners = 0;
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 10 || WEXITSTATUS(status) == 11)) << status;
      winners += WEXITSTATUS(status) == 10 ? 1 : 0;
    }
    EXPECT_EQ(winners, 1);
    EXPECT_TRUE(is_whole(shm::attach("one", access_).value()));
    ASSERT_TRUE(shm::destroy("one", access_).has_value());
  }
  EXPECT_TRUE(files_in_folder().empty());
}

TEST_F(ShmTest, AFailedCreationLeavesNothing) {
  Plan impossible = plan();
  impossible.regions.push_back({2, std::uint64_t{1} << 60});
  const auto created = shm::create("large", access_, impossible);
  ASSERT_FALSE(created.has_value());
  EXPECT_TRUE(files_in_folder().empty());
  access_.group = "there is no such group";
  EXPECT_EQ(shm::create("name", access_, plan()).error().code, Errc::invalid_argument);
  EXPECT_TRUE(files_in_folder().empty());
}

// ---- access

mode_t mode_of(const std::string& path) {
  struct stat stat{};
  EXPECT_EQ(::stat(path.c_str(), &stat), 0) << path;
  return stat.st_mode & 07777;
}

TEST_F(ShmTest, FilesHaveTheModeThatWasAskedForWhateverTheUmask) {
  const mode_t umask_before = ::umask(0077);
  for (const std::uint32_t mode : {0600U, 0660U, 0666U, 0640U}) {
    access_.file_mode = mode;
    const auto created = shm::create("store", access_, plan());
    ASSERT_TRUE(created.has_value());
    ASSERT_TRUE((*created)->extend(5, 4'096).has_value());
    const std::string folder = access_.directory + "/loch.store";
    for (const char* file : {"region.0", "region.1", "region.5", "present"}) {
      EXPECT_EQ(mode_of(folder + "/" + file), mode) << file;
    }
    // Readers may enter the folder, writers add files to it.
    const mode_t folder_mode = mode_of(folder);
    for (const unsigned shift : {0U, 3U, 6U}) {
      if (((mode >> shift) & 4) != 0) EXPECT_EQ((folder_mode >> shift) & 5, 5U);
      if (((mode >> shift) & 2) != 0) EXPECT_EQ((folder_mode >> shift) & 3, 3U);
      if (shift < 6 && ((mode >> shift) & 6) == 0) EXPECT_EQ((folder_mode >> shift) & 7, 0U);
    }
    ASSERT_TRUE(shm::destroy("store", access_).has_value());
  }
  ::umask(umask_before);
}

TEST_F(ShmTest, FilesBelongToTheGroup) {
  // Any group that this process may give files to: root to all, others to their own.
  gid_t wanted = ::getegid();
  std::array<gid_t, 64> groups{};
  const int count = ::getgroups(groups.size(), groups.data());
  for (int i = 0; i < count; ++i) wanted = groups[static_cast<std::size_t>(i)];
  if (::geteuid() == 0) wanted = 1;
  const struct group* entry = ::getgrgid(wanted);
  ASSERT_NE(entry, nullptr) << wanted;
  access_.group = entry->gr_name;
  access_.file_mode = 0660;
  const auto created = shm::create("store", access_, plan());
  ASSERT_TRUE(created.has_value()) << created.error().message();
  ASSERT_TRUE((*created)->extend(5, 4'096).has_value());
  for (const char* file : {"", "/region.0", "/region.1", "/region.5", "/present"}) {
    struct stat stat{};
    ASSERT_EQ(::stat((access_.directory + "/loch.store" + file).c_str(), &stat), 0) << file;
    EXPECT_EQ(stat.st_gid, wanted) << file;
  }
}

TEST_F(ShmTest, WhoIsNotInTheGroupIsTold) {
  ASSERT_EQ(::chmod(access_.directory.c_str(), 0777), 0);
  const std::string said = in_child([&]() -> std::string {
    if (!give_up_root()) return "setuid failed";
    const struct group* other = ::getgrent();
    while (other != nullptr && shm::is_of_group(other->gr_gid)) other = ::getgrent();
    if (other == nullptr) return "there is no other group";
    access_.group = other->gr_name;
    return outcome(shm::create("store", access_, plan()));
  });
  EXPECT_TRUE(said.starts_with("permission: the files of 'store' can not be given to group '")) << said;
  EXPECT_NE(said.find("which this process is not in"), std::string::npos) << said;
  EXPECT_TRUE(files_in_folder().empty());
}

TEST_F(ShmTest, WhoMayNotOpenTheFilesIsTold) {
  ASSERT_TRUE(shm::create("store", access_, plan()).has_value());
  const std::string said = in_child([&]() -> std::string {
    const bool owns_them = ::geteuid() != 0;
    if (!give_up_root()) return "setuid failed";
    if (owns_them) {
      ::chmod((access_.directory + "/loch.store").c_str(), 0);
      ::chmod(access_.directory.c_str(), 0555);
    }
    return outcome(shm::attach("store", access_)) + "\n" + outcome(shm::create("mine", access_, plan())) +
           "\n" + outcome(shm::destroy("store", access_));
  });
  ::chmod(access_.directory.c_str(), 0755);
  ::chmod((access_.directory + "/loch.store").c_str(), 0700);
  std::istringstream lines(said);
  std::string line;
  int told = 0;
  while (std::getline(lines, line)) {
    EXPECT_TRUE(line.starts_with("permission: ")) << line;
    EXPECT_NE(line.find(access_.directory), std::string::npos) << line;
    ++told;
  }
  EXPECT_EQ(told, 3) << said;
  EXPECT_TRUE(is_whole(shm::attach("store", access_).value()));
}

// Receive: a list for somebody who may not look into a store. Expect: the store is in it, and a folder that
// he may look into, and has none, is not.
TEST_F(ShmTest, AStoreOfOthersIsListed) {
  ASSERT_TRUE(shm::create("store", access_, plan()).has_value());
  const std::string other = access_.directory + "/loch.other";
  ASSERT_TRUE(std::filesystem::create_directory(other));
  ::chmod(other.c_str(), 0755);
  const std::string said = in_child([&]() -> std::string {
    const bool owns_them = ::geteuid() != 0;
    if (!give_up_root()) return "setuid failed";
    if (owns_them) {
      ::chmod((access_.directory + "/loch.store").c_str(), 0);
    }
    const auto names = shm::list(access_);
    return names ? fmt::format("{}", fmt::join(*names, " ")) : outcome(names);
  });
  ::chmod((access_.directory + "/loch.store").c_str(), 0700);
  EXPECT_EQ(said, "store");
}

TEST_F(ShmTest, AGroupMemberMayUseAndExtendAStoreOfTheGroup) {
  access_.file_mode = 0666;
  ASSERT_TRUE(shm::create("store", access_, plan()).has_value());
  const std::string said = in_child([&]() -> std::string {
    if (!give_up_root()) return "setuid failed";
    const auto attached = shm::attach("store", access_);
    if (!attached) return outcome(attached);
    if (!is_whole(*attached)) return "not whole";
    if (!(*attached)->connect()->claim_presence(3).value_or(false)) return "no presence";
    if (const auto grown = (*attached)->extend(1, 2 * region_bytes); !grown) return outcome(grown);
    return outcome((*attached)->extend(9, 4'096));
  });
  EXPECT_EQ(said, "ok");
  // What the other added is ours to use too.
  const auto attached = shm::attach("store", access_);
  Endpoint endpoint(*attached, (*attached)->connect());
  EXPECT_EQ(endpoint.length_bytes(9), 4'096U);
  EXPECT_NE(endpoint.mapped({9, 0}, 8), nullptr);
}

// The memory that a fork gives a child is mapped as the store's, and its files' locks are held together.
TEST_F(ShmTest, WhatAChildDoesWithItsParentsFabricComesToNobody) {
  auto attached = shm::create("store", access_, plan()).value();
  auto port = attached->connect();
  auto endpoint = std::make_unique<Endpoint>(attached, attached->connect());
  std::byte* const at = endpoint->mapped({1, 64}, 8);
  ASSERT_NE(at, nullptr);
  store_word(at, 5);
  ASSERT_TRUE(port->claim_presence(7).value());
  const std::string said = in_child([&]() -> std::string {
    if (load_word(at) != 5) return "what is there can not be read";
    store_word(at, 6);
    if (load_word(at) != 6) return "what was written can not be read";
    for (const auto& refused : {outcome(port->claim_presence(8)), outcome(port->map(0)),
                                outcome(attached->extend(2, region_bytes))}) {
      if (!refused.contains("opened before a fork")) return refused;
    }
    port->release_presence(7);
    port.reset();
    endpoint.reset();
    attached.reset();
    const auto own = shm::attach("store", access_);
    if (!own) return outcome(own);
    const auto own_port = (*own)->connect();
    if (!own_port->present(7)) return "the parent is not present any more";
    Endpoint own_endpoint(*own, (*own)->connect());
    if (load_word(own_endpoint.mapped({1, 64}, 8)) != 5) return "the child wrote to the store";
    return outcome(own_port->claim_presence(8));
  });
  EXPECT_EQ(said, "ok");
  EXPECT_EQ(load_word(at), 5U);
  const auto again = shm::attach("store", access_).value();
  const auto other = again->connect();
  EXPECT_TRUE(other->present(7));
  EXPECT_FALSE(other->claim_presence(7).value());
  EXPECT_TRUE(other->claim_presence(8).value()) << "the child has ended";
}

// Receive: another folder that takes the name of the one that a store is made in, while that is filled.
// Expect: it keeps its mode.
TEST_F(ShmTest, TheFolderThatWasMadeGetsItsModeAndNoOther) {
  const std::string victim = access_.directory + "/victim";
  ASSERT_EQ(::mkdir(victim.c_str(), 0700), 0);
  access_.file_mode = 0666;
  const gid_t group_before = [&] {
    struct stat stat{};
    EXPECT_EQ(::stat(victim.c_str(), &stat), 0);
    return stat.st_gid;
  }();
  if (::geteuid() == 0) access_.group = ::getgrgid(1)->gr_name;
  Plan slow = plan();
  slow.fill = [&](std::span<const Mapping>) {
    for (const std::string& file : files_in_folder()) {
      if (!file.starts_with(".loch.")) continue;
      std::filesystem::rename(access_.directory + "/" + file, access_.directory + "/moved");
      std::filesystem::create_directory_symlink(victim, access_.directory + "/" + file);
    }
  };
  EXPECT_FALSE(shm::create("store", access_, slow).has_value());
  struct stat stat{};
  ASSERT_EQ(::stat(victim.c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 07777, 0700U);
  EXPECT_EQ(stat.st_gid, group_before);
  EXPECT_EQ(mode_of(access_.directory + "/moved"), 0777U);
}

// ---- space

// On a small file system of its own if this process may mount one, else by a limit on the length of files.
TEST_F(ShmTest, AFullFileSystemIsAnErrorThatNamesItAndWhatIsFree) {
  const std::string said = in_child([&]() -> std::string {
    const bool own_mounts = mount_small(access_.directory, "size=4m");
    if (!own_mounts) {
      const rlimit limit{.rlim_cur = 4U << 20, .rlim_max = 4U << 20};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit failed";
    }
    const auto created = shm::create("store", access_, plan());
    if (!created) return outcome(created);
    const auto extended = (*created)->extend(1, 16U << 20);
    if (extended) return "extended beyond the file system";
    if (own_mounts && extended.error().code != Errc::no_space) return outcome(extended);
    if (extended.error().detail.find(access_.directory) == std::string::npos) return outcome(extended);
    if (own_mounts && extended.error().detail.find("bytes are free") == std::string::npos)
      return outcome(extended);
    // All is as before, and goes on.
    if (!is_whole(*created)) return "harmed";
    if (const auto less = (*created)->extend(1, 2U << 20); !less) return outcome(less);
    if (own_mounts) {
      const auto second = shm::create("second", access_, plan());
      const auto third = shm::create("third", access_, plan());
      if (second || third || third.error().code != Errc::no_space)
        return "no error of create: " + outcome(third);
      if (files_in_folder() != std::vector<std::string>{"loch.store"})
        return "a failed creation left something";
    }
    return "ok";
  });
  EXPECT_EQ(said, "ok");
}

// Receive: a process that SIGXFSZ ends, as it does unless told otherwise. Expect: what is beyond its limit is
// an error that says so, and takes nothing; what is within it is there.
TEST_F(ShmTest, ALimitOnTheLengthOfFilesIsAnErrorAndNoSignal) {
  const std::string path = access_.directory + "/file";
  const std::string said = in_child([&]() -> std::string {
    ::signal(SIGXFSZ, SIG_DFL);
    const base::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    const rlimit limit{.rlim_cur = region_bytes, .rlim_max = region_bytes};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "setrlimit failed";
    const auto beyond = shm::reserve(file.get(), region_bytes + 1, nullptr, path);
    if (beyond || beyond.error().code != Errc::io) return outcome(beyond);
    for (const std::string& part : {path, std::string("ulimit -f")})
      if (!beyond.error().detail.contains(part)) return outcome(beyond);
    if (std::filesystem::file_size(path) != 0) return "it took something";
    return outcome(shm::reserve(file.get(), region_bytes, nullptr, path));
  });
  EXPECT_EQ(said, "ok");
}

// Receive: a region that another process makes longer than the file system was when this one opened it, which
// its administrator enlarges meanwhile. Expect: all of it is reached, and what was reached before stays.
TEST_F(ShmTest, ARegionMayOutgrowWhatTheFileSystemWasOnce) {
  const std::string said = in_child([&]() -> std::string {
    // A small one of its own, if this process may have one.
    [[maybe_unused]] const bool is_small = mount_small(access_.directory, "size=4m");
    const auto store = shm::create("store", access_, plan());
    if (!store) return outcome(store);
    Endpoint endpoint(*store, (*store)->connect());
    std::byte* const before = endpoint.mapped({1, 0}, sizeof mark);
    struct statvfs fs{};
    if (before == nullptr || ::statvfs(access_.directory.c_str(), &fs) != 0) return "not reached";
    constexpr std::uint64_t unit = std::uint64_t{1} << 30;
    const std::uint64_t beyond =
        std::min((fs.f_blocks * fs.f_frsize / unit + 1) * unit, region_bytes_max - unit);
    // Without its memory, of which there is not as much.
    const std::string path = access_.directory + "/loch.store/region.1";
    if (::truncate(path.c_str(), static_cast<off_t>(beyond + region_bytes)) != 0) return "truncate failed";

    std::byte* const there = endpoint.mapped({1, beyond}, sizeof mark);
    if (there == nullptr) return "not reached beyond what the file system was";
    store_word(there, mark);
    const auto other = shm::attach("store", access_);
    if (!other) return outcome(other);
    Endpoint others(*other, (*other)->connect());
    const std::byte* const seen = others.mapped({1, beyond}, sizeof mark);
    if (seen == nullptr || load_word(seen) != mark) return "another process sees something else";
    store_word(before, 7);
    const std::byte* const anew = endpoint.mapped({1, 0}, sizeof mark);
    if (anew == nullptr || load_word(anew) != 7) return "what was reached before is not the same any more";
    return "ok";
  });
  EXPECT_EQ(said, "ok");
}

// ---- names

TEST(Url, IsTakenApart) {
  const auto plain = parse_url("shm://a.B_9-");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->scheme, "shm");
  EXPECT_EQ(plain->name, "a.B_9-");
  EXPECT_TRUE(plain->directory.empty());
  const auto folder = parse_url("shm:///some/folder/name");
  ASSERT_TRUE(folder.has_value());
  EXPECT_EQ(folder->directory, "/some/folder");
  EXPECT_EQ(folder->name, "name");
  EXPECT_TRUE(parse_url("shm://" + std::string(64, 'x')).has_value());
}

TEST(Url, WrongOnesSayWhatIsWrong) {
  for (const std::string url : {"", "name", "shm:/x", "shm://", "shm://.x", "shm://a/b", "shm://a b",
                                "shm://\xc3\xa4", "shm:///folder/", "shm:///folder/..", "shm://x:y"}) {
    const auto parsed = parse_url(url);
    ASSERT_FALSE(parsed.has_value()) << url;
    EXPECT_EQ(parsed.error().code, Errc::invalid_argument) << url;
    EXPECT_FALSE(parsed.error().detail.empty());
  }
  EXPECT_FALSE(parse_url("shm://" + std::string(65, 'x')).has_value());
  EXPECT_FALSE(parse_url(std::string("shm://a\0b", 9)).has_value());
  const auto other = fabric::attach("verbs://x", {});
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().detail.find("verbs"), std::string::npos);
}

// ---- presence

TEST_F(ShmTest, PresenceEndsWhenTheProcessIsKilled) {
  const auto attached = shm::create("store", access_, plan()).value();
  const auto port = attached->connect();
  for (int round = 0; round < 5; ++round) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto mine = shm::attach("store", access_);
      const char said = mine && (*mine)->connect()->claim_presence(5).value_or(false) ? 'y' : 'n';
      if (::write(ends[1], &said, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    char said = 0;
    ASSERT_EQ(::read(ends[0], &said, 1), 1);
    EXPECT_EQ(said, 'y');
    EXPECT_TRUE(port->present(5));
    EXPECT_FALSE(port->claim_presence(5).value());
    ::kill(child, SIGSTOP);
    EXPECT_TRUE(port->present(5)) << "one that is stopped is present";
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_FALSE(port->present(5));
    ::close(ends[0]);
  }
  EXPECT_TRUE(port->claim_presence(5).value());
}

// Of one small page, as a region grows.
bool huge_pages_can_be_had(const std::string& folder) {
  const std::string path = folder + "/probe";
  const base::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const auto mapping = shm::FileMapping::map(file.get(), shm::huge_page_bytes, path);
  if (::posix_fallocate(file.get(), 0, 4'096) != 0 || !mapping) return false;
  mapping->want_huge_pages();
  return mapping->collapse(0);
}

TEST_F(ShmTest, HugePagesOrNotTheBytesAreTheSame) {
  for (const bool huge : {true, false}) {
    access_.huge_pages = huge;
    const auto created = shm::create(huge ? "huge" : "small", access_, plan()).value();
    Endpoint endpoint(created, created->connect());
    // Neither end is that of a huge page.
    constexpr std::uint64_t length = (9U << 20) + 4'096;
    ASSERT_TRUE(created->extend(1, length).has_value());
    EXPECT_EQ(endpoint.length_bytes(1).value(), length);
    for (std::uint64_t at = 0; at < length; at += 8) {
      const bool marked = at == 0 || at == region_bytes - 8;
      ASSERT_EQ(load_word(endpoint.mapped({1, at}, 8)), marked ? mark : 0) << at;
    }
    // What was there stays there, and each part is extended by itself.
    store_word(endpoint.mapped({1, length - 8}, 8), 17);
    ASSERT_TRUE(created->extend(1, length + 4'096).has_value());
    EXPECT_EQ(load_word(endpoint.mapped({1, length - 8}, 8)), 17U);
    EXPECT_EQ(load_word(endpoint.mapped({1, length}, 8)), 0U);
    const std::uint64_t in_huge_pages = created->huge_page_bytes();
    EXPECT_LE(in_huge_pages, huge ? 10U << 20 : 0U);
    // A region that is added counts likewise.
    constexpr std::uint64_t added = 4 * shm::huge_page_bytes;
    ASSERT_TRUE(created->extend(7, added).has_value());
    store_word(endpoint.mapped({7, added - 8}, 8), 5);
    if (!huge || !huge_pages_can_be_had(access_.directory)) continue;
    EXPECT_GE(in_huge_pages, shm::huge_page_bytes);
    EXPECT_GE(created->huge_page_bytes(), in_huge_pages + shm::huge_page_bytes);
  }
}

}  // namespace
}  // namespace loch::fabric
