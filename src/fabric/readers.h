// Readers: what a store's host does for sessions that may only read (Fabric::read_only). It knows what a
// session says of itself in the store, which fabrics do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "fabric/fabric.h"

namespace loch::fabric {

// The words that such a session writes itself.
struct OwnWords {
  Range first{};
  Range second{};

  [[nodiscard]] constexpr bool contains(Address from, std::uint64_t bytes) const {
    return first.contains(from, bytes) || second.contains(from, bytes);
  }
};

// Called while the presence of `client` is held for the session.
struct Readers {
  // Says in the store that the session is there. Which words it may write from now on; nothing if it can not
  // have this number.
  std::function<Result<std::optional<OwnWords>>(Fabric& store, std::uint32_t client)> admit;
  // Says that it has gone.
  std::function<void(Fabric& store, std::uint32_t client)> dismiss;
  // How many numbers of a store those may have together who know the key for reading alone, since they are to
  // keep nobody out: half of them (memory/layout.h).
  std::size_t numbers_max = 511;
};

}  // namespace loch::fabric
