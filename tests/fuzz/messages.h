// Messages as a peer may say them: sound ones of which something was changed, or is made up.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/remote/protocol.h"
#include "net/message.h"
#include "tests/fuzz/input.h"

namespace loch::fuzz {

// What text_of makes of this text among the values is as deep as a message can be.
inline constexpr const char* deep_word = "as deep as can be";

inline net::Message value_of(Input& input) {
  constexpr std::array words = {
      "",     "a",       "b",      "gone",   "leaves", "drained",    "serves", "claim", "release",
      "free", "present", "leave",  "length", "extend", "membership", "key",    "-a",    "queue_pair",
      "read", "[::1]:1", "h:7457", "host",   "none",   "connection", deep_word};
  constexpr std::array<std::uint64_t, 16> numbers = {0,
                                                     1,
                                                     2,
                                                     64,
                                                     127,
                                                     128,
                                                     192,
                                                     255,
                                                     256,
                                                     1U << fabric::client_number_bits,
                                                     fabric::remote::extension_bytes_max,
                                                     std::uint64_t{1} << 32,
                                                     fabric::region_bytes_max,
                                                     fabric::region_bytes_max + 1,
                                                     ~std::uint64_t{0} - fabric::remote::extension_bytes_max,
                                                     ~std::uint64_t{0}};
  switch (input.take(1) % 11) {
    case 0:
      return nullptr;
    case 1:
      return true;
    case 2:
      return false;
    case 3:
      return input.take(1);
    case 4:
      return input.take(8);
    case 5:
      return numbers[input.take(1) % numbers.size()];
    case 6:
      return -static_cast<std::int64_t>(input.take(1));
    case 7:
      return static_cast<double>(input.take(2)) / 8;
    case 8:
      return words[input.take(1) % words.size()];
    case 9: {  // of ASCII: the parser takes no text that is no UTF-8
      std::string text = input.take_bytes(input.take(1) % 80);
      for (char& c : text) c = static_cast<char>(c & 0x7f);
      return text;
    }
    default:
      return (input.take(1) & 1) != 0 ? net::Message::array() : net::Message::object();
  }
}

// All places of a message, it itself among them.
inline void add_places(net::Message& message, std::vector<net::Message*>* places) {
  places->push_back(&message);
  if (!message.is_structured()) return;
  for (net::Message& child : message) add_places(child, places);
}

// Up to three changes, as the input says; none if there is none.
inline void change(net::Message& message, Input& input) {
  constexpr std::array fields = {"do",      "port",   "region",  "bytes",   "at",        "client",
                                 "reached", "error",  "code",    "node",    "read_only", "name",
                                 "next",    "detail", "cluster", "lockable"};
  for (std::uint64_t changes = input.take(1) & 3; changes != 0; --changes) {
    std::vector<net::Message*> places;
    add_places(message, &places);
    net::Message& place = *places[input.take(1) % places.size()];
    switch (input.take(1) & 3) {
      case 0:
        if (place.is_structured() && !place.empty()) {
          auto child = place.begin();
          std::advance(child, input.take(1) % place.size());
          place.erase(child);
        }
        break;
      case 1:
        place = net::Message(*places[input.take(1) % places.size()]);
        break;
      case 2:
        if (place.is_object()) place[fields[input.take(1) % fields.size()]] = value_of(input);
        break;
      default:
        place = value_of(input);
        break;
    }
  }
}

// A message as it is sent, without its length.
inline std::string text_of(const net::Message& message) {
  std::string text = message.dump(-1, ' ', false, net::Message::error_handler_t::replace);
  const std::string word = net::Message(deep_word).dump();
  const auto at = text.find(word);
  if (at == std::string::npos) return text;
  const std::size_t depth = (net::Messages::bytes_max - std::min(text.size(), net::Messages::bytes_max)) / 2;
  return text.replace(at, word.size(), std::string(depth, '[') + std::string(depth, ']'));
}

// The same with its length before it, as it is sent.
inline std::string framed(std::string_view text) {
  const auto length = static_cast<std::uint32_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + std::string(text);
}

// Whether there is nothing in it that a terminal or a log would act on.
inline bool is_plain(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < ' ' || byte == 0x7f) return false;
    // U+0080 to U+009f.
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return false;
  }
  return true;
}

}  // namespace loch::fuzz
