// Readers: sessions that may only read (fabric::Fabric::read_only). What a session says of itself in the
// registry of clients, the store's host says for them, but for the words that change while they run: since
// when they do, and their counters.
//
// They take numbers that nobody has left anything with, since they can not settle it: free ones, and those of
// readers that have died. They leave nothing themselves but their counters, which go on from where those of
// the number were.
//
// Any thread of the host; whoever calls holds the presence of the client number.
#pragma once

#include <cstdint>
#include <optional>

#include "fabric/readers.h"
#include "memory/control.h"

namespace loch::memory {

// Where a device changes the words, nobody else raises the count of the numbers that are looked at; so this
// many are from the beginning, and readers have no others.
inline constexpr std::uint32_t device_readers_end = 65;
// Before anybody has a device of this host change the store.
void make_room_for_readers(Control& control);

// The number becomes a reader's, which runs since now. Which words it writes itself; nothing if somebody who
// wrote has died with the number, or if it is beyond those that there are.
std::optional<fabric::OwnWords> admit_reader(Control& control, std::uint32_t client, Atomics atomics);
void dismiss_reader(Control& control, std::uint32_t client);

}  // namespace loch::memory
