// cmd/encode: bytes as text and back: backslash escapes, hexadecimal, base64, and what is UTF-8.
//
// Every decoder is strict: it takes exactly what its encoder may write (and what its comment adds), and says
// what was wrong with anything else. Errors are sentences for people, without the file and line, which the
// caller knows. Threads: pure functions.
#pragma once

#include <cstddef>
#include <expected>
#include <string>
#include <string_view>

namespace loch::cmd {

template <class T>
using Parsed = std::expected<T, std::string>;

// Whether `bytes` is well-formed UTF-8 (no overlong forms, no surrogates, nothing above U+10FFFF).
bool is_utf8(std::string_view bytes);

// The length of the well-formed UTF-8 sequence at the start of `bytes`, 0 if there is none.
std::size_t utf8_sequence_bytes(std::string_view bytes);

// Before the first line of a file it says that this is UTF-8, and is not part of the text.
inline constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// Appends `bytes` with \t \n \r \\ for those, and \xHH for every other control character, for a byte order
// mark, and for every byte that is not part of well-formed UTF-8. The result is printable text on one line
// without tabs.
void append_escaped(std::string& out, std::string_view bytes);
std::string escaped(std::string_view bytes);

// Undoes append_escaped. Takes unescaped bytes as they are; refuses a backslash that starts no escape.
Parsed<std::string> unescape(std::string_view text);

// Two digits a byte; lower case out, either case in.
std::string to_hex(std::string_view bytes);
Parsed<std::string> from_hex(std::string_view text);

// RFC 4648, with padding and the standard alphabet.
std::string to_base64(std::string_view bytes);
Parsed<std::string> from_base64(std::string_view text);

}  // namespace loch::cmd
