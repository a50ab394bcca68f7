// Recorder: the history of a run, and what each value that was written may be found under.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "sim/history.h"

namespace loch::sim {

class Recorder {
 public:
  using Index = std::size_t;

  // The clients' clock tells whole ticks, and some know it `lag_ns` later.
  explicit Recorder(base::Nanos tick_ns = 1, base::Nanos lag_ns = 0) : tick_ns_(tick_ns), lag_ns_(lag_ns) {}

  Index invoke(std::uint64_t client, Kind kind, std::string_view key, base::Nanos now,
               ValueId written = no_value, ValueId expected = no_value);
  void respond(Index index, Outcome outcome, base::Nanos now, ValueId found = no_value);
  // It certainly did nothing and tells nothing: as if it had not been asked.
  void forget(Index index) { history_[index].outcome = Outcome::failed; }

  // An id that no other value has.
  ValueId new_value() { return ++values_; }
  // The value that `index` writes may be gone when the store's clock says `dying_at`, and is when it says
  // `dead_at`, if that is known.
  void make_mortal(Index index, base::Nanos dying_at);
  void make_dead(Index index, base::Nanos dead_at);

  // The value of `key` is gone with the memory that it was in, since some moment between these; or, if
  // `until` is never_ns, it may be or not.
  void lose(std::string_view key, base::Nanos since, base::Nanos until);

  // An item of `key` was damaged: what is answered for this key means nothing any more.
  void damage(std::string_view key);
  [[nodiscard]] bool is_damaged(std::string_view key) const { return damaged_.contains(key); }
  [[nodiscard]] std::size_t damages() const { return damages_; }

  // Takes the id out of what was found under `key` by somebody whose clock said `asked_at` when he asked; and
  // a line that says what is wrong with it, if it is.
  struct Found {
    ValueId id = no_value;
    std::string wrong{};
  };
  [[nodiscard]] Found identify(std::string_view key, std::string_view value, base::Nanos asked_at) const;

  [[nodiscard]] const std::vector<Operation>& history() const { return history_; }
  // The same in a form that takes no account of time: a replace or remove that was still under way when the
  // value's time was over may have been before or after that. Without the keys that were damaged.
  [[nodiscard]] std::vector<Operation> timeless_history() const;

 private:
  static constexpr base::Nanos lives_on = ~base::Nanos{0};
  struct Written {
    std::string key;
    base::Nanos dying_at = lives_on;
    base::Nanos dead_at = lives_on;
  };
  base::Nanos tick_ns_;
  base::Nanos lag_ns_;
  std::vector<Operation> history_;
  std::map<ValueId, Written> written_;
  ValueId values_ = no_value;
  std::set<std::string, std::less<>> damaged_;
  std::size_t damages_ = 0;
};

}  // namespace loch::sim
