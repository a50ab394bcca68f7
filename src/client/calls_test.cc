// The calls, their limits and their errors (testing/calls.h).
#include "client/testing/calls.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <loch/loch.h>

#include "base/random.h"
#include "base/testing/comes_true.h"

namespace loch::calls {
namespace {

using base::fake::comes_true;

TEST_P(Calls, WhatIsPutIsGotUntilItIsRemoved) {
  EXPECT_EQ(store_->get("a").error().code, Errc::not_found);
  ASSERT_TRUE(store_->put("a", "1").has_value());
  EXPECT_EQ(store_->get("a").value(), "1");
  ASSERT_TRUE(store_->put("a", "2").has_value());
  EXPECT_EQ(store_->get("a").value(), "2");
  ASSERT_TRUE(store_->remove("a").has_value());
  EXPECT_EQ(store_->get("a").error().code, Errc::not_found);
  EXPECT_EQ(store_->remove("a").error().code, Errc::not_found);
}

// Receive: writes of one client after the other, of a key that both of them know. Expect: each sees at once
// what the other one wrote, by every call.
TEST_P(Calls, WhatOneClientWritesTheOtherOneSees) {
  std::optional<Store> other;
  ASSERT_NO_FATAL_FAILURE(open(&other));
  const std::array<Store*, 2> clients{&*store_, &*other};
  std::string into;
  std::vector<Lookup> lookups(1);
  lookups[0].key = "k";
  for (std::size_t i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    Store& writer = *clients[i % 2];
    Store& reader = *clients[(i + 1) % 2];
    // By turns longer, shorter, and as long as before.
    const std::string value(10 + (i / 2 * 13) % 70, static_cast<char>('a' + i % 26));
    const auto expect_value = [&] {
      EXPECT_EQ(reader.get("k").value_or("nothing"), value);
      EXPECT_TRUE(reader.get("k", into).has_value());
      EXPECT_EQ(into, value);
      const View view = reader.view("k").value_or(View());
      EXPECT_EQ(view.value(), value);
      EXPECT_TRUE(reader.exists("k").value_or(false));
      reader.multi_get(lookups);
      EXPECT_TRUE(lookups[0].result.has_value());
      EXPECT_EQ(lookups[0].value, value);
    };
    ASSERT_TRUE(writer.insert("k", "inserted").has_value());
    EXPECT_EQ(reader.insert("k", value).error().code, Errc::exists);
    std::vector<Assignment> assignments{{.key = "k", .value = value}};
    writer.multi_put(assignments);
    ASSERT_TRUE(assignments[0].result.has_value());
    expect_value();
    ASSERT_TRUE(writer.put("k", "another").has_value());
    const auto read = reader.read("k");
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->value, "another");
    ASSERT_TRUE(writer.replace("k", value, read->version).has_value());
    EXPECT_EQ(reader.replace("k", "too late", read->version).error().code, Errc::changed);
    expect_value();
    ASSERT_TRUE(writer.remove("k").has_value());
    EXPECT_EQ(reader.get("k").error().code, Errc::not_found);
    EXPECT_EQ(reader.get("k", into).error().code, Errc::not_found);
    reader.multi_get(lookups);
    EXPECT_EQ(lookups[0].result.error().code, Errc::not_found);
    EXPECT_FALSE(reader.exists("k").value_or(true));
    EXPECT_EQ(reader.remove("k").error().code, Errc::not_found);
  }
}

// A model test: random operations of two clients on the store, and the same on a map, all answers compared.
TEST_P(Calls, BehavesAsAMap) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  std::optional<Store> other;
  ASSERT_NO_FATAL_FAILURE(open(&other));
  const std::array<Store*, 2> clients{&*store_, &*other};
  std::map<std::string, std::string> model;
  for (std::size_t i = 0; i < few(60'000); ++i) {
    const std::string key = fmt::format("key{}", random.below(few(20'000)));
    // Some after another, since the plainest calls are those of the client that the thread used last.
    Store& client = *clients[i / 10 % 2];
    switch (random.below(6)) {
      case 0: {
        const auto got = client.get(key);
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
        const auto put = client.put(key, value);
        ASSERT_TRUE(put.has_value()) << put.error().message();
        model[key] = value;
        break;
      }
      case 4: {
        const auto inserted = client.insert(key, "inserted");
        ASSERT_EQ(inserted.has_value(), model.try_emplace(key, "inserted").second);
        break;
      }
      default: {
        const auto removed = client.remove(key);
        ASSERT_EQ(removed.has_value(), model.erase(key) == 1)
            << key << (removed ? "" : removed.error().message());
        break;
      }
    }
  }
  other.reset();
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

TEST_P(Calls, AVisitMayUseTheStore) {
  const std::size_t count = few(100, 10);
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_TRUE(store_->put(fmt::format("key{}", i), fmt::format("{}", i)));
  std::size_t visited = 0;
  const auto done = store_->for_each([&](const Entry& entry) {
    ++visited;
    EXPECT_EQ(store_->get(entry.key).value_or("none"), entry.value);
    EXPECT_FALSE(store_->exists("absent").value_or(true));
    return true;
  });
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_EQ(visited, count);
}

// ---- keys and values

TEST_P(Calls, ValuesOfAllLengths) {
  std::vector<std::size_t> lengths = {0, 1, 7, 8, 15, 16, 63, 64, 65, 1'000, 4'096, 65'536, 524'000, 524'288};
  for (const std::size_t around : {std::size_t{1} << 20, std::size_t{3} << 20}) {
    for (const std::size_t less : {0, 1, 48, 49, 52, 53, 100}) lengths.push_back(around - less);
  }
  lengths.push_back(value_bytes_max);
  base::Random random(1);
  std::erase_if(lengths, [](std::size_t length) { return length > GetParam().longest_value_bytes; });
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

TEST_P(Calls, KeysAreAnyBytesOfOneTo4096) {
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

// Of keys that this client knows, or does not; what it costs is in far_get_test.cc.
TEST_P(Calls, ExistsWhatIsThere) {
  std::optional<Store> other;
  ASSERT_NO_FATAL_FAILURE(open(&other));
  for (const std::size_t length : {0, 100, 100'000}) {
    SCOPED_TRACE(length);
    const std::string value(length, 'v');
    EXPECT_FALSE(store_->exists("k").value());
    ASSERT_TRUE(other->put("k", value).has_value());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(store_->exists("k").value());
    EXPECT_EQ(store_->get("k").value(), value);
    EXPECT_TRUE(store_->exists("k").value());
    ASSERT_TRUE(other->put("k", value + "more", {.time_to_live = std::chrono::hours(1)}).has_value());
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(store_->exists("k").value());
    ASSERT_TRUE(store_->get("k").has_value());
    EXPECT_TRUE(store_->exists("k").value());
    ASSERT_TRUE(other->remove("k").has_value());
  }
}

TEST_P(Calls, ErrorsNameTheirOperation) {
  EXPECT_STREQ(store_->get("absent").error().operation, "get");
  EXPECT_STREQ(store_->read("absent").error().operation, "read");
  EXPECT_STREQ(store_->view("absent").error().operation, "view");
  EXPECT_STREQ(store_->remove("absent").error().operation, "remove");
}

TEST_P(Calls, InsertOnlyWhatIsAbsent) {
  EXPECT_TRUE(store_->insert("k", "one").has_value());
  const auto again = store_->insert("k", "two");
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Errc::exists);
  EXPECT_STREQ(again.error().operation, "insert");
  EXPECT_NE(again.error().key_hash, 0U);
  EXPECT_EQ(store_->get("k").value(), "one");
}

TEST_P(Calls, ReplaceOnlyWhatWasRead) {
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

TEST_P(Calls, WritesSayTheVersionOfWhatTheyWrote) {
  for (const std::size_t length : {10, 300, 20'000}) {
    SCOPED_TRACE(length);
    const std::string value(length, 'v');
    const auto expect_version = [&](const Result<Version>& written) {
      ASSERT_TRUE(written.has_value()) << written.error().message();
      EXPECT_EQ(store_->read("k")->version, *written);
      EXPECT_EQ(store_->view("k")->version(), *written);
    };
    expect_version(store_->insert("k", value));
    // The second update is one of a key that this client knows.
    for (int i = 0; i < 2; ++i) expect_version(store_->put("k", value));
    const auto written = store_->put("k", value, {.time_to_live = std::chrono::hours(1)});
    expect_version(written);
    expect_version(store_->replace("k", value, *written));
    ASSERT_TRUE(store_->remove("k").has_value());
    expect_version(store_->put("k", value));
    ASSERT_TRUE(store_->remove("k").has_value());
  }
}

TEST_P(Calls, RemoveOnlyWhatWasRead) {
  std::optional<Store> other;
  ASSERT_NO_FATAL_FAILURE(open(&other));
  const auto first = store_->put("k", "one");
  ASSERT_TRUE(first.has_value());
  const auto second = other->put("k", "two");
  ASSERT_TRUE(second.has_value());
  const auto removed = store_->remove("k", *first);
  EXPECT_EQ(removed.error().code, Errc::changed);
  EXPECT_STREQ(removed.error().operation, "remove");
  EXPECT_NE(removed.error().key_hash, 0U);
  EXPECT_EQ(store_->get("k").value(), "two");
  EXPECT_TRUE(store_->remove("k", *second).has_value());
  EXPECT_EQ(other->get("k").error().code, Errc::not_found);
  EXPECT_EQ(store_->remove("k", *second).error().code, Errc::not_found);
  // What has expired is absent, whatever its version.
  const auto brief = store_->put("k", "three", {.time_to_live = std::chrono::milliseconds(1)});
  ASSERT_TRUE(brief.has_value());
  EXPECT_TRUE(comes_true([&] { return !store_->get("k").has_value(); }));
  EXPECT_EQ(store_->remove("k", *brief).error().code, Errc::not_found);
  EXPECT_EQ(store_->remove("", *brief).error().code, Errc::invalid_argument);
}

// Receive: a View that is about to go. Expect: it shows nothing, which would outlive its memory.
template <class V>
concept ShowsValue = requires(V&& view) { std::forward<V>(view).value(); };
static_assert(ShowsValue<View&> && ShowsValue<const View&>);
static_assert(!ShowsValue<View> && !ShowsValue<const View>);

TEST_P(Calls, AViewThatWasMovedFromShowsNothing) {
  ASSERT_TRUE(store_->put("k", "value").has_value());
  ASSERT_TRUE(store_->put("l", "another").has_value());
  View first = std::move(*store_->view("k"));
  View second = std::move(*store_->view("l"));
  const Version version = second.version();
  first = std::move(second);
  EXPECT_EQ(first.value(), "another");
  EXPECT_EQ(first.version(), version);
  EXPECT_EQ(second.value(), "");  // NOLINT(bugprone-use-after-move): what this is about
  EXPECT_EQ(second.version(), Version());
  const View third(std::move(first));
  EXPECT_EQ(third.value(), "another");
  EXPECT_EQ(first.value(), "");  // NOLINT(bugprone-use-after-move): likewise
}

TEST_P(Calls, ViewsPinTheirMemory) {
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
  {
    const View moved = std::move(*view);
    EXPECT_EQ(moved.value(), value);
  }
  const auto reused = [&] { return store_->stats()[Counter::items_reused]; };
  const std::uint64_t reused_before = reused();
  EXPECT_TRUE(comes_true([&] {
    EXPECT_TRUE(store_->put("k", value).has_value());
    return reused() > reused_before;
  })) << "it was not wanted, or is pinned still";
  EXPECT_EQ(store_->view("absent").error().code, Errc::not_found);
}

TEST_P(Calls, AViewOutlivesItsStoreObject) {
  ASSERT_TRUE(store_->put("k", "value").has_value());
  auto view = store_->view("k");
  ASSERT_TRUE(view.has_value());
  store_.reset();
  EXPECT_EQ(view->value(), "value");
}

TEST_P(Calls, GetIntoAStringKeepsItsCapacity) {
  ASSERT_TRUE(store_->put("k", "short").has_value());
  std::string into(10'000, 'x');
  const std::size_t capacity = into.capacity();
  ASSERT_TRUE(store_->get("k", into).has_value());
  EXPECT_EQ(into, "short");
  EXPECT_EQ(into.capacity(), capacity);
}

// Values and keys of all short lengths, read into a string that is as long already, and into one that is not.
TEST_P(Calls, GetIntoAStringOfAnyLength) {
  std::string into;
  std::string same;
  for (std::size_t length = 0; length <= 600; length += length < 300 ? length_step() : 37) {
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
TEST_P(Calls, GetOfKeysOfAllLengthsTheShortestWay) {
  constexpr std::size_t key_bytes_max = 140;
  std::string letters;
  for (std::size_t i = 0; i < key_bytes_max; ++i) letters += static_cast<char>('a' + i % 23);
  const auto value_of = [&](std::size_t length) {
    return std::string(64, static_cast<char>('A' + length % 26));
  };
  std::vector<std::size_t> lengths;
  for (std::size_t length = 1; length <= key_bytes_max; length += length_step()) lengths.push_back(length);
  for (const std::size_t length : lengths) {
    ASSERT_TRUE(store_->put(letters.substr(0, length), value_of(length)).has_value());
  }
  std::string into(64, 0);
  const std::uint64_t hits_before = store_->stats()[Counter::get_hit];
  for (const std::size_t length : lengths) {
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
  EXPECT_EQ(store_->stats()[Counter::get_hit] - hits_before, lengths.size()) << "each counts once";
}

// ---- times to live

TEST_P(Calls, TimesToLive) {
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
  EXPECT_TRUE(comes_true([&] { return !store_->get("short").has_value(); }));
  EXPECT_EQ(store_->get("short").error().code, Errc::not_found);
  EXPECT_FALSE(store_->exists("short").value());
  EXPECT_EQ(store_->remove("short").error().code, Errc::not_found);
  ASSERT_TRUE(store_->insert("short", "4").has_value()) << "what has expired is absent";
  EXPECT_EQ(store_->get("short").value(), "4");
  // A get into a string of the value's length takes the shortest way; it looks at the time too.
  std::string value;
  ASSERT_TRUE(store_->put("brief", "y", {.time_to_live = milliseconds(1)}).has_value());
  EXPECT_TRUE(comes_true([&] {
    value = "x";
    return !store_->get("brief", value).has_value();
  }));
  EXPECT_EQ(store_->get("brief", value).error().code, Errc::not_found);
}

// Receive: times to live that are none, among them what a time below 1 ms is rounded to. Expect: an error,
// and no item that lives for ever.
TEST_P(Calls, TimesToLiveHaveLimits) {
  using std::chrono::milliseconds;
  ASSERT_TRUE(store_->put("k", "1", {.time_to_live = time_to_live_max}).has_value());
  EXPECT_LE(store_->read("k").value().time_to_live, time_to_live_max);
  EXPECT_GT(store_->read("k").value().time_to_live, time_to_live_max - std::chrono::hours(1));
  for (const milliseconds bad : {milliseconds(0), milliseconds(-1), milliseconds::min(),
                                 time_to_live_max + milliseconds(1), milliseconds::max()}) {
    for (const char* key : {"k", "new"}) {
      const auto put = store_->put(key, "2", {.time_to_live = bad});
      ASSERT_FALSE(put.has_value());
      EXPECT_EQ(put.error().code, Errc::invalid_argument);
      EXPECT_NE(put.error().detail.find(fmt::format("{}", time_to_live_max.count())), std::string::npos);
      EXPECT_NE(put.error().detail.find("leave it out"), std::string::npos) << put.error().detail;
      std::vector<Assignment> assignments{{.key = key, .value = "2", .options = {.time_to_live = bad}}};
      store_->multi_put(assignments);
      EXPECT_EQ(assignments[0].result.error().code, Errc::invalid_argument);
    }
  }
  EXPECT_EQ(store_->get("k").value(), "1");
}

// ---- info, stats

TEST_P(Calls, InfoSaysWhatTheStoreIs) {
  const std::size_t bytes = std::min(std::size_t{5'000'000}, GetParam().longest_value_bytes);
  ASSERT_TRUE(store_->put("k", std::string(bytes, 'x')).has_value());
  const auto info = store_->info();
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->name, World::store_name);
  EXPECT_EQ(info->directory, world_->location());
  EXPECT_EQ(info->candidates, 3U);
  EXPECT_EQ(info->index_slots, 8U * 512);
  EXPECT_FALSE(info->index_growing);
  EXPECT_GE(info->index_bytes, info->index_slots * 8);
  EXPECT_GE(info->data_bytes, bytes);
  EXPECT_GT(info->blocks, bytes >> 20);
  EXPECT_EQ(info->clients, 1U);
  EXPECT_EQ(info->expiry, std::chrono::milliseconds(50));
  EXPECT_EQ(info->totals[Counter::put_insert], 1U);
}

TEST_P(Calls, CountersCountEachOutcome) {
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
  ASSERT_TRUE(store_->put("k", "1", {.time_to_live = std::chrono::milliseconds(1)}).has_value());
  EXPECT_TRUE(comes_true([&] { return !store_->exists("k").value_or(false); }));
  const Stats over = store_->stats();
  EXPECT_TRUE(store_->insert("k", "2").has_value());
  EXPECT_EQ(store_->stats()[Counter::put_insert] - over[Counter::put_insert], 1U) << "of what is over";
  // The totals outlive the session.
  store_.reset();
  std::optional<Store> again;
  ASSERT_NO_FATAL_FAILURE(open(&again));
  EXPECT_EQ(again->info()->totals[Counter::put_insert], 3U);
  EXPECT_EQ(again->stats()[Counter::put_insert], 0U);
}

}  // namespace
}  // namespace loch::calls
