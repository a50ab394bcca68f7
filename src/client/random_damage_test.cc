// Hostile memory: words of anything, while calls go on.
#include <chrono>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <loch/loch.h>

#include "base/random.h"
#include "client/testing/damaged_store.h"
#include "hash/index.h"
#include "memory/layout.h"

namespace loch {
namespace {

using namespace std::chrono_literals;

// Two that have a small store open whose memory is overwritten between their calls. What they write is noted.
class RandomDamage : public fake::DamagedStore {
 protected:
  static constexpr std::uint64_t keys = 100;

  static std::string key(std::uint64_t i) { return fmt::format("key{:09}", i % keys); }
  std::string value(std::uint64_t i) {
    return fmt::format("{}={:{}}", key(i), random_.below(1'000), 4 + random_.below(20) * random_.below(80));
  }
  // One that the key is to get.
  std::string new_value(std::uint64_t i) { return *written_[key(i)].insert(value(i)).first; }
  void expect_own(std::string_view key, std::string_view got) const {
    const auto of_key = written_.find(key);
    EXPECT_TRUE(of_key != written_.end() && of_key->second.contains(got)) << key << " has " << got;
  }

  void begin_anew() {
    forget_files();
    second_.reset();
    store_.reset();
    ASSERT_TRUE(Store::destroy(url_).has_value());
    written_.clear();
    options_.max_bytes = std::uint64_t{64} << 20;
    options_.mode = Options::Mode::create;
    options_.timeout = 1s;
    second_.emplace(Store::open(url_, options_).value());
    for (std::uint64_t i = 0; i < keys; ++i) {
      const auto put = second_->put(key(i), new_value(i));
      ASSERT_TRUE(put.has_value()) << put.error().message();
    }
    // What can not succeed any more is to end soon.
    options_.mode = Options::Mode::attach;
    options_.timeout = 20ms;
    store_.emplace(Store::open(url_, options_).value());
    second_.emplace(Store::open(url_, options_).value());
  }

  // A word of anything, or a bit of what should be some key's home.
  void overwrite() {
    if (random_.below(2) == 0) {
      const fabric::Address at = address_of(locations(key(random_.below(keys))).slot[0]);
      write_at(at, read_at<std::uint64_t>(at) ^ std::uint64_t{1} << random_.below(64));
      return;
    }
    const bool is_slot = random_.below(2) == 0;
    const std::uint64_t descriptors = 16 * sizeof(memory::BlockDescriptor);
    const std::uint64_t limit = is_slot                 ? hash::row_bytes << hash::first_level
                                : random_.below(3) == 0 ? descriptors
                                                        : 3 * memory::block_bytes;
    const fabric::RegionId region = is_slot ? memory::index_region : memory::first_data_region;
    const std::uint64_t word = random_.below(3) == 0 ? random_.next() & 0xfff : random_.next();
    write_at({region, random_.below(limit / 8) * 8}, word);
  }

  void read_one(Store& store, std::uint64_t i) {
    const std::string name = key(i);
    std::string into = value(i);
    if (store.get(name, into)) expect_own(name, into);
    if (const auto got = store.get(name)) expect_own(name, *got);
    if (const auto view = store.view(name)) expect_own(name, view->value());
    [[maybe_unused]] const auto exists = store.exists(name);
  }
  void read_many(Store& store, std::uint64_t first) {
    std::vector<std::string> names;
    for (std::uint64_t i = first; i < first + 20; ++i) names.push_back(key(i));
    std::vector<Lookup> lookups;
    for (const std::string& name : names) lookups.push_back({.key = name, .value = value(lookups.size())});
    store.multi_get(lookups);
    for (const Lookup& one : lookups) {
      if (one.result) expect_own(one.key, one.value);
    }
  }
  void write_one(Store& store, std::uint64_t i) {
    const auto item = store.read(key(i));
    if (item) expect_own(key(i), item->value);
    switch (random_.below(5)) {
      case 0:
        std::ignore = store.put(key(i), new_value(i));
        break;
      case 1:
        std::ignore = store.remove(key(i));
        break;
      case 2:
        std::ignore = store.insert(key(i), new_value(i));
        break;
      case 3:
        std::ignore = store.remove(key(i), item ? item->version : Version{});
        break;
      default:
        std::ignore = store.replace(key(i), new_value(i), item ? item->version : Version{});
        break;
    }
  }
  void write_many(Store& store, std::uint64_t first) {
    std::vector<std::string> words;
    for (std::uint64_t i = first; i < first + 8; ++i) {
      words.push_back(key(i));
      words.push_back(new_value(i));
    }
    std::vector<Assignment> assignments;
    for (std::size_t i = 0; i < words.size(); i += 2)
      assignments.push_back({.key = words[i], .value = words[i + 1]});
    store.multi_put(assignments);
  }

  const std::uint64_t seed_ = base::system_seed();
  base::Random random_{seed_};
  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> written_;
  std::optional<Store> second_;
};

// Random words over slots, descriptors and items. Expect: answers or errors, and no value that the key never
// had.
TEST_F(RandomDamage, NoValueIsWrong) {
  SCOPED_TRACE(fmt::format("seed {}", seed_));
  for (int round = 0; round < 12 && !HasFailure(); ++round) {
    ASSERT_NO_FATAL_FAILURE(begin_anew());
    for (int step = 0; step < 200; ++step) {
      Store& store = random_.below(2) == 0 ? *store_ : *second_;
      const std::uint64_t i = random_.below(keys);
      const std::uint64_t what = random_.below(8);
      if (what < 2) {
        overwrite();
      } else if (what < 4) {
        read_one(store, i);
      } else if (what < 6) {
        write_one(store, i);
      } else if (what == 6) {
        read_many(store, i);
      } else {
        write_many(store, i);
      }
    }
    std::ignore = store_->for_each([&](const Entry& entry) {
      expect_own(entry.key, entry.value);
      return true;
    });
    std::ignore = store_->count();
    std::ignore = store_->check();
    std::ignore = store_->collect();
  }
  second_.reset();
}

}  // namespace
}  // namespace loch
