#include "sim/explore/explorer.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>
#include <fmt/format.h>
#include <unordered_set>

#include "base/random.h"

namespace loch::explore {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

class Search {
 public:
  Search(const Scenario& scenario, const Limits& limits)
      : scenario_(scenario), limits_(limits), world_(scenario) {}

  Findings run() {
    const auto start = SteadyClock::now();
    nodes_.push_back({});
    seen_.insert(world_.hash());
    open_.push_back({0, world_.choices()});
    found_.exhaustive = true;
    while (!open_.empty() && found_.violation.empty()) {
      const Open next = std::move(open_.front());
      open_.pop_front();
      if (next.choices.empty()) ++found_.ends;
      const std::vector<Choice> path = path_to(next.node);
      for (const Choice choice : next.choices) {
        try_choice(next.node, path, choice);
        if (!found_.violation.empty()) break;
      }
      if (seen_.size() > limits_.states_max || seconds_since(start) > limits_.seconds_max) {
        found_.exhaustive = open_.empty();
        break;
      }
    }
    found_.states = seen_.size();
    found_.seconds = seconds_since(start);
    return found_;
  }

 private:
  struct Node {
    std::uint32_t parent = 0;
    Choice choice;
  };
  struct Open {
    std::uint32_t node;
    std::vector<Choice> choices;
  };

  void try_choice(std::uint32_t from, const std::vector<Choice>& path, Choice choice) {
    world_.reset();
    for (const Choice step : path) world_.take(step);
    world_.take(choice);
    ++found_.transitions;
    if (world_.violation().empty()) {
      if (!seen_.insert(world_.hash()).second) return;
      nodes_.push_back({from, choice});
      open_.push_back({static_cast<std::uint32_t>(nodes_.size() - 1), world_.choices()});
      world_.check_state();
      if (world_.violation().empty() && scenario_.probe) world_.probe();
    }
    if (world_.violation().empty()) return;
    found_.violation = world_.violation();
    found_.choices = path;
    found_.choices.push_back(choice);
  }

  std::vector<Choice> path_to(std::uint32_t node) const {
    std::vector<Choice> path;
    for (; node != 0; node = nodes_[node].parent) path.push_back(nodes_[node].choice);
    std::ranges::reverse(path);
    return path;
  }

  const Scenario& scenario_;
  Limits limits_;
  World world_;
  Findings found_;
  std::unordered_set<std::uint64_t> seen_;
  std::vector<Node> nodes_;
  std::deque<Open> open_;
};

}  // namespace

std::string Findings::summary() const {
  return fmt::format("{}: {} states, {} transitions, {} ends, {:.1f} s",
                     !violation.empty() ? "VIOLATION (" + violation + ")"
                     : exhaustive       ? "exhaustive"
                                        : "not exhaustive",
                     states, transitions, ends, seconds);
}

Findings explore(const Scenario& scenario, const Limits& limits) { return Search(scenario, limits).run(); }

Findings wander(const Scenario& scenario, std::uint64_t seed, const Limits& limits) {
  const auto start = SteadyClock::now();
  World world(scenario);
  base::Random random(seed);
  Findings found;
  while (found.violation.empty() && seconds_since(start) < limits.seconds_max &&
         found.states < limits.states_max) {
    world.reset();
    found.choices.clear();
    // Some runs are probed in their midst, which ends them.
    const std::uint64_t steps_max = random.below(2) == 0 ? ~std::uint64_t{0} : random.below(80);
    // A client is chosen first, so that one with many words does not get most turns; it keeps its turn for a
    // while.
    unsigned turn = ~0U;
    for (std::uint64_t step = 0; step < steps_max; ++step) {
      std::vector<Choice> choices = world.choices();
      if (choices.empty()) break;
      constexpr std::uint64_t one_in = 4;
      constexpr std::uint64_t crashes_one_in = 40;
      if (random.below(crashes_one_in) != 0) {
        std::erase_if(choices, [](Choice c) { return c.what() == Choice::crash; });
      }
      if (choices.empty()) break;
      const auto is_turn = [&turn](Choice c) { return c.client() == turn; };
      if (random.below(one_in) == 0 || std::ranges::none_of(choices, is_turn)) {
        turn = choices[random.below(choices.size())].client();
      }
      std::erase_if(choices, [&](Choice c) { return !is_turn(c); });
      const Choice choice = choices[random.below(choices.size())];
      found.choices.push_back(choice);
      world.take(choice);
      ++found.transitions;
      if (world.violation().empty()) world.check_state();
      if (!world.violation().empty()) break;
    }
    if (world.violation().empty() && scenario.probe) world.probe();
    found.violation = world.violation();
    ++found.states;
    ++found.ends;
  }
  if (found.violation.empty()) found.choices.clear();
  found.seconds = seconds_since(start);
  return found;
}

std::string tell(const Scenario& scenario, const std::vector<Choice>& choices) {
  World world(scenario);
  std::string text = fmt::format("{}\n     {}\n", scenario.text, world.describe());
  int step = 0;
  int lines = 0;
  world.trace = [&](const std::string& line) {
    constexpr int lines_max = 400;  // one that never ends needs no more
    if (++lines <= lines_max) text += fmt::format("{:3}. {}\n", step, line);
  };
  for (const Choice choice : choices) {
    ++step;
    world.take(choice);
  }
  text += fmt::format("     {}\n", world.describe());
  if (world.violation().empty()) world.check_state();
  if (world.violation().empty() && scenario.probe) world.probe();
  text += fmt::format("     {}\n=> {}\n", world.describe(),
                      world.violation().empty() ? "nothing is wrong" : world.violation());
  text += fmt::format("again: loch-explore '{}' --choices {}\n", scenario.text, encode(choices));
  return text;
}

std::string encode(const std::vector<Choice>& choices) {
  std::string text;
  for (const Choice choice : choices) text += fmt::format("{:02x}", choice.code);
  return text;
}

Result<std::vector<Choice>> decode(const std::string& text) {
  std::vector<Choice> choices;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    Choice choice;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, choice.code, 16);
    if (error != std::errc{} || end != text.data() + i + 2) break;
    choices.push_back(choice);
  }
  if (choices.size() * 2 != text.size())
    return fail(Errc::invalid_argument, "choices", "two hexadecimal digits each");
  return choices;
}

}  // namespace loch::explore
