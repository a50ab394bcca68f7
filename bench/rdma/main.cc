// loch-bench-rdma: what one operation takes over a network, one after the other: a READ and a compare-swap of
// 8 bytes, and the calls of a store that are made of them; and some of them at once. For stores that nobody
// else uses meanwhile.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <loch/loch.h>

#include "bench/bench.h"
#include "bench/histogram.h"
#include "client/impl.h"
#include "fabric/endpoint.h"
#include "memory/layout.h"

namespace loch::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::vector<std::string> urls;
  std::string source_address;
  std::uint64_t times = 2'000;
  double read_floor_us = 0;
  double atomic_floor_us = 0;
};

struct Measured {
  const char* operation;
  std::function<Result<void>(std::uint64_t)> call;  // told how many there were before
  std::size_t at_once = 1;                          // of them, in a call
  double reads_max = 0;                             // how many READs it may take the time of; 0: no target
};
struct Row {
  std::string operation;
  double reads_max = 0;
  Histogram times{};
  std::vector<double> of_turns_ns{};  // what it typically took in each of its turns
};

// Of the time of a READ: a get is two, and a little for what goes beside them.
constexpr double get_reads_max = 2.3;

// Keys of which none is measured, for each that is: whoever comes to new keys has used these before, as one
// that has run for a while, so that the memory of what a session knows of keys is there.
constexpr std::uint64_t others_per_key = 8;

// Of one operation, before another has its turn.
constexpr std::uint64_t times_in_turn = 64;

constexpr fabric::Address some_word{.region = memory::control_region,
                                    .offset_bytes = 0};  // the store's magic

coro::Task<Result<void>> read_word(fabric::Endpoint* endpoint, std::uint64_t* word) {
  co_return co_await endpoint->read_words({&some_word, 1}, word);
}
// Expects another word than is there, so it changes nothing.
coro::Task<Result<std::uint64_t>> compare_swap(fabric::Endpoint* endpoint) {
  co_return co_await endpoint->compare_swap(some_word, 1, 1);
}

// Those at once, of READs each of another line.
constexpr std::size_t batch = 16;
coro::Task<Result<void>> read_batch(fabric::Endpoint* endpoint, std::array<std::uint64_t, batch>* words) {
  std::array<fabric::Operation, batch> reads{};
  for (std::size_t i = 0; i < batch; ++i)
    reads[i] = fabric::Operation::read(some_word + i * fabric::cache_line_bytes, &(*words)[i],
                                       sizeof(std::uint64_t));
  co_return co_await endpoint->perform(reads);
}
Result<void> get_batch(Store& store, std::span<const std::string> keys, std::uint64_t first) {
  std::array<Lookup, batch> lookups{};
  for (std::size_t i = 0; i < batch; ++i) lookups[i].key = keys[(first + i) % keys.size()];
  store.multi_get(lookups);
  for (const Lookup& one : lookups) {
    if (!one.result) return one.result;
  }
  return {};
}

// What a call takes, in ns.
Result<std::uint64_t> time_of(const Measured& one, std::uint64_t so_far) {
  const auto start = Clock::now();
  const auto done = one.call(so_far);
  const auto took = Clock::now() - start;
  if (!done) return std::unexpected(done.error());
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(took).count());
}

// Calls each so often. They take turns, since the machine may be slower at one time than at another; the
// first error ends it. Adds to `rows`, which are made for the first store.
Result<void> measure(std::span<const Measured> all, std::uint64_t times, std::vector<Row>& rows) {
  if (rows.empty()) {
    for (const Measured& one : all) rows.push_back({.operation = one.operation, .reads_max = one.reads_max});
  }
  for (std::uint64_t begin = 0; begin < times; begin += times_in_turn) {
    for (std::size_t row = 0; row < all.size(); ++row) {
      std::vector<double> turn_ns;
      for (std::uint64_t i = begin; i < std::min(begin + times_in_turn, times); i += all[row].at_once) {
        const auto took_ns = time_of(all[row], i);
        if (!took_ns) return std::unexpected(took_ns.error());
        rows[row].times.record(*took_ns);
        turn_ns.push_back(static_cast<double>(*took_ns));
      }
      rows[row].of_turns_ns.push_back(median(turn_ns));
    }
  }
  return {};
}

template <class Value>
Result<void> without_value(const Result<Value>& result) {
  if (!result) return std::unexpected(result.error());
  return {};
}

// Of one store.
Result<void> measure_all(const Arguments& arguments, const std::string& url, std::vector<Row>& rows) {
  Options options;
  options.mode = Options::Mode::attach;
  options.source_address = arguments.source_address;
  options.timeout = std::chrono::seconds(10);
  auto store = Store::open(url, options);
  if (!store) return std::unexpected(std::move(store.error()));
  std::vector<std::string> all_keys;
  for (std::uint64_t i = 0; i < (1 + others_per_key) * arguments.times; ++i)
    all_keys.push_back(fmt::format("bench-rdma-{}", i));
  const std::span others = std::span(all_keys).first(others_per_key * arguments.times);
  const std::span keys = std::span(all_keys).subspan(others.size());
  const std::string value(64, 'v');
  for (const std::string& key : all_keys) {
    if (auto put = store->put(key, value); !put) return std::unexpected(std::move(put.error()));
  }
  // Each goes by what a session has learned that does nothing else.
  const auto session = [&] { return Store::open(url, options); };
  auto newcomer = session();
  auto regular = session();
  auto crowd = session();
  auto fan = session();
  auto seeker = session();
  auto writer = session();
  for (const auto* opened : {&newcomer, &regular, &crowd, &fan, &seeker, &writer}) {
    if (!*opened) return std::unexpected(opened->error());
  }
  const auto use = [](Store& by, std::span<const std::string> used) -> Result<void> {
    for (const std::string& key : used) {
      if (auto got = by.get(key); !got) return std::unexpected(std::move(got.error()));
    }
    return {};
  };
  if (auto used = use(*newcomer, others); !used) return std::unexpected(std::move(used.error()));
  // They used all keys, but longer ago than they keep pointers for.
  for (auto* one : {&regular, &crowd}) {
    if (auto used = use(**one, keys); !used) return std::unexpected(std::move(used.error()));
  }
  const auto info = store->info();
  if (!info) return std::unexpected(info.error());
  std::this_thread::sleep_for(3 * info->expiry);
  const auto fabric = store->impl().memory()->shared_fabric();
  fabric::Endpoint endpoint(fabric, fabric->connect());
  std::uint64_t word = 0;
  std::array<std::uint64_t, batch> words{};
  const std::vector<Measured> all = {
      {"READ", [&](std::uint64_t) { return endpoint.run(read_word(&endpoint, &word)); }},
      {"compare-swap", [&](std::uint64_t) { return without_value(endpoint.run(compare_swap(&endpoint))); }},
      {"get, new key", [&](std::uint64_t i) { return without_value(newcomer->get(keys[i])); }, 1,
       get_reads_max},
      {"get, any key", [&](std::uint64_t i) { return without_value(regular->get(keys[i])); }, 1,
       get_reads_max},
      {"get, known key", [&](std::uint64_t) { return without_value(fan->get(keys[0])); }, 1, get_reads_max},
      {"get, no such key", [&](std::uint64_t) { return without_value(seeker->exists("bench-rdma")); }},
      {"put, known key", [&](std::uint64_t) { return without_value(writer->put(keys[0], value)); }},
      {"16 READs at once", [&](std::uint64_t) { return endpoint.run(read_batch(&endpoint, &words)); }, batch},
      {"16 gets, any keys", [&](std::uint64_t i) { return get_batch(*crowd, keys, i); }, batch},
  };
  if (auto measured = measure(all, arguments.times, rows); !measured) return measured;
  for (const std::string& key : all_keys) {
    if (auto removed = store->remove(key); !removed) return removed;
  }
  return {};
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("What one operation takes over a network", "loch-bench-rdma");
  app.add_option(
         "URL", arguments.urls,
         "Stores that are there, measured one after the other for the same figures: verbs://host/name "
         "or tcp://host/name")
      ->required();
  app.add_option("--from", arguments.source_address, "The address of this host to go from");
  app.add_option("--times", arguments.times, "How often each is measured, of each store")
      ->capture_default_str();
  app.add_option("--read-floor", arguments.read_floor_us, "What ib_read_lat says, in us, to compare with");
  app.add_option("--atomic-floor", arguments.atomic_floor_us, "What ib_atomic_lat says, in us");
  CLI11_PARSE(app, argc, argv);
  std::vector<Row> rows;
  for (const std::string& url : arguments.urls) {
    if (const auto measured = measure_all(arguments, url, rows); !measured) {
      fmt::print(stderr, "loch-bench-rdma: {}\n", measured.error().message());
      return 1;
    }
  }
  const Row& read = rows.front();
  const auto typical_us = [](const Row& row) {
    return static_cast<double>(row.times.quantile_ns(0.5)) / 1e3;
  };
  fmt::print("{:<18} {:>10} {:>10} {:>12}  {}\n", "operation", "p50 us", "p99 us", "in READs", "target");
  const auto print = [](std::string_view operation, double p50_us, std::string_view p99_us, double in_reads,
                        std::string_view target = {}) {
    fmt::print("{:<18} {:>10.1f} {:>10} {:>10.2f} x  {}\n", operation, p50_us, p99_us, in_reads, target);
  };
  if (arguments.read_floor_us > 0)
    print("ib_read_lat", arguments.read_floor_us, "", arguments.read_floor_us / typical_us(read));
  if (arguments.atomic_floor_us > 0)
    print("ib_atomic_lat", arguments.atomic_floor_us, "", arguments.atomic_floor_us / typical_us(read));
  for (const Row& row : rows) {
    const double in_reads = median_ratio(read.of_turns_ns, row.of_turns_ns);
    const std::string target =
        row.reads_max == 0
            ? ""
            : fmt::format("<= {:.2f}  {}", row.reads_max, in_reads <= row.reads_max ? "met" : "NOT MET");
    print(row.operation, typical_us(row),
          fmt::format("{:.1f}", static_cast<double>(row.times.quantile_ns(0.99)) / 1e3), in_reads, target);
  }
  return 0;
}

}  // namespace
}  // namespace loch::bench

int main(int argc, char** argv) { return loch::bench::run(argc, argv); }
