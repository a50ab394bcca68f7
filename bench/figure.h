// bench/figure: the results of a benchmark, one by one, as the tables, the JSON file and the plot show them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/histogram.h"
#include "bench/machine.h"
#include "bench/settings.h"

namespace loch::bench {

struct Target {
  std::string text;  // "<= 3.2"
  bool met = false;
};

Target at_most(double ratio, double limit);
Target at_least(double ratio, double limit);

struct Latency {
  std::uint64_t count = 0;
  double mean_ns = 0;
  std::uint64_t p50_ns = 0;
  std::uint64_t p99_ns = 0;
  std::uint64_t p999_ns = 0;
  std::uint64_t max_ns = 0;
};

Latency latency_of(const Histogram& histogram);

struct Figure {
  std::string section;  // "floor", "loch", "peers", "processes", "ycsb", "network", "network processor",
                        // "memory", "idle", "simulator"
  std::string name;     // "get, dependent"
  std::string subject;  // "machine", "tcp" (the network's floor), "loch", "lmdb" ...
  std::uint32_t processes = 1;
  double value = 0;
  std::string unit =
      "ns";  // of an operation, all processes together; or "processor ns" of one, "B/item", "us/s"

  // How many times the floor's time it takes; Loch's rate as a multiple of each peer's at the same operation;
  // the rate as a multiple of one process's.
  std::optional<double> floor_ratio{};
  std::map<std::string, double> peer_ratios{};
  std::optional<double> scaling{};
  std::optional<Target> target{};
  std::optional<Latency> reads{};
  std::optional<Latency> writes{};

  [[nodiscard]] double rate() const { return value <= 0 ? 0 : 1e9 / value; }
};

struct Report {
  Settings settings;
  Machine machine;
  std::string build;
  std::string network;  // what the section "network" went over
  std::uint64_t floor_bytes = 0;
  std::uint64_t floor_huge_bytes = 0;
  std::vector<Figure> figures;
  std::vector<std::string> notes;  // what was left out, and why

  [[nodiscard]] const Figure* find(std::string_view section, std::string_view name, std::string_view subject,
                                   std::uint32_t processes = 1) const;
  [[nodiscard]] std::vector<const Figure*> in(std::string_view section) const;
  [[nodiscard]] std::size_t targets() const;
  [[nodiscard]] std::size_t targets_met() const;
};

}  // namespace loch::bench
