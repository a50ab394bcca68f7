// For tests: a client on another host, what its calls cost, and one on the store's own.
#pragma once

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "client/client.h"
#include "hash/testing/test_table.h"
#include "memory/testing/test_memory.h"

namespace loch::client::fake {

class Far : public testing::Test {
 protected:
  explicit Far(bool keeps_order = false) : keeps_order_(keeps_order) {
    memory::fake::tell_time(*store_);
    far_ = open();
  }

  // A session, all of which know where items were.
  std::unique_ptr<Client> open(std::size_t cache_bytes = 0) {
    const auto count = [this](const fabric::Operation& one) {
      ++total_.operations;
      total_.bytes += one.length_bytes;
      const bool is_slot = one.kind == fabric::Operation::Kind::read && one.at.region == memory::index_region;
      total_.slots += is_slot;
    };
    // Of those that link an item, since claiming and retiring go beside them.
    const auto count_batch = [this](std::span<const fabric::Operation> batch) {
      ++total_.batches;
      const bool links = std::ranges::any_of(batch, [](const fabric::Operation& one) {
        return one.kind == fabric::Operation::Kind::compare_swap && one.at.region == memory::index_region;
      });
      total_.linking += links;
      if (links && meanwhile_) meanwhile_();
      return false;
    };
    auto fabric = std::make_shared<fabric::fake::PostingFabric>(
        store_, fabric::fake::PostingOptions{.seed = 5,
                                             .keeps_order = keeps_order_,
                                             .mapped = {},
                                             .before = count,
                                             .round_trips = &total_.round_trips,
                                             .held = count_batch});
    return Client::open(memory::StoreMemory::attach(std::move(fabric)).value(),
                        {.cache_bytes = cache_bytes, .locations = &locations_})
        .value();
  }

  struct Cost {
    std::uint64_t round_trips = 0;
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
    std::uint64_t slots = 0;  // of the operations, those that read one
    std::uint64_t batches = 0;
    std::uint64_t linking = 0;  // of the batches
  };
  template <class T>
  Cost cost(coro::Task<T> task, T* result) {
    const Cost before = total_;
    *result = far_->run(std::move(task));
    return since(before);
  }
  Cost cost(coro::Task<void> task) {
    const Cost before = total_;
    far_->run(std::move(task));
    return since(before);
  }
  [[nodiscard]] Cost since(const Cost& before) const {
    return {.round_trips = total_.round_trips - before.round_trips,
            .operations = total_.operations - before.operations,
            .bytes = total_.bytes - before.bytes,
            .slots = total_.slots - before.slots,
            .batches = total_.batches - before.batches,
            .linking = total_.linking - before.linking};
  }
  Cost multi_get(std::vector<Lookup>& lookups) { return cost(far_->multi_get(lookups)); }
  Cost multi_put(std::vector<Assignment>& assignments) { return cost(far_->multi_put(assignments)); }
  coro::Task<Result<std::uint64_t>> put_alone(std::string_view key, std::string_view value) {
    return far_->put({.key = key, .value = value});
  }
  Cost get(const std::string& key, std::string& into, Result<void>& result) {
    return cost(far_->get(key, &into), &result);
  }
  // Keys with values of these lengths and more, which a client of this host puts there.
  std::vector<Lookup> put_keys(std::size_t count, std::size_t shortest) {
    for (std::size_t i = 0; i < count; ++i) {
      keys_.push_back(fmt::format("key{}", i));
      values_.emplace_back(shortest + i, static_cast<char>('a' + i % 26));
      EXPECT_TRUE(near_.put(keys_[i], values_[i]).has_value());
    }
    std::vector<Lookup> lookups(count);
    for (std::size_t i = 0; i < count; ++i) lookups[i].key = keys_[i];
    return lookups;
  }
  // That key, and another one with the same filter in one of its slots.
  void put_in_the_way_of(const std::string& key) {
    const hash::Locations at = hash::fake::locations(near_, key);
    const auto filter = near_.key_of(key).filter();
    const auto is_in_the_way = [&](const hash::Locations& other, std::uint64_t hash) {
      return other.slot[0] == at.slot[0] && hash::filter_of(hash) == filter;
    };
    ASSERT_TRUE(near_.put(hash::fake::find_key(near_, "other", is_in_the_way), "1").has_value());
    ASSERT_TRUE(near_.put(key, "the key's own").has_value());
    EXPECT_EQ(hash::fake::slot(*store_, at.slot[0]).filter(), filter);
  }
  // The next values of all keys.
  std::vector<Assignment> next_values() {
    std::vector<Assignment> assignments(keys_.size());
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      values_[i] += "+";
      assignments[i].key = keys_[i];
      assignments[i].value = values_[i];
    }
    return assignments;
  }
  void expect_put(const std::vector<Assignment>& assignments) {
    for (const Assignment& one : assignments) {
      EXPECT_TRUE(one.result.has_value()) << one.key << ": " << one.result.error().message();
      EXPECT_EQ(near_.get(one.key).value_or("none"), one.value);
    }
  }
  // Until it has items at hand.
  void warm_up() {
    for (int round = 0; round < 20; ++round) {
      auto assignments = next_values();
      multi_put(assignments);
      expect_put(assignments);
    }
  }
  void expect_all(const std::vector<Lookup>& lookups) const {
    for (std::size_t i = 0; i < lookups.size(); ++i) {
      EXPECT_TRUE(lookups[i].result.has_value()) << i << ": " << lookups[i].result.error().message();
      EXPECT_TRUE(lookups[i].value == values_[i]) << lookups[i].key;
    }
  }

  // Keys that are not there, whose slots are empty and none another's, but that every fourth has its home
  // taken.
  std::vector<std::string> absent_keys() {
    std::vector<std::string> absent;
    std::set<hash::SlotNumber> taken;
    const auto is_alone = [&](const hash::Locations& at, std::uint64_t /*hash*/) {
      return std::ranges::all_of(std::span(at.slot).first(at.count), [&](hash::SlotNumber slot) {
        return !taken.contains(slot) && hash::fake::slot(*store_, slot).is(hash::SlotType::empty);
      });
    };
    for (int i = 0; i < 40; ++i) {
      absent.push_back(hash::fake::find_key(near_, fmt::format("absent{}.", i), is_alone));
      const hash::Locations at = hash::fake::locations(near_, absent.back());
      if (i % 4 == 0) hash::fake::occupy(near_, at.slot[0]);
      taken.insert(at.slot.begin(), at.slot.begin() + at.count);
    }
    return absent;
  }

  const bool keeps_order_;  // of a batch
  hash::LocationCache locations_{std::size_t{1} << 16};
  Cost total_;
  std::function<void()> meanwhile_;  // called when a batch that links is about to happen
  std::shared_ptr<hash::fake::MemoryStore> store_ = hash::fake::make_store();
  hash::fake::Client near_{*store_};
  std::unique_ptr<Client> far_;
  std::vector<std::string> keys_;
  std::vector<std::string> values_;
};

// ---- where the order of a batch is kept, and other sessions know where the items are

class FarInOrder : public Far {
 protected:
  FarInOrder() : Far(true) {}
  std::unique_ptr<Client> other_ = open();
};

}  // namespace loch::client::fake
