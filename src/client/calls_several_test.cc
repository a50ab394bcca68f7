// Calls for many keys at once (testing/calls.h).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include <loch/loch.h>

#include "base/random.h"
#include "client/testing/calls.h"

namespace loch::calls {
namespace {

TEST_P(Calls, ManyAtOnceAnswerEachForItself) {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < few(1'000); ++i) keys.push_back(fmt::format("key{}", i));
  std::vector<std::string> values;
  for (std::size_t i = 0; i < keys.size(); ++i) values.emplace_back(i * 7, static_cast<char>('a' + i % 26));
  std::vector<Assignment> assignments;
  for (std::size_t i = 0; i < keys.size(); ++i) assignments.push_back({.key = keys[i], .value = values[i]});
  assignments.push_back({.key = "", .value = "no key"});
  store_->multi_put(assignments);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(assignments[i].result.has_value()) << assignments[i].result.error().message();
  }
  EXPECT_EQ(assignments.back().result.error().code, Errc::invalid_argument);
  std::vector<Lookup> lookups;
  for (const std::string& key : keys) lookups.push_back({.key = key, .value = {}});
  lookups.push_back({.key = "absent", .value = "as before"});
  store_->multi_get(lookups);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(lookups[i].result.has_value()) << lookups[i].result.error().message();
    ASSERT_EQ(lookups[i].value, values[i]);
  }
  EXPECT_EQ(lookups.back().result.error().code, Errc::not_found);
  store_->multi_get({});
  store_->multi_put({});
  store_->multi_remove({});
}

// Receive: removals of which some are of no key, of a key that is not there, and of one key twice. Expect:
// all others go, those stay that were not named, and of the two one is found.
TEST_P(Calls, ManyAreRemovedAtOnce) {
  const std::size_t count = few(1'000, 8);
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < count; ++i) {
    keys.push_back(fmt::format("key{}", i));
    ASSERT_TRUE(store_->put(keys[i], std::string(i * 7, 'v')).has_value());
  }
  std::vector<Removal> removals;
  for (std::size_t i = 0; i < count; i += 2) removals.push_back({.key = keys[i]});
  const std::size_t removed = removals.size();
  const std::string too_long(key_bytes_max + 1, 'k');
  for (const std::string_view key :
       {std::string_view("absent"), std::string_view(""), std::string_view(too_long)})
    removals.push_back({.key = key});
  removals.push_back({.key = keys[0]});
  store_->multi_remove(removals);
  const auto code = [&](std::size_t i) {
    return removals[i].result ? Errc{} : removals[i].result.error().code;
  };
  for (std::size_t i = 1; i < removed; ++i) EXPECT_EQ(code(i), Errc{}) << i;
  EXPECT_EQ(code(removed), Errc::not_found);
  EXPECT_EQ(code(removed + 1), Errc::invalid_argument);
  EXPECT_EQ(code(removed + 2), Errc::invalid_argument);
  EXPECT_NE(removals[0].result.has_value(), removals.back().result.has_value());
  EXPECT_EQ(store_->count().value(), count - removed);
  for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(store_->exists(keys[i]).value(), i % 2 == 1) << i;
  EXPECT_EQ(store_->check()->items_unaccounted, 0U);
}

TEST_P(Calls, OfOneKeyManyTimesInAMultiPutTheLastValueStays) {
  std::vector<std::string> values;
  for (int i = 0; i < 64; ++i) values.push_back(fmt::format("value{}", i));
  for (std::size_t round = 0; round < few(50, 3); ++round) {
    std::vector<Assignment> assignments;
    for (const std::string& value : values) assignments.push_back({.key = "k", .value = value});
    store_->multi_put(assignments);
    for (const Assignment& assignment : assignments) ASSERT_TRUE(assignment.result.has_value());
    EXPECT_EQ(store_->get("k").value(), values.back());
    ASSERT_TRUE(store_->remove("k").has_value());
  }
  EXPECT_EQ(store_->check()->items_unaccounted, 0U);
}

// Batches put, inserts off home and growth in turn, some of one key twice, and a map tells what must be
// there.
TEST_P(Calls, MultiPutsBehaveAsAMap) {
  base::Random random(11);
  std::map<std::string, std::string> model;
  for (std::size_t round = 0; round < few(300); ++round) {
    std::vector<std::string> keys;
    for (int i = 0; i < 40; ++i) keys.push_back(fmt::format("key{}", random.below(few(9'000))));
    keys[30] = keys[random.below(30)];
    keys[31] = keys[29];
    std::vector<std::string> values;
    for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(fmt::format("round {}, {}", round, i));
    std::vector<Assignment> assignments;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      assignments.push_back({.key = keys[i], .value = values[i]});
      model[keys[i]] = values[i];
    }
    store_->multi_put(assignments);
    for (const Assignment& assignment : assignments) {
      ASSERT_TRUE(assignment.result.has_value()) << assignment.result.error().message();
    }
  }
  std::vector<Lookup> lookups;
  for (const auto& [key, value] : model) lookups.push_back({.key = key, .value = {}});
  store_->multi_get(lookups);
  for (const Lookup& lookup : lookups) {
    ASSERT_TRUE(lookup.result.has_value()) << lookup.key << lookup.result.error().message();
    EXPECT_EQ(lookup.value, model[std::string(lookup.key)]);
  }
  EXPECT_EQ(store_->count().value(), model.size());
}

}  // namespace
}  // namespace loch::calls
