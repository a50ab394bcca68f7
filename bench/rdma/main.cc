// loch-bench-rdma: what one operation takes over a network, one after the other: a READ and a compare-swap of
// 8 bytes, and the calls of a store that are made of them. For a store that nobody else uses meanwhile.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <vector>

#include <loch/loch.h>

#include "bench/histogram.h"
#include "client/impl.h"
#include "fabric/endpoint.h"
#include "memory/layout.h"

namespace loch::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string url;
  std::string source_address;
  std::uint64_t times = 2'000;
  double read_floor_us = 0;
  double atomic_floor_us = 0;
};

struct Row {
  std::string operation;
  Histogram times;
};

constexpr fabric::Address some_word{.region = memory::control_region,
                                    .offset_bytes = 0};  // the store's magic

coro::Task<Result<void>> read_word(fabric::Endpoint* endpoint, std::uint64_t* word) {
  co_return co_await endpoint->read_words({&some_word, 1}, word);
}
// Expects another word than is there, so it changes nothing.
coro::Task<Result<std::uint64_t>> compare_swap(fabric::Endpoint* endpoint) {
  co_return co_await endpoint->compare_swap(some_word, 1, 1);
}

// Calls `call` so often; the first errors ends it.
template <class Call>
Result<Row> measure(std::string operation, std::uint64_t times, Call call) {
  Row row{.operation = std::move(operation), .times = {}};
  for (std::uint64_t i = 0; i < times; ++i) {
    const auto start = Clock::now();
    const auto done = call(i);
    const auto took = Clock::now() - start;
    if (!done) return std::unexpected(done.error());
    row.times.record(static_cast<std::uint64_t>(took.count()));
  }
  return row;
}

Result<std::vector<Row>> measure_all(const Arguments& arguments) {
  Options options;
  options.mode = Options::Mode::attach;
  options.source_address = arguments.source_address;
  options.timeout = std::chrono::seconds(10);
  auto store = Store::open(arguments.url, options);
  if (!store) return std::unexpected(std::move(store.error()));
  const auto key = [](std::uint64_t i) { return fmt::format("bench-rdma-{}", i); };
  const std::string value(64, 'v');
  for (std::uint64_t i = 0; i < arguments.times; ++i) {
    if (auto put = store->put(key(i), value); !put) return std::unexpected(std::move(put.error()));
  }
  // A session that has not used the keys knows none of their places.
  auto fresh = Store::open(arguments.url, options);
  if (!fresh) return std::unexpected(std::move(fresh.error()));
  const auto fabric = store->impl().memory()->shared_fabric();
  fabric::Endpoint endpoint(fabric, fabric->connect());
  std::uint64_t word = 0;
  std::vector<Row> rows;
  Result<void> failed;
  const auto add = [&](const char* operation, auto call) {
    if (!failed) return;
    auto row = measure(operation, arguments.times, call);
    if (row) {
      rows.push_back(std::move(*row));
    } else {
      failed = std::unexpected(row.error());
    }
  };
  add("READ", [&](std::uint64_t) { return endpoint.run(read_word(&endpoint, &word)); });
  add("compare-swap", [&](std::uint64_t) { return endpoint.run(compare_swap(&endpoint)); });
  add("get, any key", [&](std::uint64_t i) { return fresh->get(key(i)); });
  add("get, known key", [&](std::uint64_t) { return fresh->get(key(0)); });
  add("get, no such key", [&](std::uint64_t) { return fresh->exists("bench-rdma"); });
  add("put, known key", [&](std::uint64_t) { return fresh->put(key(0), value); });
  for (std::uint64_t i = 0; i < arguments.times && failed; ++i) failed = store->remove(key(i));
  if (!failed) return std::unexpected(std::move(failed.error()));
  return rows;
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("What one operation takes over a network", "loch-bench-rdma");
  app.add_option("URL", arguments.url, "A store that is there: verbs://host/name or tcp://host/name")
      ->required();
  app.add_option("--from", arguments.source_address, "The address of this host to go from");
  app.add_option("--times", arguments.times, "How often each is measured")->capture_default_str();
  app.add_option("--read-floor", arguments.read_floor_us, "What ib_read_lat says, in us, to compare with");
  app.add_option("--atomic-floor", arguments.atomic_floor_us, "What ib_atomic_lat says, in us");
  CLI11_PARSE(app, argc, argv);
  const auto rows = measure_all(arguments);
  if (!rows) {
    fmt::print(stderr, "loch-bench-rdma: {}\n", rows.error().message());
    return 1;
  }
  const double read_us = static_cast<double>(rows->front().times.quantile_ns(0.5)) / 1e3;
  fmt::print("{:<18} {:>10} {:>10} {:>12}\n", "operation", "p50 us", "p99 us", "in READs");
  const auto print = [read_us](std::string_view operation, double p50_us, std::string_view p99) {
    fmt::print("{:<18} {:>10.1f} {:>10} {:>10.2f} x\n", operation, p50_us, p99, p50_us / read_us);
  };
  if (arguments.read_floor_us > 0) print("ib_read_lat", arguments.read_floor_us, "");
  if (arguments.atomic_floor_us > 0) print("ib_atomic_lat", arguments.atomic_floor_us, "");
  for (const Row& row : *rows) {
    print(row.operation, static_cast<double>(row.times.quantile_ns(0.5)) / 1e3,
          fmt::format("{:.1f}", static_cast<double>(row.times.quantile_ns(0.99)) / 1e3));
  }
  return 0;
}

}  // namespace
}  // namespace loch::bench

int main(int argc, char** argv) { return loch::bench::run(argc, argv); }
