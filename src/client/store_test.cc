// Store over shared memory: the calls, their limits and their errors.
#include "client/testing/store_test.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <loch/loch.h>

#include "base/barrier.h"
#include "base/file_descriptor.h"
#include "base/random.h"
#include "memory/layout.h"

namespace loch {
namespace {

using StoreTest = fake::StoreTest;

TEST_F(StoreTest, WhatIsPutIsGotUntilItIsRemoved) {
  EXPECT_EQ(store_->get("a").error().code, Errc::not_found);
  ASSERT_TRUE(store_->put("a", "1").has_value());
  EXPECT_EQ(store_->get("a").value(), "1");
  ASSERT_TRUE(store_->put("a", "2").has_value());
  EXPECT_EQ(store_->get("a").value(), "2");
  ASSERT_TRUE(store_->remove("a").has_value());
  EXPECT_EQ(store_->get("a").error().code, Errc::not_found);
  EXPECT_EQ(store_->remove("a").error().code, Errc::not_found);
}

// Receive: words as the index's directory that no client writes, before and between calls that went by the
// right one. Expect: errors for as long as they stand there, no crash, and all as before when they are gone.
TEST_F(StoreTest, ADirectoryThatNoClientWritesIsDamage) {
  const std::string key = "a key of 15 byt";
  const std::string control = store_->info()->directory + "/region.0";
  const base::FileDescriptor file(::open(control.c_str(), O_RDWR));
  constexpr off_t at = memory::index_root_offset;
  std::uint64_t right = 0;
  ASSERT_EQ(::pread(file.get(), &right, sizeof right, at), 8);
  const auto write = [&](std::uint64_t word) { ASSERT_EQ(::pwrite(file.get(), &word, sizeof word, at), 8); };
  for (const std::uint64_t level : {0, 26, 30, 31, 58, 63, 64, 255}) {
    SCOPED_TRACE(level);
    ASSERT_TRUE(store_->put(key, "value").has_value());
    EXPECT_EQ(store_->get(key).value(), "value");
    write((right & ~std::uint64_t{0xff}) | level);
    const auto got = store_->get(key);
    const auto put = store_->put(key, "another");
    EXPECT_FALSE(store_->remove(key).has_value());
    std::vector<Lookup> lookups{{.key = key, .value = {}}};
    store_->multi_get(lookups);
    EXPECT_FALSE(lookups.front().result.has_value());
    [[maybe_unused]] const auto counted = store_->count();
    EXPECT_FALSE(got.has_value());
    EXPECT_FALSE(put.has_value());
    if (level == 0 || level > 30) {
      EXPECT_EQ(got.error().code, Errc::corrupt) << got.error().message();
      EXPECT_EQ(put.error().code, Errc::corrupt) << put.error().message();
    }
    write(right);
    EXPECT_EQ(store_->get(key).value(), "value");
  }
}

// A model test: random operations on the store and on a map, all answers compared.
TEST_F(StoreTest, BehavesAsAMap) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  std::map<std::string, std::string> model;
  for (int i = 0; i < 60'000; ++i) {
    const std::string key = fmt::format("key{}", random.below(20'000));
    switch (random.below(6)) {
      case 0: {
        const auto got = store_->get(key);
        const auto it = model.find(key);
        ASSERT_EQ(got.has_value(), it != model.end()) << key;
        if (got) ASSERT_EQ(*got, it->second);
        break;
      }
      case 1:
      case 2:
      case 3: {
        const std::string value(random.below(random.below(20) == 0 ? 9000 : 200),
                                static_cast<char>('a' + random.below(26)));
        const auto put = store_->put(key, value);
        ASSERT_TRUE(put.has_value()) << put.error().message();
        model[key] = value;
        break;
      }
      case 4: {
        const auto inserted = store_->insert(key, "inserted");
        ASSERT_EQ(inserted.has_value(), model.try_emplace(key, "inserted").second);
        break;
      }
      default: {
        const auto removed = store_->remove(key);
        ASSERT_EQ(removed.has_value(), model.erase(key) == 1)
            << key << (removed ? "" : removed.error().message());
        break;
      }
    }
  }
  std::map<std::string, std::string> walked;
  const auto done = store_->for_each([&](const Entry& entry) {
    EXPECT_TRUE(walked.emplace(entry.key, entry.value).second) << "visited twice: " << entry.key;
    return true;
  });
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_EQ(walked, model);
  EXPECT_EQ(store_->count().value(), model.size());
  const auto report = store_->check();
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->items, model.size());
  EXPECT_EQ(report->items_unaccounted, 0U);
  EXPECT_EQ(report->slots_pending, 0U);
  EXPECT_EQ(report->slots_corrupt, 0U);
  EXPECT_EQ(report->items_corrupt, 0U);
  for (const auto& finding : report->findings) ADD_FAILURE() << finding;
}

TEST_F(StoreTest, AVisitMayUseTheStore) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(store_->put(fmt::format("key{}", i), fmt::format("{}", i)));
  int visited = 0;
  const auto done = store_->for_each([&](const Entry& entry) {
    ++visited;
    EXPECT_EQ(store_->get(entry.key).value_or("none"), entry.value);
    EXPECT_FALSE(store_->exists("absent").value_or(true));
    return true;
  });
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_EQ(visited, 100);
}

// ---- keys and values

TEST_F(StoreTest, ValuesOfAllLengths) {
  std::vector<std::size_t> lengths = {0, 1, 7, 8, 15, 16, 63, 64, 65, 1'000, 4'096, 65'536, 524'000, 524'288};
  for (const std::size_t around : {std::size_t{1} << 20, std::size_t{3} << 20}) {
    for (const std::size_t less : {0, 1, 48, 49, 52, 53, 100}) lengths.push_back(around - less);
  }
  lengths.push_back(value_bytes_max);
  base::Random random(1);
  for (const std::size_t length : lengths) {
    SCOPED_TRACE(length);
    std::string value(length, '\0');
    for (std::size_t i = 0; i + 8 <= length; i += 8) {
      const std::uint64_t word = random.next();
      std::memcpy(value.data() + i, &word, sizeof word);
    }
    const auto put = store_->put("key", value);
    ASSERT_TRUE(put.has_value()) << put.error().message();
    const auto got = store_->get("key");
    ASSERT_TRUE(got.has_value()) << got.error().message();
    EXPECT_TRUE(*got == value);
  }
  const auto longer = store_->put("key", std::string(value_bytes_max + 1, 'x'));
  ASSERT_FALSE(longer.has_value());
  EXPECT_EQ(longer.error().code, Errc::invalid_argument);
}

TEST_F(StoreTest, KeysAreAnyBytesOfOneTo4096) {
  const std::vector<std::string> keys = {std::string(1, '\0'),
                                         std::string("\0\0", 2),
                                         "\xff\xfe",
                                         std::string(key_bytes_max, 'k'),
                                         std::string(key_bytes_max - 1, 'k'),
                                         "a\nb\tc"};
  for (const std::string& key : keys) ASSERT_TRUE(store_->put(key, key + "!").has_value());
  for (const std::string& key : keys) EXPECT_EQ(store_->get(key).value(), key + "!");
  EXPECT_EQ(store_->count().value(), keys.size());
  for (const std::string& bad : {std::string(), std::string(key_bytes_max + 1, 'k')}) {
    EXPECT_EQ(store_->put(bad, "v").error().code, Errc::invalid_argument);
    EXPECT_EQ(store_->get(bad).error().code, Errc::invalid_argument);
    EXPECT_EQ(store_->remove(bad).error().code, Errc::invalid_argument);
    EXPECT_EQ(store_->exists(bad).error().code, Errc::invalid_argument);
    EXPECT_EQ(store_->view(bad).error().code, Errc::invalid_argument);
    EXPECT_EQ(store_->insert(bad, "v").error().code, Errc::invalid_argument);
    EXPECT_EQ(store_->replace(bad, "v", {}).error().code, Errc::invalid_argument);
  }
}

TEST_F(StoreTest, ExistsAnswersWithoutTheValue) {
  EXPECT_FALSE(store_->exists("k").value());
  ASSERT_TRUE(store_->put("k", "").has_value());
  EXPECT_TRUE(store_->exists("k").value());
}

TEST_F(StoreTest, ErrorsNameTheirOperation) {
  EXPECT_STREQ(store_->get("absent").error().operation, "get");
  EXPECT_STREQ(store_->read("absent").error().operation, "read");
  EXPECT_STREQ(store_->view("absent").error().operation, "view");
  options_.file_mode = 0777;
  EXPECT_STREQ(Store::open(url_, options_).error().operation, "open");
  EXPECT_STREQ(Store::create(url_, options_).error().operation, "create");
}

TEST_F(StoreTest, InsertOnlyWhatIsAbsent) {
  EXPECT_TRUE(store_->insert("k", "one").has_value());
  const auto again = store_->insert("k", "two");
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Errc::exists);
  EXPECT_STREQ(again.error().operation, "insert");
  EXPECT_NE(again.error().key_hash, 0U);
  EXPECT_EQ(store_->get("k").value(), "one");
}

TEST_F(StoreTest, ReplaceOnlyWhatWasRead) {
  ASSERT_TRUE(store_->put("k", "one").has_value());
  const auto first = store_->read("k");
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->value, "one");
  EXPECT_FALSE(first->time_to_live.has_value());
  const auto second = store_->replace("k", "two", first->version);
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(*second, first->version);
  EXPECT_EQ(store_->read("k")->version, *second);
  EXPECT_EQ(store_->replace("k", "three", first->version).error().code, Errc::changed);
  EXPECT_TRUE(store_->replace("k", "three", *second).has_value());
  // The same bytes again are another item.
  const auto before = store_->read("k");
  ASSERT_TRUE(store_->put("k", "three").has_value());
  EXPECT_EQ(store_->replace("k", "four", before->version).error().code, Errc::changed);
  EXPECT_EQ(store_->replace("absent", "v", before->version).error().code, Errc::not_found);
  EXPECT_EQ(store_->get("k").value(), "three");
}

TEST_F(StoreTest, ViewsPinTheirMemory) {
  const std::string value(1'000, 'a');
  ASSERT_TRUE(store_->put("k", value).has_value());
  auto view = store_->view("k");
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->value(), value);
  EXPECT_EQ(view->version(), store_->read("k")->version);
  // The expiry is 50 ms; for four of them the memory is wanted.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(250);
  int i = 0;
  while (std::chrono::steady_clock::now() < until) {
    ASSERT_TRUE(store_->put("k", std::string(1'000, static_cast<char>('b' + i++ % 20))).has_value());
  }
  EXPECT_EQ(view->value(), value);
  const View moved = std::move(*view);
  EXPECT_EQ(moved.value(), value);
  EXPECT_EQ(store_->view("absent").error().code, Errc::not_found);
}

TEST_F(StoreTest, AViewOutlivesItsStoreObject) {
  ASSERT_TRUE(store_->put("k", "value").has_value());
  auto view = store_->view("k");
  ASSERT_TRUE(view.has_value());
  store_.reset();
  EXPECT_EQ(view->value(), "value");
}

TEST_F(StoreTest, GetIntoAStringKeepsItsCapacity) {
  ASSERT_TRUE(store_->put("k", "short").has_value());
  std::string into(10'000, 'x');
  const std::size_t capacity = into.capacity();
  ASSERT_TRUE(store_->get("k", into).has_value());
  EXPECT_EQ(into, "short");
  EXPECT_EQ(into.capacity(), capacity);
}

// Values and keys of all short lengths, read into a string that is as long already, and into one that is not.
TEST_F(StoreTest, GetIntoAStringOfAnyLength) {
  std::string into;
  std::string same;
  for (std::size_t length = 0; length <= 600; length = length < 300 ? length + 1 : length + 37) {
    SCOPED_TRACE(length);
    const std::string key(1 + length % 140, static_cast<char>('a' + length % 26));
    std::string value(length, '\0');
    for (std::size_t i = 0; i < length; ++i) value[i] = static_cast<char>(i * 7 + length);
    ASSERT_TRUE(store_->put(key, value).has_value());
    same.assign(length, '?');
    ASSERT_TRUE(store_->get(key, same).has_value());
    EXPECT_EQ(same, value);
    ASSERT_TRUE(store_->get(key, into).has_value());
    EXPECT_EQ(into, value);
    std::vector<Lookup> lookups(2);
    lookups[0] = {.key = key, .value = std::string(length, '?')};
    lookups[1] = {.key = key, .value = "another length"};
    store_->multi_get(lookups);
    for (const Lookup& lookup : lookups) {
      ASSERT_TRUE(lookup.result.has_value());
      EXPECT_EQ(lookup.value, value);
    }
  }
}

// Receive: gets of keys of all lengths into strings as long as their values, which take the shortest ways,
// and of keys that differ from those in one byte. Expect: each key's own value, and nothing of the others.
TEST_F(StoreTest, GetOfKeysOfAllLengthsTheShortestWay) {
  constexpr std::size_t key_bytes_max = 140;
  std::string letters;
  for (std::size_t i = 0; i < key_bytes_max; ++i) letters += static_cast<char>('a' + i % 23);
  const auto value_of = [&](std::size_t length) {
    return std::string(64, static_cast<char>('A' + length % 26));
  };
  for (std::size_t length = 1; length <= key_bytes_max; ++length) {
    ASSERT_TRUE(store_->put(letters.substr(0, length), value_of(length)).has_value());
  }
  std::string into(64, 0);
  const std::uint64_t hits_before = store_->stats()[Counter::get_hit];
  for (std::size_t length = 1; length <= key_bytes_max; ++length) {
    const std::string key = letters.substr(0, length);
    ASSERT_TRUE(store_->get(key, into).has_value()) << length;
    ASSERT_EQ(into, value_of(length));
    for (const std::size_t at : {std::size_t{0}, length / 2, length - 1}) {
      std::string other = key;
      other[at] = '-';
      ASSERT_EQ(store_->get(other, into).error().code, Errc::not_found) << length;
      into.resize(64);
    }
  }
  EXPECT_EQ(store_->stats()[Counter::get_hit] - hits_before, key_bytes_max) << "each counts once";
}

// ---- times to live

TEST_F(StoreTest, TimesToLive) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  ASSERT_TRUE(store_->put("long", "1", {.time_to_live = hours(1)}).has_value());
  ASSERT_TRUE(store_->put("short", "2", {.time_to_live = milliseconds(1)}).has_value());
  ASSERT_TRUE(store_->put("ever", "3").has_value());
  EXPECT_EQ(store_->get("long").value(), "1");
  const auto item = store_->read("long");
  ASSERT_TRUE(item.has_value());
  ASSERT_TRUE(item->time_to_live.has_value());
  EXPECT_LE(*item->time_to_live, hours(1));
  EXPECT_GT(*item->time_to_live, milliseconds(0));
  EXPECT_FALSE(store_->read("ever").value().time_to_live.has_value());
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (store_->get("short").has_value() && std::chrono::steady_clock::now() < give_up)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(store_->get("short").error().code, Errc::not_found);
  EXPECT_FALSE(store_->exists("short").value());
  EXPECT_EQ(store_->remove("short").error().code, Errc::not_found);
  ASSERT_TRUE(store_->insert("short", "4").has_value()) << "what has expired is absent";
  EXPECT_EQ(store_->get("short").value(), "4");
  // A get into a string of the value's length takes the shortest way; it looks at the time too.
  std::string value = "x";
  ASSERT_TRUE(store_->put("brief", "y", {.time_to_live = milliseconds(1)}).has_value());
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(store_->get("brief", value).error().code, Errc::not_found);
}

TEST_F(StoreTest, TimesToLiveHaveALimit) {
  using std::chrono::milliseconds;
  ASSERT_TRUE(store_->put("k", "1", {.time_to_live = time_to_live_max}).has_value());
  EXPECT_LE(store_->read("k").value().time_to_live, time_to_live_max);
  EXPECT_GT(store_->read("k").value().time_to_live, time_to_live_max - std::chrono::hours(1));
  for (const milliseconds bad : {milliseconds(-1), time_to_live_max + milliseconds(1), milliseconds::max()}) {
    for (const char* key : {"k", "new"}) {
      const auto put = store_->put(key, "2", {.time_to_live = bad});
      ASSERT_FALSE(put.has_value());
      EXPECT_EQ(put.error().code, Errc::invalid_argument);
      EXPECT_NE(put.error().detail.find(fmt::format("{}", time_to_live_max.count())), std::string::npos);
      std::vector<Assignment> assignments{{.key = key, .value = "2", .options = {.time_to_live = bad}}};
      store_->multi_put(assignments);
      EXPECT_EQ(assignments[0].result.error().code, Errc::invalid_argument);
    }
  }
  EXPECT_EQ(store_->get("k").value(), "1");
}

// ---- info, stats

// Receive: updates of a few keys, of several times as many bytes as the store may have, in less than an
// expiry of processes that all take part in barriers. Expect: the memory of what they replace is used again
// soon.
TEST_F(StoreTest, UpdatesNeedNoMemoryOfAWholeExpiry) {
  if (!base::take_part_in_barriers()) GTEST_SKIP() << "this kernel gives no barriers (membarrier)";
  Options options = options_;
  options.expiry = std::chrono::seconds(60);
  options.max_bytes = std::uint64_t{64} << 20;
  const std::string url = url_ + ".updates";
  auto store = Store::create(url, options);
  ASSERT_TRUE(store.has_value()) << store.error().message();
  const std::string value(200'000, 'v');
  for (int i = 0; i < 1'000; ++i) {
    const auto put = store->put(fmt::format("key{}", i % 8), value);
    ASSERT_TRUE(put.has_value()) << i << ": " << put.error().message();
  }
  EXPECT_TRUE(Store::destroy(url, options).has_value());
}

TEST_F(StoreTest, InfoSaysWhatTheStoreIs) {
  ASSERT_TRUE(store_->put("k", std::string(5'000'000, 'x')).has_value());
  const auto info = store_->info();
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ("shm://" + info->name, url_);
  EXPECT_NE(info->directory.find("/dev/shm"), std::string::npos);
  EXPECT_EQ(info->candidates, 3U);
  EXPECT_EQ(info->index_slots, 8U * 512);
  EXPECT_FALSE(info->index_growing);
  EXPECT_GE(info->index_bytes, info->index_slots * 8);
  EXPECT_GE(info->data_bytes, 5'000'000U);
  EXPECT_GE(info->blocks, 5U);
  EXPECT_EQ(info->clients, 1U);
  EXPECT_EQ(info->expiry, std::chrono::milliseconds(50));
  EXPECT_EQ(info->totals[Counter::put_insert], 1U);
}

TEST_F(StoreTest, CountersCountEachOutcome) {
  const Stats before = store_->stats();
  ASSERT_TRUE(store_->put("k", "1").has_value());
  ASSERT_TRUE(store_->put("k", "2").has_value());
  EXPECT_FALSE(store_->insert("k", "3").has_value());
  EXPECT_TRUE(store_->get("k").has_value());
  EXPECT_FALSE(store_->get("absent").has_value());
  EXPECT_TRUE(store_->exists("k").has_value());
  EXPECT_TRUE(store_->replace("k", "4", store_->read("k")->version).has_value());
  EXPECT_FALSE(store_->replace("k", "5", {}).has_value());
  EXPECT_TRUE(store_->remove("k").has_value());
  EXPECT_FALSE(store_->remove("k").has_value());
  const Stats after = store_->stats();
  const auto counted = [&](Counter counter) { return after[counter] - before[counter]; };
  EXPECT_EQ(counted(Counter::put_insert), 1U);
  EXPECT_EQ(counted(Counter::put_update), 1U);
  EXPECT_EQ(counted(Counter::insert_exists), 1U);
  EXPECT_EQ(counted(Counter::get_hit), 2U);
  EXPECT_EQ(counted(Counter::get_miss), 1U);
  EXPECT_EQ(counted(Counter::exists), 1U);
  EXPECT_EQ(counted(Counter::replace_done), 1U);
  EXPECT_EQ(counted(Counter::replace_changed), 1U);
  EXPECT_EQ(counted(Counter::remove_hit), 1U);
  EXPECT_EQ(counted(Counter::remove_miss), 1U);
  // The totals outlive the session.
  store_.reset();
  auto again = Store::open(url_);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->info()->totals[Counter::put_insert], 1U);
  EXPECT_EQ(again->stats()[Counter::put_insert], 0U);
}

}  // namespace
}  // namespace loch
