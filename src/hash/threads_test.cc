// Table: clients on threads of their own.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "hash/table.h"
#include "hash/testing/scenes.h"

namespace loch::hash {
namespace {

using fake::Client;
using fake::directory_of;
using fake::expect_sound;
using fake::key_number;
using fake::make_store;

// Several threads put, get, remove and walk the same few keys; a value tells its key, so that foreign bytes
// are seen.
TEST(Threads, SeeOnlyWhatWasPutUnderTheKey) {
  const auto store = make_store({.expiry_ns = 50 * base::millisecond_ns, .hash_seed = 7});
  const auto work = [&store](std::uint64_t seed) {
    Client client(*store, {.timeout_ns = 3600 * base::second_ns});
    base::Random random(seed);
    for (int i = 0; i < 3'000; ++i) {
      const std::string key = fmt::format("key{}", random.below(40));
      switch (random.below(8)) {
        case 0:
        case 1:
        case 2: {
          std::string value = key + ":";
          value.resize(value.size() + random.below(300), 'x');
          const auto put = client.put(key, value);
          ASSERT_TRUE(put.has_value()) << put.error().message();
          break;
        }
        case 3: {
          const auto removed = client.remove(key);
          if (!removed) ASSERT_EQ(removed.error().code, Errc::not_found) << removed.error().message();
          break;
        }
        case 4:
          if (random.below(100) == 0) {
            const auto walked = client.walk();
            ASSERT_TRUE(walked.has_value());
            for (const auto& [k, value] : *walked) ASSERT_TRUE(value.starts_with(k + ":")) << k;
          }
          break;
        default: {
          const auto got = client.get(key);
          if (got) {
            ASSERT_TRUE(got->starts_with(key + ":")) << key << " " << *got;
          } else {
            ASSERT_EQ(got.error().code, Errc::not_found) << got.error().message();
          }
        }
      }
      store->advance(base::millisecond_ns);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  Client last(*store);
  expect_sound(last, last.count().value());
}

TEST(Threads, GrowTogether) {
  const auto store = make_store();
  constexpr int each = 6'000;
  const auto work = [&store](int first) {
    Client client(*store, {.timeout_ns = 3600 * base::second_ns});
    for (int i = first; i < first + each; ++i) {
      const std::string key = key_number(i);
      const auto put = client.put(key, key);
      ASSERT_TRUE(put.has_value()) << put.error().message();
      store->advance(10 * base::microsecond_ns);
      ASSERT_EQ(client.get(key).value(), key);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) threads.emplace_back(work, t * each);
  for (std::thread& thread : threads) thread.join();
  Client last(*store);
  for (int i = 0; i < 3 * each; ++i) ASSERT_EQ(last.get(key_number(i)).value(), key_number(i));
  EXPECT_GE(directory_of(*store).level, first_level + 2);
}

}  // namespace
}  // namespace loch::hash
