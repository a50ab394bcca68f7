// A scenario of the explorer: a few clients with a short script each, on one or two keys whose slots meet as
// it says.
//
//   ops=P0;P0;D1 keys=0-1-/0-0- init=1@0 retries=3 crashes=1
//
//   ops       a client's script between semicolons:
//               P put  I insert if absent  D remove  G get     and the key's number
//               M move the key's item to an empty slot where it may stand; M01: to candidate 1 alone
//               S01 begin a growth if there is none, and split the row of key 0's candidate 1
//               F finish the growth: look at every slot
//   keys      for each key its candidates, home first: the row's number at the first level, then for each
//             level above whether it moves up (+) or stays (-). All but the last are in the same row, and
//             candidate i of each key is in column i.
//   init      keys that are there at the beginning, each in a candidate: 1@0
//   growing   1: a growth has begun
//   split     rows that are split already, by key and candidate: 01,10
//   help      1: puts and removes find rows to split; else none are left to them (the growth needs S and F)
//   growths   how many growths S may begin (1)
//   retries   what an operation may repeat before its client counts as stopped (3)
//   crashes   how many clients may die, each at any step (0)
//   probe     1: in every state that is reached a fresh client, with all others stopped, must finish (1)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <loch/error.h>

namespace loch::explore {

inline constexpr unsigned base_level = 1;
inline constexpr unsigned keys_max = 3;
inline constexpr unsigned clients_max = 5;
inline constexpr unsigned script_max = 8;

enum class Act : std::uint8_t { put, insert, remove, get, move, split, finish };

struct ScriptOp {
  static constexpr std::uint8_t any_candidate = 0xff;
  Act act = Act::get;
  std::uint8_t key = 0;
  std::uint8_t candidate = any_candidate;  // split: of `key`; move: where to

  [[nodiscard]] std::string text() const;
  // Whether it is an operation on a key's value, whose answer is checked.
  [[nodiscard]] bool is_keyed() const { return act <= Act::get; }
};

struct Place {
  std::uint8_t key = 0;
  std::uint8_t candidate = 0;
};

// Where a key's candidates are: bit b of `bits` counts if bit b of `known` is set.
struct KeyShape {
  struct Candidate {
    std::uint64_t bits = 0;
    std::uint64_t known = 0;
    bool operator==(const Candidate&) const = default;
  };
  std::vector<Candidate> candidates;
};

struct Scenario {
  std::string text;
  std::vector<std::vector<ScriptOp>> scripts;
  std::vector<KeyShape> keys;
  std::vector<Place> init;
  std::vector<Place> split;
  bool growing = false;
  bool help = false;
  bool probe = true;
  unsigned growths = 1;
  unsigned retries = 3;
  unsigned crashes = 0;

  [[nodiscard]] unsigned candidates() const { return static_cast<unsigned>(keys[0].candidates.size()); }
  // Whether the directory may change while the clients run.
  [[nodiscard]] bool directory_changes() const;
};

// Errors: invalid_argument, naming the word that is wrong.
Result<Scenario> parse_scenario(std::string_view text);
// The lines of a file, without empty ones and those that begin with '#'. Errors: io.
Result<std::vector<std::string>> read_scenarios(const std::string& path);

}  // namespace loch::explore
