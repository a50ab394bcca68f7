// cmd/record: one item as one line of text, for load, dump and scan-all.
//
// TSV         KEY<TAB>VALUE[<TAB>TTL_MS], with the escapes of cmd/encode in KEY and VALUE. The third field is
// there
//             only for an item with a time to live: what is left of it, in milliseconds.
// JSON Lines  {"key":"k","value":"v","ttl_ms":5000}; bytes that are not UTF-8 stand in "key_base64" and
//             "value_base64" instead. "ttl_ms" may be left out or null, and "version" is passed over.
//
// What the one direction writes the other reads back byte for byte, whatever the bytes.
// Threads: pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cmd/encode.h"

namespace loch::cmd {

enum class Format : std::uint8_t { tsv, jsonl };

struct Record {
  std::string key;
  std::string value;
  std::optional<std::chrono::milliseconds> time_to_live;
};

// The longest line of a key and value within the limits of a store; longer input is refused before it is
// kept.
inline constexpr std::size_t record_line_bytes_max =
    std::size_t{6} * ((std::size_t{128} << 20) + 4096) + 4096;

// What is left of a time to live as it is written: an item seen in its last millisecond still has one, and 0
// would mean none.
inline std::int64_t ttl_ms_left(std::chrono::milliseconds left) {
  return left.count() > 0 ? left.count() : 1;
}

// Appends one line with its newline.
void append_record(std::string& out, Format format, std::string_view key, std::string_view value,
                   std::optional<std::chrono::milliseconds> time_to_live);

// Appends the key alone: escaped text, or {"key":...}.
void append_key(std::string& out, Format format, std::string_view key);

// Reads one line (without its newline).
Parsed<Record> parse_record(Format format, std::string_view line);

// "tsv" or "jsonl".
Parsed<Format> parse_format(std::string_view name);

// By the ending of the file's name: .jsonl, .ndjson and .json are JSON Lines, everything else TSV.
Format format_of_file(std::string_view path);

}  // namespace loch::cmd
