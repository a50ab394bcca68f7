// Allocator: sessions on threads of their own.
#include <cstring>
#include <gtest/gtest.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "memory/allocator.h"
#include "memory/testing/test_memory.h"

namespace loch::memory {
namespace {

using fake::geometry;
using fake::make_memory;
using fake::Process;
using fake::retire;
using fake::write;

// Each thread fills its items with a pattern of its own and finds it again; the thread sanitizer sees any
// sharing.
TEST(Threads, DoNotGetInEachOthersWay) {
  const auto store = make_memory(geometry, {.free_bytes = 200 * block_bytes});
  const auto work = [&store](std::uint64_t seed) {
    Process process(*store);
    base::Random random(seed);
    struct Owned {
      ItemRef item;
      std::uint64_t bytes = 0;
    };
    std::vector<Owned> mine;
    for (int step = 0; step < 2'000; ++step) {
      const base::Nanos began = process.session->begin_operation();
      if (mine.size() < 40 && random.below(2) == 0) {
        const std::uint64_t bytes =
            sizeof(ItemHeader) + 1 + random.below(random.below(50) == 0 ? 2 * block_bytes : 2000);
        const auto item = process.allocate(bytes);
        ASSERT_TRUE(item.has_value()) << item.error().message();
        std::memset(store->at(item->address()) + sizeof(ItemHeader), static_cast<int>(seed),
                    bytes - sizeof(ItemHeader));
        write(*store, process, *item);
        mine.push_back({*item, bytes});
      } else if (!mine.empty()) {
        std::swap(mine[random.below(mine.size())], mine.back());
        const auto [item, bytes] = mine.back();
        mine.pop_back();
        const std::byte* at = store->at(item.address());
        ASSERT_EQ(std::to_integer<std::uint64_t>(at[sizeof(ItemHeader)]), seed);
        ASSERT_EQ(std::to_integer<std::uint64_t>(at[bytes - 1]), seed);
        retire(process, item);
      }
      process.session->end_operation(began);
      store->advance(base::millisecond_ns);
    }
    for (const Owned& owned : mine) retire(process, owned.item);
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace loch::memory
