// What a store's memory is used for, as it can be seen without a session; for those who look after a host.
#pragma once

#include <cstdint>

#include "fabric/endpoint.h"

namespace loch::memory {

struct Usage {
  std::uint64_t index_bytes = 0;
  std::uint64_t data_bytes = 0;       // of whole blocks, without those of descriptors
  std::uint64_t data_free_bytes = 0;  // of these, in blocks that nobody has
};

// Of the regions that are mapped here; others change it meanwhile. One thread.
Usage usage_of(fabric::Endpoint& endpoint);

}  // namespace loch::memory
