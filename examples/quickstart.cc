// A first program with Loch: a store that any number of processes share, without a server.
//
//   c++ -std=c++23 quickstart.cc $(pkg-config --cflags --libs loch) && ./a.out
//
// Start it twice at once: both use the same store.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <loch/loch.h>

namespace {

// Ends the program when something failed that this program can do nothing about. An error says what was
// wrong, where, and what to do.
template <class T>
void check(const loch::Result<T>& result) {
  if (result) return;
  std::fprintf(stderr, "quickstart: %s\n", result.error().message().c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string url = argc > 1 ? argv[1] : "shm://quickstart";

  // Creates the store if there is none, else joins it.
  auto opened = loch::Store::open(url);
  if (!opened) {
    std::fprintf(stderr, "quickstart: %s\n", opened.error().message().c_str());
    return 1;
  }
  loch::Store& store = *opened;

  // Keys and values are any bytes.
  check(store.put("user:17", "ada"));
  if (const auto value = store.get("user:17")) std::printf("user:17 is %s\n", value->c_str());

  // What is not there is an error like others; a program looks at its code.
  const auto missing = store.get("user:99");
  if (!missing && missing.error().code == loch::Errc::not_found) std::printf("user:99 is not there\n");

  // Read, change and replace, anew for as long as others are quicker; what is not there is inserted.
  int visits = 0;
  const auto counted = store.update("visits", [&](const auto& value) {
    visits = value ? std::atoi(std::string(*value).c_str()) + 1 : 1;
    return std::to_string(visits);
  });
  check(counted);
  std::printf("visit %d\n", visits);

  // Only if absent: of several processes one is the first.
  if (const auto first = store.insert("leader", "this one")) {
    std::printf("this process is the leader\n");
  } else if (first.error().code != loch::Errc::exists) {
    check(first);
  }

  // With a time to live.
  const auto mine = store.put("session:17", "token", {.time_to_live = std::chrono::minutes(30)});
  check(mine);
  if (const auto session = store.read("session:17"); session && session->time_to_live) {
    std::printf("session:17 lives for %lld s\n",
                static_cast<long long>(session->time_to_live->count() / 1000));
  }

  // Many keys at once are several times faster than one after another. Each has a result of its own.
  std::vector<loch::Assignment> assignments{{.key = "colour:1", .value = "red"},
                                            {.key = "colour:2", .value = "blue"}};
  store.multi_put(assignments);
  for (const auto& assignment : assignments) check(assignment.result);

  std::vector<loch::Lookup> lookups(3);
  lookups[0].key = "colour:1";
  lookups[1].key = "colour:2";
  lookups[2].key = "colour:3";
  store.multi_get(lookups);
  for (const auto& lookup : lookups) {
    std::printf("%s is %s\n", std::string(lookup.key).c_str(),
                lookup.result ? lookup.value.c_str() : lookup.result.error().message().c_str());
  }

  // A large value without a copy, in place; keep a view short.
  check(store.put("page", std::string(1 << 20, 'x')));
  if (const auto view = store.view("page")) std::printf("page has %zu bytes\n", view->value().size());

  // All items.
  std::size_t items = 0;
  check(store.for_each([&](const loch::Entry&) {
    ++items;
    return true;  // go on
  }));
  std::printf("%zu items\n", items);

  check(store.remove("user:17"));
  // Only what this program put: if somebody has put another session meanwhile, that stays.
  if (store.remove("session:17", *mine)) std::printf("session:17 is over\n");
}
