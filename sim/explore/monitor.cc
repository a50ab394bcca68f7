#include "sim/explore/monitor.h"

#include <algorithm>

#include "base/hash.h"

namespace loch::explore {
namespace {

constexpr std::uint8_t code_ok = 1;
constexpr std::uint8_t code_not_found = 2;
constexpr std::uint8_t code_exists = 3;
constexpr std::uint8_t code_value = 4;  // and the value's id
constexpr unsigned nobody = ~0U;

std::uint8_t code_of(Answer answer) {
  switch (answer.kind) {
    case Answer::Kind::ok:
      return code_ok;
    case Answer::Kind::not_found:
      return code_not_found;
    case Answer::Kind::exists:
      return code_exists;
    case Answer::Kind::value:
      return static_cast<std::uint8_t>(code_value + answer.value);
    case Answer::Kind::none:
    case Answer::Kind::error:
      break;
  }
  return 0;
}

std::uint8_t byte_of(std::uint64_t state, unsigned i) { return static_cast<std::uint8_t>(state >> (8 * i)); }
std::uint64_t with_byte(std::uint64_t state, unsigned i, std::uint8_t value) {
  return (state & ~(std::uint64_t{0xff} << (8 * i))) | std::uint64_t{value} << (8 * i);
}

}  // namespace

void Monitor::set_initial(unsigned key, ValueId value) { states_[key] = {value}; }

void Monitor::begin(unsigned client, Act act, unsigned key, ValueId written) {
  pending_[client] = {
      .is_pending = true, .act = act, .key = static_cast<std::uint8_t>(key), .written = written};
}

// Adds every state that comes of pending operations taking effect.
void Monitor::close(unsigned key, std::vector<State>& states, unsigned except) const {
  for (std::size_t at = 0; at < states.size(); ++at) {
    const State from = states[at];
    const ValueId value = byte_of(from, 0);
    for (unsigned c = 0; c < participants_max; ++c) {
      const Pending& p = pending_[c];
      if (c == except || !p.is_pending || p.key != key || byte_of(from, 1 + c) != 0) continue;
      State to{};
      switch (p.act) {
        case Act::get:
          to = with_byte(from, 1 + c,
                         value == 0 ? code_not_found : static_cast<std::uint8_t>(code_value + value));
          break;
        case Act::put:
          to = with_byte(with_byte(from, 0, p.written), 1 + c, code_ok);
          break;
        case Act::insert:
          to = value != 0 ? with_byte(from, 1 + c, code_exists)
                          : with_byte(with_byte(from, 0, p.written), 1 + c, code_ok);
          break;
        case Act::remove:
          to = with_byte(with_byte(from, 0, 0), 1 + c, value != 0 ? code_ok : code_not_found);
          break;
        default:
          continue;
      }
      if (std::ranges::find(states, to) == states.end()) states.push_back(to);
    }
  }
}

bool Monitor::respond(unsigned client, Answer answer) {
  const unsigned key = pending_[client].key;
  std::vector<State>& states = states_[key];
  close(key, states, nobody);
  const std::uint8_t code = code_of(answer);
  std::vector<State> fitting;
  for (const State state : states) {
    if (byte_of(state, 1 + client) == code) fitting.push_back(with_byte(state, 1 + client, 0));
  }
  pending_[client].is_pending = false;
  std::ranges::sort(fitting);
  // A state that another one leads to by itself need not be kept.
  states.clear();
  for (std::size_t i = 0; i < fitting.size(); ++i) {
    bool covered = false;
    for (std::size_t j = 0; j < fitting.size() && !covered; ++j) {
      if (j == i) continue;
      std::vector<State> reached{fitting[j]};
      close(key, reached, client);
      covered = std::ranges::find(reached, fitting[i]) != reached.end();
    }
    if (!covered) states.push_back(fitting[i]);
  }
  return !states.empty();
}

std::uint64_t Monitor::hash() const {
  std::uint64_t hash = 0;
  for (const auto& states : states_) {
    hash = base::mix(hash + states.size() + 1);
    for (const State state : states) hash = base::mix(hash ^ state);
  }
  return hash;
}

}  // namespace loch::explore
