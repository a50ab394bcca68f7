// cmd/units: durations, sizes and counts as people write and read them.
// Threads: pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "cmd/encode.h"

namespace loch::cmd {

// "250ms", "10s", "5m", "2h", "7d"; a number without a unit is in seconds; decimals are taken ("1.5s"). 0, or
// 1 ms and more.
Parsed<std::chrono::milliseconds> parse_duration(std::string_view text);

// "4096", "64K", "512M", "2G", "1T", "1P"; powers of 1024; "MiB" and "MB" mean the same as "M".
Parsed<std::uint64_t> parse_bytes(std::string_view text);

// A file mode as chmod takes it in octal: "600", "0660".
Parsed<std::uint32_t> parse_mode(std::string_view text);

std::string human_bytes(std::uint64_t bytes);                      // "1.50 GiB"
std::string human_count(std::uint64_t count);                      // "1,234,567"
std::string how_many(std::uint64_t count, std::string_view what);  // "1 item", "1,200 items"
std::string human_rate(double per_second);                         // "1.2 M/s"
std::string human_duration(std::chrono::milliseconds duration);    // "1 h 5 min", "2.5 s", "20 ms"

// The same, and where that is rounded also exactly, as the parse functions read it without the space.
std::string exact_bytes(std::uint64_t bytes);                    // "1.50 GiB", "2.79 GiB (3000000000 B)"
std::string exact_duration(std::chrono::milliseconds duration);  // "2.5 s", "12.3 s (12345 ms)"

}  // namespace loch::cmd
