// Items as bytes: made, and taken apart with every length checked, since they come from other processes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <loch/loch.h>

#include "base/hash.h"
#include "base/planted.h"
#include "fabric/endpoint.h"
#include "memory/layout.h"
#include "memory/size_class.h"

namespace loch::hash {

constexpr std::uint64_t item_bytes(std::uint64_t key_bytes, std::uint64_t value_bytes) {
  return sizeof(memory::ItemHeader) + key_bytes + value_bytes;
}

// How long an item of that class may be.
constexpr std::uint64_t room_of(const memory::ItemRef& ref) {
  return ref.size_class < memory::size_class_count ? memory::class_bytes[ref.size_class]
                                                   : item_bytes(key_bytes_max, value_bytes_max);
}

// The sums of an item; see memory::ItemHeader. An item that is read at another place than it was written to
// does not pass. `summed` are its bytes from memory::summed_from to the key.
[[gnu::always_inline]] inline std::uint32_t header_sum(const memory::ItemRef& ref, const void* summed,
                                                       std::string_view key) {
  const std::uint64_t place = ref.place();
  std::uint32_t sum = base::crc32c(0, &place, sizeof place, nullptr);
  sum = base::crc32c(sum, summed, sizeof(memory::ItemHeader) - memory::summed_from, nullptr);
  return base::crc32c(sum, key.data(), key.size(), nullptr);
}

// Copies the value to `to`, unless that is nullptr, and returns its value_sum.
template <class To>
[[gnu::always_inline]] inline std::uint32_t copy_value(std::uint32_t header_sum, std::string_view value,
                                                       To to) {
  if (value.size() > base::crc_in_line_bytes_max) [[unlikely]]
    return base::crc32c_in_lanes(header_sum, value.data(), value.size(), to);
  return base::crc32c(header_sum, value.data(), value.size(), to);
}
// The same of a value that stays where it is.
inline std::uint32_t value_sum(std::uint32_t header_sum, std::string_view value) {
  return copy_value(header_sum, value, nullptr);
}

// What tells an item from any other that its key has ever had: a client writes no two items at one time to
// one place.
constexpr std::uint64_t item_version(const memory::ItemRef& ref, base::Nanos written_at_ns,
                                     std::uint16_t client) {
  return base::mix(written_at_ns << 10 | client) ^ ref.place();
}
static_assert(memory::client_count_max <= 1 << 10);

// Whether the bytes at `a` are those of `b`. Without a call, which would make the processor see less far.
[[gnu::always_inline]] inline bool same_bytes(const char* a, std::string_view b) {
  constexpr std::size_t word_bytes = sizeof(std::uint64_t);
  const auto same_word = [&](std::size_t offset) __attribute__((always_inline)) {
    std::uint64_t x = 0;
    std::uint64_t y = 0;
    std::memcpy(&x, a + offset, word_bytes);
    std::memcpy(&y, b.data() + offset, word_bytes);
    return x == y;
  };
  if (b.size() < word_bytes) [[unlikely]] {
    for (std::size_t i = 0; i < b.size(); ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }
  const std::size_t last = b.size() - word_bytes;
  if (!same_word(0)) return false;
#pragma clang loop unroll(disable)
  for (std::size_t offset = word_bytes; offset < last; offset += word_bytes) {
    if (!same_word(offset)) return false;
  }
  return same_word(last);
}

// An item where it lies, its lengths checked.
class ItemView {
 public:
  ItemView() = default;

  // Takes the item at `bytes` apart, of which `available` may be touched. False if its lengths do not fit.
  bool parse(const std::byte* bytes, std::uint64_t available, const memory::ItemRef& ref) {
    begin(bytes, ref);
    return available >= sizeof(memory::ItemHeader) && take_lengths(available);
  }
  // The same of its header and key alone: no more may be touched, and the view is one of an empty value.
  bool parse_head(const std::byte* bytes, std::uint64_t available, const memory::ItemRef& ref) {
    begin(bytes, ref);
    value_bytes_ = 0;
    if (available < sizeof(memory::ItemHeader)) return false;
    key_bytes_ = key_bytes();
    return key_bytes_ != 0 && item_bytes(key_bytes_, 0) <= available;
  }
  // As parse, in two steps: the first does not touch the item.
  void begin(const std::byte* bytes, const memory::ItemRef& ref) {
    bytes_ = bytes;
    ref_ = ref;
  }
  // Whether the item says that it is of this key, that its value is that long, and that it never expires. As
  // much of it may be touched.
  [[gnu::always_inline]] bool is_plain(std::string_view key, std::size_t value_bytes) {
    key_bytes_ = static_cast<std::uint16_t>(key.size());
    value_bytes_ = static_cast<std::uint32_t>(value_bytes);
    return read<std::uint32_t>(offsetof(memory::ItemHeader, value_bytes)) == value_bytes_ &&
           read<std::uint16_t>(offsetof(memory::ItemHeader, key_bytes)) == key_bytes_ &&
           expires_at_ns() == 0 && same_bytes(text(), key);
  }
  bool take_lengths(std::uint64_t available) {
    value_bytes_ = read<std::uint32_t>(offsetof(memory::ItemHeader, value_bytes));
    key_bytes_ = key_bytes();
    return key_bytes_ != 0 && item_bytes(key_bytes_, value_bytes_) <= available;
  }

  [[nodiscard]] const memory::ItemRef& ref() const { return ref_; }
  [[nodiscard]] const std::byte* bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t length_bytes() const { return item_bytes(key_bytes_, value_bytes_); }
  // The key as it stands there, its length unchecked.
  [[nodiscard]] std::uint16_t key_bytes() const {
    return read<std::uint16_t>(offsetof(memory::ItemHeader, key_bytes));
  }
  [[nodiscard]] const char* key_text() const { return text(); }
  [[nodiscard]] std::string_view key() const { return {text(), key_bytes_}; }
  [[nodiscard]] std::string_view value() const { return {text() + key_bytes_, value_bytes_}; }
  [[nodiscard]] std::uint64_t key_hash() const {
    return read<std::uint64_t>(offsetof(memory::ItemHeader, key_hash));
  }
  [[nodiscard]] std::uint64_t version() const {
    return item_version(ref_, written_at_ns(), read<std::uint16_t>(offsetof(memory::ItemHeader, client)));
  }
  [[nodiscard]] base::Nanos written_at_ns() const {
    return read<std::uint64_t>(offsetof(memory::ItemHeader, written_at_ns));
  }
  [[nodiscard]] base::Nanos expires_at_ns() const {
    return read<std::uint64_t>(offsetof(memory::ItemHeader, expires_at_ns));
  }

  [[nodiscard]] bool header_is_intact() const {
    return header_sum(ref_, bytes_ + memory::summed_from, key()) == stored_header_sum();
  }
  // Whether the bytes are those that were written.
  [[nodiscard]] bool is_intact() const { return is_intact_with(value()); }
  // The same of an item whose value is elsewhere.
  [[nodiscard]] bool is_intact_with(std::string_view value) const {
    return header_is_intact() && stored_value_sum() == value_sum(stored_header_sum(), value);
  }
  // Copies the value to `to`; whether the item's bytes, and those that were copied, are the ones that were
  // written.
  bool copy_value_to(char* to) const {
    return copy_value(stored_header_sum(), value(), to) == stored_value_sum() && header_is_intact();
  }
  // The same for who knows the key, and wants to know nothing else of the header. A sum of 0 is left to who
  // looks closer: of zeros, as stand where a file was truncated, all sums are 0.
  [[gnu::always_inline]] bool copy_just_value_to(char* to) const {
    const std::uint32_t sum = stored_header_sum();
    return sum != 0 && copy_value(sum, value(), to) == stored_value_sum();
  }

 private:
  [[nodiscard]] std::uint32_t stored_header_sum() const {
    return read<std::uint32_t>(offsetof(memory::ItemHeader, header_sum));
  }
  [[nodiscard]] std::uint32_t stored_value_sum() const {
    return read<std::uint32_t>(offsetof(memory::ItemHeader, value_sum));
  }
  [[nodiscard]] const char* text() const {
    return reinterpret_cast<const char*>(bytes_) + sizeof(memory::ItemHeader);
  }
  template <class T>
  [[nodiscard]] T read(std::size_t offset) const {
    T value{};
    std::memcpy(&value, bytes_ + offset, sizeof value);
    return value;
  }

  const std::byte* bytes_ = nullptr;
  memory::ItemRef ref_;
  std::uint32_t value_bytes_ = 0;
  std::uint16_t key_bytes_ = 0;
};

// Writes an item's bytes to `at` (item_bytes of them), its state `in_use` last. Returns its version.
inline std::uint64_t write_item(std::byte* at, const memory::ItemRef& ref, memory::ItemHeader header,
                                std::string_view key, std::string_view value) {
  header.key_bytes = static_cast<std::uint16_t>(key.size());
  header.value_bytes = static_cast<std::uint32_t>(value.size());
  char* body = reinterpret_cast<char*>(at) + sizeof header;
  std::memcpy(body, key.data(), key.size());
  header.header_sum = header_sum(ref, reinterpret_cast<const std::byte*>(&header) + memory::summed_from, key);
  header.value_sum = copy_value(header.header_sum, value, body + key.size());

  // In words, since a sweep may look at the header while the item is being claimed.
  std::array<std::uint64_t, sizeof header / sizeof(std::uint64_t)> words;
  std::memcpy(words.data(), &header, sizeof header);
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at + i * sizeof(std::uint64_t)))
        .store(words[i], std::memory_order_relaxed);
  }
  fabric::store_word(at, memory::ItemState::in_use(header.client, header.written_at_ns).encode());
  return item_version(ref, header.written_at_ns, header.client);
}

// Planted::versions_at_ends: an item's time of writing stands behind its value once more, and tells instead
// of the sums whether the item is whole. Where nothing is planted there is no tail.
inline std::uint64_t tail_bytes() {
  return base::planted(base::Planted::versions_at_ends) ? sizeof(base::Nanos) : 0;
}
// Of an item of `length_bytes` with its tail.
inline void write_tail(std::byte* item, std::uint64_t length_bytes) {
  std::memcpy(item + length_bytes - tail_bytes(), item + offsetof(memory::ItemHeader, written_at_ns),
              tail_bytes());
}
// `available` bytes may be touched.
inline bool has_own_tail(const ItemView& item, std::uint64_t available) {
  return item.length_bytes() + tail_bytes() <= available &&
         std::memcmp(item.bytes() + item.length_bytes(),
                     item.bytes() + offsetof(memory::ItemHeader, written_at_ns), tail_bytes()) == 0;
}

// Whether an item has no time left at `at`. To say that a key is not there, `at` is from before its slots
// were read: later, another item may have taken the place of one that expired since.
[[nodiscard]] inline bool has_expired(base::Nanos expires_at_ns, base::Nanos at) {
  return expires_at_ns != 0 && expires_at_ns <= at;
}

}  // namespace loch::hash
