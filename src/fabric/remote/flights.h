// Flights: the batches that a port has posted and that are not over yet. Each is asked for piece by piece, in
// the order in which they were posted, as long as there is room on the way; one that waits for its own pieces
// lets those behind it go on. Pieces are answered in the order in which they were asked for.
//
// One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <expected>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <span>
#include <string>
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
    base::Nanos posted_at = 0;      // of one in the background, whose time counts from when it is asked for
    std::size_t operation = 0;      // where in the batch to go on,
    std::size_t from = 0;           // and where in that operation
    std::size_t pieces = 0;         // that are asked for and not answered
    std::uint64_t bytes = 0;        // that it carries there or back
    bool may_have_swapped = false;  // a word
    Result<void> outcome{};
  };
  // How it ends with what goes by a port that is over.
  struct Ending {
    Error unread;    // which only reads
    Error doubtful;  // which may have swapped a word
    Error undone;    // which has not, if that is known
    Error posted_later;

    // `why` is Errc::moved if the host has said that what it has not answered does not happen.
    static Ending of(const Error& why, const std::string& location) {
      const bool is_told = why.code == Errc::moved;
      const auto error = [](Errc code, std::string detail) {
        return Error{.code = code, .operation = "fabric", .detail = std::move(detail)};
      };
      const Error unread = error(why.code, fmt::format("{}: {}", location, why.detail));
      const Error doubtful =
          error(is_told ? Errc::unavailable : why.code, unread.detail + "; it may or may not have happened");
      if (!is_told) {
        return {.unread = unread,
                .doubtful = doubtful,
                .undone = doubtful,
                .posted_later =
                    error(Errc::unavailable, fmt::format("{}: the session was broken off", location))};
      }
      const Error undone = error(Errc::moved, unread.detail + "; it did not happen");
      return {.unread = unread, .doubtful = doubtful, .undone = undone, .posted_later = undone};
    }
  };
  // What a piece waits for before it can be asked for: as all others do, or alone.
  enum class Wait : std::uint8_t { for_room, for_its_flight };
  using Put = std::expected<std::size_t, Wait>;
  // Of what somebody else sees to; with room for the times that it stood still.
  static constexpr base::Nanos no_deadline = std::numeric_limits<base::Nanos>::max() / 2;

  // What is under way may take longer than its deadline says, by the time that so many bytes take: a long
  // value is to get through a slow network, and not to be broken off while it moves.
  static constexpr std::uint64_t slowest_bytes_per_ms = 8 << 10;

  // `location` is of the store, for errors.
  explicit Flights(std::string location) : location_(std::move(location)) {}

  [[nodiscard]] const std::string& location() const { return location_; }

  [[nodiscard]] bool empty() const { return posted_.empty() && asked_.empty(); }

  void post(std::span<Operation> batch, base::Nanos deadline, Completion& done) {
    std::unique_ptr<Flight> flight;
    if (spare_.empty()) {
      flight = std::make_unique<Flight>();
    } else {
      flight = std::move(spare_.back());
      spare_.pop_back();
    }
    *flight = {.batch = batch, .done = &done};
    for (const Operation& operation : batch) flight->bytes += operation.length_bytes;
    bytes_ += flight->bytes;
    flight->deadline = deadline + bytes_ / slowest_bytes_per_ms * base::millisecond_ns;
    if (done.urgency == Urgency::background) {
      flight->posted_at = base::Clock().now();
    } else {
      is_awaited_ = true;
    }
    posted_.push_back(std::move(flight));
  }
  // Whether what was posted is to be asked for now: somebody waits for it, or for nothing else.
  [[nodiscard]] bool is_due() const { return !posted_.empty() && (is_awaited_ || asked_.empty()); }

  // Asks for what was posted. `put(flight, operation, from)` asks for a piece that begins there, and returns
  // its length, or what it waits for; it may be all of some operations that follow each other in the batch.
  // It counts its pieces in `flight.pieces`.
  template <class PutPiece>
  void ask(base::Nanos now, PutPiece put) {
    for (std::size_t i = 0; i < posted_.size();) {
      const auto done = ask_for(*posted_[i], now, put);
      if (!done && done.error() == Wait::for_room) return;
      if (!done) {
        ++i;
        continue;
      }
      asked_.push_back(std::move(posted_[i]));
      posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (posted_.empty()) is_awaited_ = false;
  }

  // Tells of those that are over; whether there were any.
  bool settle() {
    bool any = false;
    while (!asked_.empty() && asked_.front()->pieces == 0) {
      std::unique_ptr<Flight> flight = std::move(asked_.front());
      asked_.pop_front();
      bytes_ -= flight->bytes;
      flight->done->complete(*flight->done, std::move(flight->outcome));
      spare_.push_back(std::move(flight));
      any = true;
    }
    return any;
  }

  // Whether one has waited beyond its deadline.
  [[nodiscard]] bool any_late(base::Nanos now) const {
    const auto is_late = [now](const auto& flight) {
      return flight->outcome.has_value() && flight->posted_at == 0 && now > flight->deadline;
    };
    return std::ranges::any_of(asked_, is_late) || std::ranges::any_of(posted_, is_late);
  }
  // For so long nothing could be asked for, and no answer be taken: nobody's time counts that.
  void stood_still(base::Nanos for_ns) {
    for (const auto* flights : {&asked_, &posted_}) {
      for (const auto& flight : *flights) flight->deadline += for_ns;
    }
  }

  // Ends them all, those that were over as they are.
  void end_all(const Ending& ending) {
    is_awaited_ = false;
    bytes_ = 0;
    const auto end = [&](const Flight& flight) {
      const Error& its = only_reads(flight)        ? ending.unread
                         : flight.may_have_swapped ? ending.doubtful
                                                   : ending.undone;
      flight.done->complete(*flight.done, std::unexpected(its));
    };
    auto posted = std::exchange(posted_, {});
    for (const auto& flight : std::exchange(asked_, {})) {
      if (flight->pieces == 0) {
        flight->done->complete(*flight->done, std::move(flight->outcome));
      } else {
        end(*flight);
      }
    }
    for (const auto& flight : posted) end(*flight);
  }

 private:
  // Asks for what is left of one.
  template <class PutPiece>
  std::expected<void, Wait> ask_for(Flight& flight, base::Nanos now, PutPiece& put) const {
    if (const base::Nanos posted_at = std::exchange(flight.posted_at, 0); posted_at != 0)
      flight.deadline += now - posted_at;
    if (flight.operation == 0 && flight.from == 0 && now > flight.deadline) {
      flight.outcome = fail(Errc::timed_out, "fabric",
                            fmt::format("{}: the deadline passed before it was sent", location_));
      return {};
    }
    while (flight.operation < flight.batch.size()) {
      Operation& operation = flight.batch[flight.operation];
      operation.bad_address = operation.bad_address && flight.from != 0;
      const Put length = put(flight, operation, flight.from);
      if (!length) return std::unexpected(length.error());
      flight.from += *length;
      while (flight.from >= flight.batch[flight.operation].length_bytes) {
        flight.from -= flight.batch[flight.operation++].length_bytes;
        if (flight.from == 0) break;
      }
    }
    return {};
  }

  static bool only_reads(const Flight& flight) {
    return std::ranges::all_of(flight.batch, [](const Operation& operation) {
      return operation.kind == Operation::Kind::read || operation.kind == Operation::Kind::expect;
    });
  }

  using Queue = std::deque<std::unique_ptr<Flight>>;
  const std::string location_;
  Queue posted_;  // not asked for whole, in the order in which they were posted
  Queue asked_;   // for whole, in that order; so they are over in that order, too
  std::vector<std::unique_ptr<Flight>> spare_;
  bool is_awaited_ = false;  // any of those that are not asked for whole
  std::uint64_t bytes_ = 0;  // of all of them
};

}  // namespace loch::fabric::remote
