// Many operations under way on one thread, each as a coroutine: what a program does whose store is on another
// host, so that they wait for the network together and not one after the other.
//
//   clang++ -std=c++23 coroutines.cc $(pkg-config --cflags --libs loch) && ./a.out tcp://host/store
//
// Clang 19 or later: g++ 12 compiles such coroutines to wrong code.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <loch/async.h>
#include <loch/loch.h>

namespace {

using Added = loch::Result<loch::Version>;

// Adds to a number. What a coroutine gets by value, as this key, lives as long as it does, through all its
// waits.
loch::coro::Task<Added> add(loch::Async* store, std::string key, int points) {
  const auto is_known = co_await store->exists(key);
  if (!is_known) co_return std::unexpected(is_known.error());
  if (!*is_known) std::printf("%s is new\n", key.c_str());
  co_return co_await store->update(key, [points](auto value) {
    return std::to_string((value ? std::atoi(std::string(*value).c_str()) : 0) + points);
  });
}

int failed(const loch::Error& error) {
  std::fprintf(stderr, "coroutines: %s\n", error.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  auto store = loch::Store::open(argc > 1 ? argv[1] : "shm://coroutines");
  if (!store) return failed(store.error());
  auto async = loch::Async::open(*store);
  if (!async) return failed(async.error());

  // Each begins at once, and goes on in `step`.
  const std::vector<std::pair<std::string, int>> round{{"ada", 3}, {"ben", 2}, {"cem", 1}};
  std::vector<loch::coro::Task<Added>> adding;
  for (const auto& [player, points] : round) adding.push_back(add(&*async, player, points));
  for (auto& each : adding) each.start();
  while (!std::ranges::all_of(adding, [](const auto& each) { return each.done(); })) async->step();
  for (auto& each : adding) {
    if (const auto added = each.take(); !added) return failed(added.error());
  }

  // One that is awaited alone.
  for (const auto& [player, points] : round) {
    const auto total = async->run(async->get(player));
    if (!total) return failed(total.error());
    std::printf("%s has %s\n", player.c_str(), total->c_str());
  }
}
