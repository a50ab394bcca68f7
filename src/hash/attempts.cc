#include "hash/attempts.h"

#include <algorithm>
#include <fmt/format.h>

namespace loch::hash {

Attempts::Attempts(Slots& slots, const char* operation, std::uint64_t key_hash, Of what)
    : slots_(slots),
      operation_(operation),
      key_hash_(key_hash),
      what_(what),
      deadline_(slots.endpoint().now() + slots.timeout_ns()) {}

coro::Task<Result<void>> Attempts::again() {
  ++retries_;
  slots_.home().count(Counter::backoffs);
  if (auto fresh = co_await slots_.keep_fresh(); !fresh) co_return fresh;
  const base::Nanos now = slots_.endpoint().now();
  if (now >= deadline_) {
    slots_.home().count(Counter::timeouts);
    co_return fail(Errc::timed_out, operation_,
                   fmt::format("gave up after {} tr{} in {} ms{}", retries_, retries_ == 1 ? "y" : "ies",
                               slots_.timeout_ns() / base::millisecond_ns,
                               what_ == Of::change ? "; it may or may not have happened" : ""),
                   key_hash_);
  }
  // Spin while the other is likely to be done in a moment, then let it run.
  constexpr unsigned spins_until = 10;
  if (retries_ <= spins_until) {
    const std::uint64_t spins = slots_.home().random().below(std::uint64_t{1} << retries_);
    for (std::uint64_t i = 0; i < spins; ++i) __builtin_ia32_pause();
    co_return Result<void>{};
  }
  const std::uint64_t exponent = std::min(retries_ - spins_until, 10U);
  const base::Nanos wait_max = base::microsecond_ns << exponent;
  co_await slots_.endpoint().sleep_until(now + 1 + slots_.home().random().below(wait_max));
  co_return Result<void>{};
}

}  // namespace loch::hash
