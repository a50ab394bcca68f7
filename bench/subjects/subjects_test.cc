// Every subject answers alike: what the drivers rely on, tested on Loch and on each peer.
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <ostream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "bench/dataset.h"
#include "bench/subject.h"
#include "bench/subjects/peer_server.h"
#include "lab/process.h"
#include "lab/temp_folder.h"

namespace loch::bench {
namespace {

using Make = std::function<Result<std::unique_ptr<Subject>>(const std::string&, const Dataset&)>;

struct Named {
  const char* name;
  Make make;

  friend void PrintTo(const Named& named, std::ostream* out) { *out << named.name; }
};

class SubjectTest : public testing::TestWithParam<Named> {
 protected:
  void open(std::uint64_t items, std::uint64_t value_bytes) {
    auto folder = lab::TempFolder::make("/dev/shm");
    ASSERT_TRUE(folder) << folder.error().detail;
    folder_ = std::make_unique<lab::TempFolder>(std::move(*folder));
    dataset_ = std::make_unique<Dataset>(Dataset::make(items, 16, value_bytes).value());
    auto subject = GetParam().make(folder_->path(), *dataset_);
    ASSERT_TRUE(subject) << subject.error().detail;
    subject_ = std::move(*subject);
    const auto started = subject_->start();
    ASSERT_TRUE(started) << started.error().detail;
    auto session = subject_->open();
    ASSERT_TRUE(session) << session.error().detail;
    session_ = std::move(*session);
  }

  void TearDown() override {
    session_.reset();
    if (subject_) subject_->stop();
  }

  std::unique_ptr<lab::TempFolder> folder_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Subject> subject_;
  std::unique_ptr<Session> session_;
};

TEST_P(SubjectTest, OneKeyAtATime) {
  open(100, 64);
  Room room(*dataset_, 1);
  std::string value;
  const auto absent = session_->get(room.key(0, 1), value);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Errc::not_found);
  for (std::uint64_t version = 1; version <= 3; ++version) {
    for (std::uint64_t id = 0; id < 100; ++id) {
      const auto put = session_->put(room.key(0, id), room.value(0, id, version));
      ASSERT_TRUE(put) << put.error().detail;
    }
    for (std::uint64_t id = 0; id < 100; ++id) {
      const auto got = session_->get(room.key(0, id), value);
      ASSERT_TRUE(got) << got.error().detail;
      ASSERT_EQ(value, room.value(0, id, version));
    }
  }
}

// Receive: a batch longer than a pipeline, every third key of it absent. Expect: each answer at its own
// element.
TEST_P(SubjectTest, ManyKeysAtOnce) {
  open(1000, 64);
  Room room(*dataset_, 200);
  std::vector<Assignment> assignments;
  std::vector<Lookup> lookups(200);
  for (std::uint64_t id = 0; id < 200; ++id) {
    lookups[id].key = room.key(id, id);
    if (id % 3 != 0) assignments.push_back({.key = lookups[id].key, .value = room.value(id, id, 1)});
  }
  session_->multi_put(assignments);
  for (const Assignment& assignment : assignments) {
    ASSERT_TRUE(assignment.result) << assignment.result.error().detail;
  }
  for (int times = 0; times < 2; ++times) {
    session_->multi_get(lookups);
    for (std::uint64_t id = 0; id < 200; ++id) {
      if (id % 3 == 0) {
        ASSERT_FALSE(lookups[id].result) << id;
        ASSERT_EQ(lookups[id].result.error().code, Errc::not_found);
      } else {
        ASSERT_TRUE(lookups[id].result) << id << ": " << lookups[id].result.error().detail;
        ASSERT_TRUE(dataset_->check(id, lookups[id].value)) << id;
      }
    }
  }
}

// Receive: one key after the other, the second of three absent. Expect: the first one's value, the second
// one's error, and no word of the third.
TEST_P(SubjectTest, OneKeyAfterTheOtherUpToTheFirstThatFails) {
  open(1000, 64);
  Room room(*dataset_, 3);
  std::vector<Lookup> lookups(3);
  for (std::uint64_t id = 0; id < 3; ++id) {
    lookups[id].key = room.key(id, id);
    if (id != 1) ASSERT_TRUE(session_->put(lookups[id].key, room.value(id, id, 1)));
  }
  session_->get_each(lookups);
  EXPECT_TRUE(lookups[0].result);
  EXPECT_TRUE(dataset_->check(0, lookups[0].value));
  ASSERT_FALSE(lookups[1].result);
  EXPECT_EQ(lookups[1].result.error().code, Errc::not_found);
  EXPECT_TRUE(lookups[2].result);
  EXPECT_TRUE(lookups[2].value.empty());
}

TEST_P(SubjectTest, LargeValues) {
  open(100, 128 << 10);
  Room room(*dataset_, 100);
  std::vector<Assignment> assignments;
  std::vector<Lookup> lookups(100);
  for (std::uint64_t id = 0; id < 100; ++id) {
    lookups[id].key = room.key(id, id);
    assignments.push_back({.key = lookups[id].key, .value = room.value(id, id, 1)});
  }
  session_->multi_put(assignments);
  session_->multi_get(lookups);
  for (std::uint64_t id = 0; id < 100; ++id) {
    ASSERT_TRUE(assignments[id].result) << assignments[id].result.error().detail;
    ASSERT_TRUE(lookups[id].result) << lookups[id].result.error().detail;
    ASSERT_EQ(lookups[id].value, assignments[id].value);
  }
}

TEST_P(SubjectTest, MemoryIsAtLeastWhatWasStored) {
  open(20'000, 64);
  constexpr std::size_t at_once = 500;
  Room room(*dataset_, at_once);
  std::vector<Assignment> assignments(at_once);
  for (std::uint64_t first = 0; first < 20'000; first += at_once) {
    for (std::size_t slot = 0; slot < at_once; ++slot) {
      assignments[slot].key = room.key(slot, first + slot);
      assignments[slot].value = room.value(slot, first + slot, 1);
    }
    session_->multi_put(assignments);
    for (const Assignment& assignment : assignments) ASSERT_TRUE(assignment.result);
  }
  const auto memory = session_->memory();
  ASSERT_TRUE(memory) << memory.error().detail;
  EXPECT_GE(memory->held_bytes, 20'000u * 80);
  EXPECT_GE(memory->used_bytes, 20'000u * 80);
}

TEST_P(SubjectTest, AnotherProcessSeesWhatWasPutAndStoppingLeavesNothing) {
  open(10, 64);
  Room room(*dataset_, 1);
  ASSERT_TRUE(session_->put(room.key(0, 5), room.value(0, 5, 1)));
  session_.reset();
  auto other = lab::Process::fork([&] {
    auto session = subject_->open();
    std::string value;
    const bool found = session && (*session)->get(room.key(0, 5), value) && dataset_->check(5, value);
    return found ? 0 : 1;
  });
  ASSERT_TRUE(other) << other.error().detail;
  EXPECT_EQ(other->wait_for_end(std::chrono::seconds(60)), lab::Ending{.exit_code = 0});
  subject_->stop();
  subject_->stop();
  const std::string path = folder_->path();
  subject_.reset();
  folder_.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Those over TCP go through loopback, which needs no privileges.
const Network loopback("tests need no privileges");
Place over_loopback(const std::string& folder, const char* name) {
  return {.folder = folder, .name = name, .network = &loopback, .lochd = LOCHD_PROGRAM};
}

INSTANTIATE_TEST_SUITE_P(
    All, SubjectTest,
    testing::Values(
        Named{"loch", [](const auto& in, const auto& data) { return make_loch({in, "loch"}, data); }},
        Named{"lmdb", [](const auto& in, const auto& data) { return make_lmdb({in, "lmdb"}, data); }},
        Named{"redis", [](const auto& in, const auto& data) { return make_redis({in, "redis"}, data); }},
        Named{"memcached",
              [](const auto& in, const auto& data) { return make_memcached({in, "memcached"}, data); }},
        Named{"loch_over_tcp",
              [](const auto& in, const auto& data) { return make_loch(over_loopback(in, "loch"), data); }},
        Named{"redis_over_tcp",
              [](const auto& in, const auto& data) { return make_redis(over_loopback(in, "redis"), data); }},
        Named{"memcached_over_tcp",
              [](const auto& in, const auto& data) {
                return make_memcached(over_loopback(in, "memcached"), data);
              }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Subjects, LochOverTcpReadsRawWordsAndOthersRefuse) {
  const auto folder = lab::TempFolder::make("/dev/shm").value();
  const auto dataset = Dataset::make(10, 16, 64).value();
  const auto loch = make_loch(over_loopback(folder.path(), "loch"), dataset).value();
  ASSERT_TRUE(loch->start());
  {
    const auto session = loch->open().value();
    Histogram latencies;
    const auto many = session->raw_reads(0.01, 33, latencies);
    ASSERT_TRUE(many) << many.error().detail;
    EXPECT_GE(many->operations, 33u);
    EXPECT_EQ(latencies.count(), 0u);
    const auto one = session->raw_reads(0.01, 1, latencies);
    ASSERT_TRUE(one) << one.error().detail;
    EXPECT_EQ(latencies.count(), one->operations);
  }
  loch->stop();
  const auto redis = make_redis(over_loopback(folder.path(), "redis"), dataset).value();
  ASSERT_TRUE(redis->start());
  Histogram latencies;
  EXPECT_FALSE(redis->open().value()->raw_reads(0.01, 1, latencies));
}

TEST(ResidentBytes, OfThisProcessIsSomethingAndOfNoneIsNothing) {
  EXPECT_GT(resident_bytes(getpid()), 0u);
  EXPECT_EQ(resident_bytes(-1), 0u);
}

TEST(Subjects, WhoBeganBeforeAServerFindsItsPort) {
  const auto folder = lab::TempFolder::make("/dev/shm").value();
  const Place place = over_loopback(folder.path(), "some");
  EXPECT_EQ(place.port(), 0);
  const auto chosen = place.choose_port();
  ASSERT_TRUE(chosen) << chosen.error().detail;
  EXPECT_NE(*chosen, 0);
  EXPECT_EQ(Place(place).port(), *chosen);
}

TEST(Subjects, KeysThatAPeerCanNotTakeAreRefusedByName) {
  const auto dataset = Dataset::make(10, 512, 64).value();
  const auto lmdb = make_lmdb({"/dev/shm", "lmdb"}, dataset);
  ASSERT_FALSE(lmdb);
  EXPECT_NE(lmdb.error().detail.find("511"), std::string::npos);
  const auto memcached = make_memcached({"/dev/shm", "memcached"}, dataset);
  ASSERT_FALSE(memcached);
  EXPECT_NE(memcached.error().detail.find("250"), std::string::npos);
}

}  // namespace
}  // namespace loch::bench
