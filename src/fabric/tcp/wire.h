// What goes over a data connection of `tcp`, in both directions: operations, which are carried out in the
// order in which they come, except that what is read as settled may be read as late as when it is sent; and
// their answers in the same order. Each is a head and what belongs to it, all of it filled up to whole words,
// least byte first.
//
//   operation  | kind 1 | region 1 | number 2 | length 4 | offset 8 |   and then, by kind (without its bits
//   after_previous_bit, which says that it is not done if the one before it was not, and, of a read,
//   settled_bit):
//       read           nothing
//       write, expect  `length` bytes
//       compare_swap   | compare 8 | desired 8 |
//       fetch_add      | added 8 |
//       read_words     the offsets of all words but the first | 8 each |
//   answer     | status 1 | kind 1, without those bits | number 2 | length 4 |   and then, if it was done:
//       read           `length` bytes
//       an atomic      | the word as it was before 8 |
//       write, expect  nothing
//       read_words     the words | 8 each |; if it was not done: | 8, a bit for each that is no word | before
//       them
//
// A host that ends a session says so, in an answer of no operation, all of which is 0 but its status: what it
// has not answered before it does not carry out any more.
//
// read_words is for several words of one region that are anywhere, as the slots of a key are: to either end
// they are one operation.
//
// `number` counts the operations of a connection, so that two ends that do not agree notice. There are no
// frames: an end sends what it has in one call, and takes what has come in one call.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fabric/fabric.h"
#include "fabric/words.h"

namespace loch::fabric::tcp {

static_assert(std::endian::native == std::endian::little);

// A longer read or write is sent in pieces.
inline constexpr std::size_t piece_bytes_max = 65'536;

// Of an operation of this wire alone, beside those of Operation::Kind.
inline constexpr std::uint8_t read_words_kind = 5;
inline constexpr std::size_t words_at_once_max = 16;

inline constexpr std::uint8_t after_previous_bit = 0x80;
inline constexpr std::uint8_t settled_bit = 0x40;

struct OperationHead {
  std::uint8_t kind;  // Operation::Kind, or read_words_kind; and the two bits
  std::uint8_t region;
  std::uint16_t number;
  std::uint32_t length_bytes;  // read, write; of an atomic: 8; of all words
  std::uint64_t offset_bytes;
};
static_assert(sizeof(OperationHead) == 16 && std::has_unique_object_representations_v<OperationHead>);

enum class Status : std::uint8_t {
  done = 0,
  bad_address = 1,  // or not what was expected
  ended = 2,        // of the session
};

struct AnswerHead {
  std::uint8_t status = 0;
  std::uint8_t kind = 0;  // of the operation
  std::uint16_t number = 0;
  std::uint32_t length_bytes = 0;  // of what follows, without what fills it up

  bool operator==(const AnswerHead&) const = default;
};
static_assert(sizeof(AnswerHead) == 8 && std::has_unique_object_representations_v<AnswerHead>);

inline constexpr AnswerHead last_words{.status = static_cast<std::uint8_t>(Status::ended)};

constexpr std::size_t whole_words(std::size_t bytes) {
  return (bytes + word_bytes - 1) / word_bytes * word_bytes;
}

constexpr std::uint8_t kind_of(const OperationHead& head) {
  return static_cast<std::uint8_t>(head.kind & ~(after_previous_bit | settled_bit));
}
constexpr bool is_after_previous(const OperationHead& head) { return (head.kind & after_previous_bit) != 0; }
constexpr bool is_settled(const OperationHead& head) { return (head.kind & settled_bit) != 0; }

constexpr bool is_operation(const OperationHead& head) {
  if (kind_of(head) == read_words_kind) {
    return !is_after_previous(head) && !is_settled(head) && head.length_bytes != 0 &&
           head.length_bytes % word_bytes == 0 && head.length_bytes <= words_at_once_max * word_bytes;
  }
  switch (static_cast<Operation::Kind>(kind_of(head))) {
    case Operation::Kind::read:
      return head.length_bytes <= piece_bytes_max;
    case Operation::Kind::write:
    case Operation::Kind::expect:
      return !is_settled(head) && head.length_bytes <= piece_bytes_max;
    case Operation::Kind::compare_swap:
    case Operation::Kind::fetch_add:
      return !is_settled(head) && head.length_bytes == word_bytes;
  }
  return false;
}
// How many bytes follow the head of an operation.
constexpr std::size_t bytes_after(const OperationHead& head) {
  if (kind_of(head) == read_words_kind) return head.length_bytes - word_bytes;
  switch (static_cast<Operation::Kind>(kind_of(head))) {
    case Operation::Kind::read:
      return 0;
    case Operation::Kind::write:
    case Operation::Kind::expect:
      return whole_words(head.length_bytes);
    case Operation::Kind::compare_swap:
      return 2 * word_bytes;
    case Operation::Kind::fetch_add:
      return word_bytes;
  }
  return 0;
}

// The longest operation, and the longest answer.
inline constexpr std::size_t operation_bytes_max = sizeof(OperationHead) + piece_bytes_max;
inline constexpr std::size_t answer_bytes_max = sizeof(AnswerHead) + piece_bytes_max;

}  // namespace loch::fabric::tcp
