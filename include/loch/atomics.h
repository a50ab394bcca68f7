// Atomics: fixed for each store when it is made.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace loch {

// Whose atomics a store's words are changed with. With the processor's, the processes of its host share it at
// the speed of memory, and what clients of other hosts change over verbs is carried out by that host's lochd.
// With those of an RDMA device, which are not atomic against the processor's, the device carries out
// everything, and all clients open the store as "verbs://...", those of its own host too.
enum class Atomics : std::uint8_t { processor, device };
// "processor" or "device".
[[nodiscard]] inline std::optional<Atomics> parse_atomics(std::string_view text) {
  if (text == "processor") return Atomics::processor;
  if (text == "device") return Atomics::device;
  return std::nullopt;
}

}  // namespace loch
