// Recorder: the history of a run, and what each value that was written may be found under.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
  explicit Recorder(base::Nanos tick_ns = 1, base::Nanos lag_ns = 0)
      : tick_ns_(tick_ns), lags_{{.ns = lag_ns}} {}

  // The time of a part of the store stood still for so long, in which nobody asked for it: from then on some
  // know the time that much later still.
  void add_lag(base::Nanos since, base::Nanos more_ns) { lags_.push_back({.since = since, .ns = more_ns}); }
  // How much later than it is some know the time now.
  [[nodiscard]] base::Nanos lag_ns() const { return lag_at(never_ns); }
  // The least that the store's clock says to whoever asks at `now` and knows it `lag_ns` later.
  [[nodiscard]] base::Nanos known_at(base::Nanos now, base::Nanos lag_ns) const {
    return now < lag_ns ? 0 : (now - lag_ns) / tick_ns_ * tick_ns_;
  }

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

  // An item of `key` is damaged: what is answered for this key from now on means nothing.
  void damage(std::string_view key, base::Nanos now);
  [[nodiscard]] bool is_damaged(std::string_view key) const { return damaged_.contains(key); }
  [[nodiscard]] std::size_t damages() const { return damages_; }

  // Takes the id out of what was found under `key` by somebody who knew that it was `asked_at` when he asked;
  // and a line that says what is wrong with it, if it is.
  struct Found {
    ValueId id = no_value;
    std::string wrong{};
  };
  [[nodiscard]] Found identify(std::string_view key, std::string_view value, base::Nanos asked_at) const;

  [[nodiscard]] const std::vector<Operation>& history() const { return history_; }
  // The same in a form that takes no account of time: a value that certainly was put, and is known to be
  // dead, is gone by when everybody knows the time; and a replace or remove that was still under way when the
  // value's time was over may have been before or after that. Of a key that was damaged, what had ended by
  // then; what was asked of it later, or still under way, may have changed it or not.
  [[nodiscard]] std::vector<Operation> timeless_history() const;

 private:
  static constexpr base::Nanos lives_on = ~base::Nanos{0};
  struct Written {
    std::string key;
    Index by = 0;
    base::Nanos dying_at = lives_on;
    base::Nanos dead_at = lives_on;
  };
  struct Lag {
    base::Nanos since = 0;
    base::Nanos ns = 0;  // that is added then
  };
  [[nodiscard]] base::Nanos lag_at(base::Nanos now) const;
  // When everybody knows that the store's clock says `time`.
  [[nodiscard]] base::Nanos known_by(base::Nanos time) const;
  // The operation, if it still counts for a key that was damaged at that time.
  static std::optional<Operation> before_damage(Operation operation, base::Nanos damaged_at);

  base::Nanos tick_ns_;
  std::vector<Lag> lags_;
  std::vector<Operation> history_;
  std::map<ValueId, Written> written_;
  ValueId values_ = no_value;
  std::map<std::string, base::Nanos, std::less<>> damaged_;  // since when
  std::size_t damages_ = 0;
};

}  // namespace loch::sim
