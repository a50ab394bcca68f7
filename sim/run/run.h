// A run: a store, its players and what goes wrong, from a Setup to what came of it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <loch/stats.h>

#include "sim/run/setup.h"

namespace loch::sim {

struct Outcomes {
  std::string violation;         // empty if all was well
  std::string key;               // that it is about, if it is about one
  std::string history;           // of that key, in lines
  std::uint64_t operations = 0;  // of the fabric
  std::uint64_t trace_hash = 0;
  Stats counted{};
  std::set<std::string_view> points;             // fault points that were passed
  std::set<std::string_view> points_of_players;  // of these, by those that played from the beginning
  std::set<std::string_view> points_of_mover;    // and by the mover that did
  std::vector<bool> begun;                       // the setup's faults whose moment came
};

// Who is told what happens, in lines.
struct Listener {
  std::function<void(const std::string&)> line{};
  std::string only_key{};  // of this key and its slots alone; empty: everything
};

// One run at a time in a thread.
Outcomes run(const Setup& setup, const Listener& listener = {});
// A setup that fails as well as `failing` does, with as little as could be found in `runs_max` runs.
Setup minimize(const Setup& failing, std::uint64_t runs_max);

}  // namespace loch::sim
