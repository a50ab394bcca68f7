// Attempts: bounds the retries of an operation, and spaces them.
#pragma once

#include <cstdint>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "base/clock.h"
#include "hash/slots.h"

namespace loch::hash {

class Attempts final {
 public:
  enum class Of : std::uint8_t { look, change };
  Attempts(Slots& slots, const char* operation, std::uint64_t key_hash, Of what);
  // Before each retry: backs off, exponentially. Errors: timed_out when the deadline has passed, and those of
  // a refresh.
  coro::Task<Result<void>> again();
  [[nodiscard]] unsigned retries() const { return retries_; }

 private:
  Slots& slots_;
  const char* operation_;
  std::uint64_t key_hash_;
  Of what_;
  base::Nanos deadline_;
  unsigned retries_ = 0;
};

}  // namespace loch::hash
