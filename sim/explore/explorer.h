// Explorer: every run of a scenario, breadth first, so that the first violation found is a shortest one.
//
// A state is known by the choices that lead to it. Each new choice is tried by running from the beginning;
// states that go on alike (World::hash) are followed once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/explore/scenario.h"
#include "sim/explore/world.h"

namespace loch::explore {

struct Limits {
  double seconds_max = 60;
  std::uint64_t states_max = 50'000'000;
};

struct Findings {
  bool exhaustive = false;
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  std::uint64_t ends = 0;  // states in which nothing is left to do
  double seconds = 0;
  std::string violation{};        // empty: none
  std::vector<Choice> choices{};  // that lead to it

  [[nodiscard]] std::string summary() const;
};

Findings explore(const Scenario& scenario, const Limits& limits);
// Runs at random, from `seed`, each to its end; finds what is too deep for `explore`.
Findings wander(const Scenario& scenario, std::uint64_t seed, const Limits& limits);

// The steps of one run in words, with what is wrong at its end.
std::string tell(const Scenario& scenario, const std::vector<Choice>& choices);
// Choices as text, and back: hexadecimal, two digits each.
std::string encode(const std::vector<Choice>& choices);
Result<std::vector<Choice>> decode(const std::string& text);

}  // namespace loch::explore
