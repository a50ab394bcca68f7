// A run: a store, its players and what goes wrong, from a Setup to what came of it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include <loch/stats.h>

#include "sim/run/setup.h"

namespace loch::sim {

struct Outcomes {
  std::string violation;         // empty if all was well
  std::string history;           // of the key that it is about, in lines
  std::uint64_t operations = 0;  // of the fabric
  std::uint64_t trace_hash = 0;
  Stats counted{};
  std::set<std::string_view> points;  // fault points that were passed
};

// `say` is told of everything that happens, if it is set. One run at a time in a thread.
Outcomes run(const Setup& setup, const std::function<void(const std::string&)>& say = {});

}  // namespace loch::sim
