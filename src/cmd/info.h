// cmd/info: a store's Info for programs and for people.
#pragma once

#include <cstdint>
#include <string>

#include <loch/loch.h>

#include "cmd/json.h"

namespace loch::cmd {

// The live sessions but that of the command itself, by which it knows of them.
std::uint64_t other_clients(const Info& info);

// Every member under its own name, but "location", the store's own folder or URL, which is not what
// --directory takes; "clients" are the others; times in milliseconds ("expiry_ms"); "totals" is an object of
// all counters.
Json info_json(const Info& info);

// What it is and how full, as a table.
std::string info_text(const Info& info);

// What was fixed when it was created, as a table, exactly.
std::string geometry_text(const Info& info);

}  // namespace loch::cmd
