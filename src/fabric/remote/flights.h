// Flights: the batches that a port has posted and that are not over yet, in the order in which they were
// posted. A batch is asked for piece by piece, as long as there is room on the way.
//
// One thread.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fabric/fabric.h"

namespace loch::fabric::remote {

class Flights {
 public:
  struct Flight {
    std::span<Operation> batch;
    base::Nanos deadline = 0;
    Completion* done = nullptr;
    base::Nanos posted_at = 0;  // of one in the background, whose time counts from when it is asked for
    std::size_t pieces = 0;     // that are asked for and not answered
    bool is_asked = false;      // all of it
    Result<void> outcome{};
  };
  [[nodiscard]] bool empty() const { return flights_.empty(); }

  void post(std::span<Operation> batch, base::Nanos deadline, Completion& done) {
    std::unique_ptr<Flight> flight;
    if (spare_.empty()) {
      flight = std::make_unique<Flight>();
    } else {
      flight = std::move(spare_.back());
      spare_.pop_back();
    }
    *flight = {.batch = batch, .deadline = deadline, .done = &done};
    if (done.urgency == Urgency::background) {
      flight->posted_at = base::Clock().now();
    } else {
      is_awaited_ = true;
    }
    flights_.push_back(std::move(flight));
  }
  // Whether what was posted is to be asked for now: somebody waits for it, or for nothing else.
  [[nodiscard]] bool is_due() const { return next_ < flights_.size() && (is_awaited_ || next_ == 0); }

  // Asks for what was posted. `put(flight, operation, from)` asks for a piece that begins there, and returns
  // its length, or nothing if there is no room for it now; it may be all of some operations that follow each
  // other in the batch. It counts its pieces in `flight.pieces`.
  template <class Put>
  void ask(base::Nanos now, Put put) {
    while (next_ < flights_.size()) {
      Flight& flight = *flights_[next_];
      if (const base::Nanos posted_at = std::exchange(flight.posted_at, 0); posted_at != 0)
        flight.deadline += now - posted_at;
      if (operation_ == 0 && from_ == 0 && now > flight.deadline) {
        flight.outcome = fail(Errc::timed_out, "fabric", "the deadline passed before it was sent");
        operation_ = flight.batch.size();
      }
      while (operation_ < flight.batch.size()) {
        Operation& operation = flight.batch[operation_];
        operation.bad_address = operation.bad_address && from_ != 0;
        const std::optional<std::size_t> length = put(flight, operation, from_);
        if (!length) return;
        from_ += *length;
        while (from_ >= flight.batch[operation_].length_bytes) {
          from_ -= flight.batch[operation_++].length_bytes;
          if (from_ == 0) break;
        }
      }
      flight.is_asked = true;
      ++next_;
      operation_ = 0;
    }
    is_awaited_ = false;
  }

  // Tells of those that are over; whether there were any.
  bool settle() {
    bool any = false;
    while (!flights_.empty() && is_over(*flights_.front())) {
      std::unique_ptr<Flight> flight = std::move(flights_.front());
      flights_.pop_front();
      --next_;
      flight->done->complete(*flight->done, std::move(flight->outcome));
      spare_.push_back(std::move(flight));
      any = true;
    }
    return any;
  }

  // Whether one has waited beyond its deadline.
  [[nodiscard]] bool any_late(base::Nanos now) const {
    return std::ranges::any_of(flights_, [now](const auto& flight) {
      return flight->outcome.has_value() && flight->posted_at == 0 && now > flight->deadline;
    });
  }

  // Ends them all; with `why` unless they were over.
  void end_all(const Error& why) {
    next_ = operation_ = from_ = 0;
    is_awaited_ = false;
    for (const auto& flight : std::exchange(flights_, {})) {
      flight->done->complete(
          *flight->done, is_over(*flight) ? std::move(flight->outcome) : Result<void>(std::unexpected(why)));
    }
  }

 private:
  static bool is_over(const Flight& flight) { return flight.is_asked && flight.pieces == 0; }

  std::deque<std::unique_ptr<Flight>> flights_;
  std::vector<std::unique_ptr<Flight>> spare_;
  std::size_t next_ = 0;       // the first of them that is not asked for whole,
  std::size_t operation_ = 0;  // and where in it to go on
  std::size_t from_ = 0;
  bool is_awaited_ = false;  // any of those that are not asked for whole
};

}  // namespace loch::fabric::remote
