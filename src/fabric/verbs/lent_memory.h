// LentMemory: which of the host's memory its device lets a session at. The host, whose answers are input, is
// asked for what is not known yet. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include <loch/error.h>

#include "base/clock.h"
#include "fabric/verbs/keys.h"
#include "net/message.h"

namespace loch::fabric::verbs {

class LentMemory {
 public:
  // Asks the host, until then at most (remote::Link::ask).
  using Ask = std::function<Result<net::Message>(const net::Message& question, base::Nanos deadline)>;
  // `port` is that of the session's data connection.
  LentMemory(Ask ask, std::uint64_t port) : ask_(std::move(ask)), port_(port) {}

  // Null if nothing is known there. Until something more is.
  [[nodiscard]] const Keys::Key* find(RegionId region, std::uint64_t offset_bytes) const {
    return keys_.find(region, offset_bytes);
  }
  // Whether all of this is lent, and known from now on. However many questions that takes, they have until
  // `deadline` together.
  bool covers(Address at, std::uint64_t length_bytes, base::Nanos deadline);

  // Why the host could not be asked.
  [[nodiscard]] const std::optional<Error>& trouble() const { return trouble_; }
  // For how long it was asked since this was last called.
  base::Nanos take_asked_ns() { return std::exchange(asked_ns_, 0); }

 private:
  const Keys::Key* learn(Address at, base::Nanos deadline);

  const Ask ask_;
  const std::uint64_t port_;
  Keys keys_;
  std::optional<Error> trouble_;
  base::Nanos asked_ns_ = 0;
};

}  // namespace loch::fabric::verbs
