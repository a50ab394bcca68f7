#include "cmd/encode.h"

#include <array>
#include <cstdint>
#include <fmt/format.h>

namespace loch::cmd {
namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";
constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t no_digit = 0xff;

constexpr std::array<std::uint8_t, 256> base64_values = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(no_digit);
  for (std::size_t i = 0; i < base64_digits.size(); ++i) {
    values[static_cast<std::uint8_t>(base64_digits[i])] = static_cast<std::uint8_t>(i);
  }
  return values;
}();

std::uint8_t byte_at(std::string_view text, std::size_t at) { return static_cast<std::uint8_t>(text[at]); }

// The value of a hexadecimal digit, or -1.
int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

// The bytes that a sequence with this first byte has, and the range of its second byte; 0 for no sequence.
struct Utf8Lead {
  std::size_t length_bytes;
  std::uint8_t second_min;
  std::uint8_t second_max;
};

Utf8Lead utf8_lead(std::uint8_t first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xc2) return {0, 0, 0};  // a continuation byte, or an overlong form
  if (first < 0xe0) return {2, 0x80, 0xbf};
  if (first == 0xe0) return {3, 0xa0, 0xbf};
  if (first == 0xed) return {3, 0x80, 0x9f};  // above: surrogates
  if (first < 0xf0) return {3, 0x80, 0xbf};
  if (first == 0xf0) return {4, 0x90, 0xbf};
  if (first < 0xf4) return {4, 0x80, 0xbf};
  if (first == 0xf4) return {4, 0x80, 0x8f};  // above: beyond U+10FFFF
  return {0, 0, 0};
}

void append_hex_escape(std::string& out, std::uint8_t byte) {
  out += "\\x";
  out += hex_digits[byte >> 4];
  out += hex_digits[byte & 15];
}

void append_escaped_ascii(std::string& out, char character) {
  switch (character) {
    case '\t':
      out += "\\t";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\\':
      out += "\\\\";
      return;
    default:
      break;
  }
  const auto byte = static_cast<std::uint8_t>(character);
  if (byte < 0x20 || byte == 0x7f) {
    append_hex_escape(out, byte);
  } else {
    out += character;
  }
}

}  // namespace

std::size_t utf8_sequence_bytes(std::string_view bytes) {
  if (bytes.empty()) return 0;
  const Utf8Lead lead = utf8_lead(byte_at(bytes, 0));
  if (lead.length_bytes <= 1) return lead.length_bytes;
  if (bytes.size() < lead.length_bytes) return 0;
  const std::uint8_t second = byte_at(bytes, 1);
  if (second < lead.second_min || second > lead.second_max) return 0;
  for (std::size_t i = 2; i < lead.length_bytes; ++i) {
    if ((byte_at(bytes, i) & 0xc0) != 0x80) return 0;
  }
  return lead.length_bytes;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = utf8_sequence_bytes(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

void append_escaped(std::string& out, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = utf8_sequence_bytes(bytes);
    if (length == 0) {
      append_hex_escape(out, byte_at(bytes, 0));
      bytes.remove_prefix(1);
      continue;
    }
    const std::string_view sequence = bytes.substr(0, length);
    // U+0080 to U+009F are control characters too; terminals act on some of them.
    const bool control = length == 2 && byte_at(bytes, 0) == 0xc2 && byte_at(bytes, 1) < 0xa0;
    if (length == 1) {
      append_escaped_ascii(out, bytes[0]);
    } else if (control || sequence == byte_order_mark) {
      for (std::size_t at = 0; at < length; ++at) append_hex_escape(out, byte_at(sequence, at));
    } else {
      out += sequence;
    }
    bytes.remove_prefix(length);
  }
}

std::string escaped(std::string_view bytes) {
  std::string out;
  append_escaped(out, bytes);
  return out;
}

Parsed<std::string> unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  while (at < text.size()) {
    const char character = text[at++];
    if (character != '\\') {
      out += character;
      continue;
    }
    if (at == text.size())
      return std::unexpected(R"(a lone backslash at the end (write \\ for a backslash))");
    const char kind = text[at++];
    if (kind == 't') {
      out += '\t';
    } else if (kind == 'n') {
      out += '\n';
    } else if (kind == 'r') {
      out += '\r';
    } else if (kind == '\\') {
      out += '\\';
    } else if (kind == 'x') {
      const int high = at < text.size() ? hex_value(text[at]) : -1;
      const int low = at + 1 < text.size() ? hex_value(text[at + 1]) : -1;
      if (high < 0 || low < 0) return std::unexpected("\\x without two hexadecimal digits");
      out += static_cast<char>(high * 16 + low);
      at += 2;
    } else {
      return std::unexpected(fmt::format(R"(unknown escape \{} (known: \t \n \r \\ \xHH))",
                                         escaped(std::string_view(&kind, 1))));
    }
  }
  return out;
}

std::string to_hex(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char character : bytes) {
    const auto byte = static_cast<std::uint8_t>(character);
    out += hex_digits[byte >> 4];
    out += hex_digits[byte & 15];
  }
  return out;
}

Parsed<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::unexpected("an odd number of hexadecimal digits");
  std::string out;
  out.reserve(text.size() / 2);
  for (std::size_t at = 0; at < text.size(); at += 2) {
    const int high = hex_value(text[at]);
    const int low = hex_value(text[at + 1]);
    if (high < 0 || low < 0) {
      return std::unexpected(fmt::format("'{}' is no hexadecimal byte", escaped(text.substr(at, 2))));
    }
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = bytes.size() - at < 3 ? bytes.size() - at : 3;
    std::uint32_t group = static_cast<std::uint32_t>(byte_at(bytes, at)) << 16;
    if (count > 1) group |= static_cast<std::uint32_t>(byte_at(bytes, at + 1)) << 8;
    if (count > 2) group |= byte_at(bytes, at + 2);
    out += base64_digits[group >> 18];
    out += base64_digits[(group >> 12) & 63];
    out += count > 1 ? base64_digits[(group >> 6) & 63] : '=';
    out += count > 2 ? base64_digits[group & 63] : '=';
  }
  return out;
}

Parsed<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::unexpected("base64 whose length is no multiple of 4");
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    const std::size_t digits = last ? 4 - padding : 4;
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const std::uint8_t value = base64_values[byte_at(text, at + i)];
      if (value == no_digit) return std::unexpected("a character that is not of base64");
      group |= static_cast<std::uint32_t>(value) << (18 - 6 * i);
    }
    const std::uint32_t unused = digits == 2 ? 0xffff : digits == 3 ? 0xff : 0;
    if ((group & unused) != 0) return std::unexpected("base64 with stray bits at its end");
    out += static_cast<char>(group >> 16);
    if (digits > 2) out += static_cast<char>((group >> 8) & 255);
    if (digits > 3) out += static_cast<char>(group & 255);
  }
  return out;
}

}  // namespace loch::cmd
