// bench/settings: what a run of the benchmark was asked to do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workload.h"

namespace loch::bench {

struct Settings {
  std::string suite = "standard";  // "standard": all tables; "workload": one mix on each subject
  std::vector<std::string> sections = {"loch",  "large",     "idle", "simulator",
                                       "peers", "processes", "ycsb", "network"};  // of the standard suite
  std::vector<std::string> subjects = {"loch", "lmdb", "redis", "memcached"};
  bool subjects_given = false;  // by the user: then one that is not installed is an error

  std::uint64_t items = 10'000'000;
  std::uint64_t peer_items = 0;  // of each; 0: as many as `items`
  std::uint64_t key_bytes = 16;
  std::uint64_t value_bytes = 64;
  std::uint64_t large_items = 8192;
  std::uint64_t large_value_bytes = 128 << 10;
  std::uint64_t network_items = 500'000;  // of each subject that is reached over TCP

  Mix mix{};  // of the suite "workload"
  std::uint32_t processes = 2;
  double seconds = 0.5;      // of one round of one measurement
  std::uint32_t rounds = 5;  // a figure is the median of them
  std::uint64_t seed = 1;

  std::string simulator;  // the program loch-sim; empty: not measured
  std::string lochd;      // the program; empty: the one that is installed
  std::string directory = "/dev/shm";
  std::string json;  // files to write; empty: none
  std::string plot;
  bool plot_if_it_can_be = false;  // else a plot that can not be drawn is an error
  bool quiet = false;
  bool require_targets = false;

  [[nodiscard]] std::uint64_t items_of_peers() const { return peer_items == 0 ? items : peer_items; }
  // Whether a section is measured.
  [[nodiscard]] bool wants(std::string_view section) const {
    return suite == "standard" && std::ranges::find(sections, section) != sections.end();
  }
};

}  // namespace loch::bench
