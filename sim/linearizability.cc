#include "sim/linearizability.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/key_search.h"

namespace loch::sim {
namespace {

using Operations = std::vector<const Operation*>;

constexpr std::array<std::string_view, 4> verdict_names = {"linearizable", "not linearizable", "undecided",
                                                           "malformed"};

// How much of a history an explanation shows.
constexpr std::size_t shown_before_max = 16;
constexpr std::size_t shown_unanswered_max = 8;

bool can_answer(Kind kind, Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
    case Outcome::unknown:
    case Outcome::failed:
      return true;
    case Outcome::not_found:
      return kind != Kind::put && kind != Kind::insert && kind != Kind::erase && kind != Kind::expire;
    case Outcome::exists:
      return kind == Kind::insert;
    case Outcome::changed:
      return kind == Kind::replace || kind == Kind::remove_version;
  }
  return false;
}

// What is wrong with an operation by itself, if anything.
std::optional<std::string_view> fault_of(const Operation& operation) {
  if (!can_answer(operation.kind, operation.outcome)) return "an answer that this operation can not give";
  if (operation.responded_ns < operation.invoked_ns) return "answered before it was asked";
  if (writes(operation.kind) && operation.written == no_value) return "a write without a value id";
  if (expects(operation.kind) && operation.expected == no_value)
    return "a replace, a remove_version or an expire without an expected value";
  if (operation.kind == Kind::get && operation.outcome == Outcome::ok && operation.found == no_value) {
    return "a get without the value that it found";
  }
  return std::nullopt;
}

// Empty if the operations of one key are a history.
std::string find_malformed(const Operations& operations) {
  std::unordered_map<ValueId, const Operation*> writers;
  for (const Operation* operation : operations) {
    if (const auto fault = fault_of(*operation)) return fmt::format("{}: {}\n", *fault, describe(*operation));
    if (!writes(operation->kind)) continue;
    const auto [writer, added] = writers.try_emplace(operation->written, operation);
    if (!added) {
      return fmt::format("a value id written twice: {}; {}\n", describe(*writer->second),
                         describe(*operation));
    }
  }
  return {};
}

// What was known of the operations at `now_ns`: later ones are not there, unanswered ones are of unknown
// outcome.
std::vector<Operation> known_at(const Operations& operations, std::uint64_t now_ns) {
  std::vector<Operation> known;
  for (const Operation* operation : operations) {
    if (operation->invoked_ns > now_ns) continue;
    known.push_back(*operation);
    if (operation->responded_ns <= now_ns) continue;
    known.back().outcome = Outcome::unknown;
    known.back().found = no_value;
    known.back().responded_ns = never_ns;
  }
  return known;
}

Operations pointers(const std::vector<Operation>& operations) {
  Operations result;
  result.reserve(operations.size());
  for (const Operation& operation : operations) result.push_back(&operation);
  return result;
}

// Explains why the operations of one key, which are not linearizable, are not.
class Explanation {
 public:
  Explanation(const Operations& operations, const CheckOptions& options)
      : operations_(operations), options_(options) {}

  std::string text() {
    find_shortest_prefix();
    prefix_ = known_at(operations_, failing_ns_);
    culprit_ = &*std::ranges::find(prefix_, failing_ns_, &Operation::responded_ns);
    describe_culprit();
    list_operations();
    return std::move(text_);
  }

 private:
  // A prefix of a linearizable history is linearizable; so the first time at which the history is not can be
  // found by halving. A prefix that is not decided counts as linearizable: what is found is not linearizable
  // in any case.
  void find_shortest_prefix() {
    std::vector<std::uint64_t> times;
    for (const Operation* operation : operations_) {
      if (operation->responded_ns != never_ns) times.push_back(operation->responded_ns);
    }
    std::ranges::sort(times);
    const auto [duplicates, end] = std::ranges::unique(times);
    times.erase(duplicates, end);
    const auto failing = std::ranges::partition_point(times, [this](std::uint64_t now_ns) {
      const std::vector<Operation> known = known_at(operations_, now_ns);
      const KeyHistory history = prepare(pointers(known));
      return KeySearch(history, options_.configurations_max).run() != KeySearch::End::no_order;
    });
    failing_ns_ = failing == times.end() ? times.back() : *failing;
  }

  void describe_culprit() {
    const KeyHistory history = prepare(pointers(prefix_));
    KeySearch search(history, options_.configurations_max, culprit_);
    search.run();
    const auto answered =
        std::ranges::count_if(prefix_, [](const Operation& o) { return o.responded_ns != never_ns; });
    text_ += fmt::format(
        "Some order explains the first {} responses for this key; none explains the next as well:\n",
        answered - 1);
    text_ += fmt::format("  {}\n", describe(*culprit_));
    if (!search.states_refused().empty()) {
      text_ += "When it came next, in any order, the key was:";
      const char* separator = " ";
      for (const State state : search.states_refused()) {
        text_ += fmt::format("{}{}", separator, history.state_text(state));
        separator = "; or ";
      }
      text_ += '\n';
    }
    if (culprit_->kind == Kind::get && culprit_->outcome == Outcome::ok &&
        writer_of(culprit_->found) == nullptr) {
      text_ += fmt::format("Nobody had begun to write value {} by then.\n", culprit_->found);
    }
  }

  const Operation* writer_of(ValueId value) const {
    if (value == no_value) return nullptr;
    const auto writer = std::ranges::find_if(prefix_, [value](const Operation& o) {
      return o.written == value && (o.outcome == Outcome::ok || o.outcome == Outcome::unknown);
    });
    return writer == prefix_.end() ? nullptr : &*writer;
  }

  // The operations that overlap the last few responses, and those that wrote the values in question.
  std::set<const Operation*> window() const {
    Operations answered;
    Operations unanswered;
    for (const Operation& operation : prefix_) {
      const bool is_answered = operation.responded_ns != never_ns;
      if (!is_answered && !changes(operation.kind)) continue;
      (is_answered ? answered : unanswered).push_back(&operation);
    }
    std::ranges::sort(answered, {},
                      [](const Operation* o) { return std::pair(o->responded_ns, o->invoked_ns); });
    std::ranges::sort(unanswered, {}, &Operation::invoked_ns);

    std::set<const Operation*> shown{culprit_};
    const auto add = [&shown](const Operation* operation) {
      if (operation != nullptr) shown.insert(operation);
    };
    const auto before_culprit = std::ranges::count_if(
        answered, [this](const Operation* o) { return o->responded_ns < culprit_->invoked_ns; });
    const std::size_t first = before_culprit - std::min<std::size_t>(before_culprit, shown_before_max);
    for (std::size_t i = first; i < answered.size(); ++i) add(answered[i]);
    const std::size_t recent = std::min(unanswered.size(), shown_unanswered_max);
    std::for_each(unanswered.end() - static_cast<std::ptrdiff_t>(recent), unanswered.end(), add);
    add(writer_of(culprit_->found));
    add(writer_of(culprit_->expected));
    return shown;
  }

  void list_operations() {
    const std::set<const Operation*> chosen = window();
    Operations shown(chosen.begin(), chosen.end());
    std::ranges::sort(shown, {},
                      [](const Operation* o) { return std::pair(o->invoked_ns, o->responded_ns); });
    const std::uint64_t zero_ns = std::ranges::min(prefix_, {}, &Operation::invoked_ns).invoked_ns;
    text_ += fmt::format("{} of its {} operations up to there (invoked .. responded, in ns after {}):\n",
                         shown.size(), prefix_.size(), zero_ns);
    for (const Operation* operation : shown) {
      const std::string end =
          operation->responded_ns == never_ns ? "?" : fmt::format("{}", operation->responded_ns - zero_ns);
      text_ += fmt::format("{} {:>12} .. {:>12}  {}\n", operation == culprit_ ? "*" : " ",
                           operation->invoked_ns - zero_ns, end, describe(*operation));
    }
  }

  const Operations& operations_;
  const CheckOptions& options_;
  std::uint64_t failing_ns_ = 0;
  std::vector<Operation> prefix_;
  const Operation* culprit_ = nullptr;
  std::string text_;
};

CheckResult check_key(std::string_view key, const Operations& operations, const CheckOptions& options) {
  const auto result = [key](Verdict verdict, std::string_view explanation, std::uint64_t configurations) {
    return CheckResult{.verdict = verdict,
                       .key = std::string(key),
                       .explanation = fmt::format("key '{}': {}\n{}", key, name(verdict), explanation),
                       .configurations = configurations};
  };
  if (const std::string malformed = find_malformed(operations); !malformed.empty()) {
    return result(Verdict::malformed, malformed, 0);
  }
  const KeyHistory history = prepare(operations);
  KeySearch search(history, options.configurations_max);
  switch (search.run()) {
    case KeySearch::End::order_found:
      return {.configurations = search.configurations()};
    case KeySearch::End::limit_reached:
      return result(Verdict::undecided,
                    fmt::format("No end after {} configurations of {} operations.\n",
                                options.configurations_max, operations.size()),
                    search.configurations());
    case KeySearch::End::no_order:
      break;
  }
  return result(Verdict::not_linearizable, Explanation(operations, options).text(), search.configurations());
}

}  // namespace

std::string_view name(Verdict verdict) { return verdict_names[static_cast<std::size_t>(verdict)]; }

CheckResult check_linearizability(std::span<const Operation> history, const CheckOptions& options) {
  std::map<std::string_view, Operations> by_key;
  for (const Operation& operation : history) by_key[operation.key].push_back(&operation);
  CheckResult worst;
  std::uint64_t configurations = 0;
  for (const auto& [key, operations] : by_key) {
    CheckResult result = check_key(key, operations, options);
    configurations += result.configurations;
    // Another key may show a violation where this one is not decided.
    if (worst.linearizable() || result.verdict == Verdict::not_linearizable) worst = std::move(result);
    if (worst.verdict == Verdict::not_linearizable) break;
  }
  worst.configurations = configurations;
  return worst;
}

}  // namespace loch::sim
