// Items as bytes: made, and taken apart with every length checked, since they come from other processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <loch/error.h>

#include "base/hash.h"
#include "fabric/endpoint.h"
#include "memory/layout.h"
#include "memory/size_class.h"

namespace loch::hash {

constexpr std::uint64_t item_bytes(std::uint64_t key_bytes, std::uint64_t value_bytes) {
  return sizeof(memory::ItemHeader) + key_bytes + value_bytes;
}

// Of an item at `ref` whose bytes begin at `bytes`, `checked_bytes` of them from memory::checked_from. An
// item that is read at another place than it was written to does not pass.
inline std::uint64_t item_checksum(const std::byte* bytes, std::uint64_t checked_bytes,
                                   const memory::ItemRef& ref) {
  constexpr std::uint64_t spread = 0x9e3779b97f4a7c15ULL;
  return base::checksum_bytes(bytes + memory::checked_from, checked_bytes) ^ (ref.place() * spread);
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
  // The same in two steps: the first does not touch the item.
  void begin(const std::byte* bytes, const memory::ItemRef& ref) {
    bytes_ = bytes;
    ref_ = ref;
  }
  bool take_lengths(std::uint64_t available) {
    std::memcpy(&value_bytes_, bytes_ + offsetof(memory::ItemHeader, value_bytes), sizeof value_bytes_);
    std::memcpy(&key_bytes_, bytes_ + offsetof(memory::ItemHeader, key_bytes), sizeof key_bytes_);
    return key_bytes_ != 0 && item_bytes(key_bytes_, value_bytes_) <= available;
  }

  [[nodiscard]] const memory::ItemRef& ref() const { return ref_; }
  [[nodiscard]] const std::byte* bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t length_bytes() const { return item_bytes(key_bytes_, value_bytes_); }
  [[nodiscard]] std::string_view key() const { return {text(), key_bytes_}; }
  [[nodiscard]] std::string_view value() const { return {text() + key_bytes_, value_bytes_}; }
  [[nodiscard]] std::uint64_t key_hash() const { return word(offsetof(memory::ItemHeader, key_hash)); }
  [[nodiscard]] std::uint64_t version() const { return word(offsetof(memory::ItemHeader, checksum)); }
  [[nodiscard]] base::Nanos written_at_ns() const {
    return word(offsetof(memory::ItemHeader, written_at_ns));
  }
  [[nodiscard]] base::Nanos expires_at_ns() const {
    return word(offsetof(memory::ItemHeader, expires_at_ns));
  }

  // Whether the bytes are those that were written.
  [[nodiscard]] bool is_intact() const {
    const std::uint64_t checked_bytes = length_bytes() - memory::checked_from;
    return item_checksum(bytes_, checked_bytes, ref_) == version();
  }

 private:
  [[nodiscard]] const char* text() const {
    return reinterpret_cast<const char*>(bytes_) + sizeof(memory::ItemHeader);
  }
  [[nodiscard]] std::uint64_t word(std::size_t offset) const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_ + offset, sizeof value);
    return value;
  }

  const std::byte* bytes_ = nullptr;
  memory::ItemRef ref_;
  std::uint32_t value_bytes_ = 0;
  std::uint16_t key_bytes_ = 0;
};

// Writes an item's bytes to `at` (item_bytes of them), its state `in_use` last. Returns its checksum.
inline std::uint64_t write_item(std::byte* at, const memory::ItemRef& ref, memory::ItemHeader header,
                                std::string_view key, std::string_view value) {
  header.key_bytes = static_cast<std::uint16_t>(key.size());
  header.value_bytes = static_cast<std::uint32_t>(value.size());
  const std::uint64_t length = item_bytes(key.size(), value.size());

  // A short item is put together and summed up in the cache: where it will lie is mostly not in it.
  constexpr std::size_t staged_bytes_max = 1024;
  alignas(64) std::array<std::byte, staged_bytes_max> stage;
  std::byte* whole = length <= stage.size() ? stage.data() : at;
  std::byte* body = whole + sizeof header;
  std::memcpy(body, key.data(), key.size());
  if (!value.empty()) std::memcpy(body + key.size(), value.data(), value.size());

  // The header goes to its place in words, since a sweep may look at it while the item is being claimed.
  std::array<std::uint64_t, sizeof header / sizeof(std::uint64_t)> words;
  std::memcpy(words.data(), &header, sizeof header);
  const auto put = [](std::byte* to, std::uint64_t word) {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to)).store(word, std::memory_order_relaxed);
  };
  constexpr std::size_t checked_word = memory::checked_from / sizeof(std::uint64_t);
  for (std::size_t i = checked_word; i < words.size(); ++i) put(whole + i * sizeof(std::uint64_t), words[i]);
  const std::uint64_t checksum = item_checksum(whole, length - memory::checked_from, ref);
  if (whole != at) {
    for (std::size_t i = checked_word; i < words.size(); ++i) put(at + i * sizeof(std::uint64_t), words[i]);
    std::memcpy(at + sizeof header, body, length - sizeof header);
  }
  put(at + offsetof(memory::ItemHeader, checksum), checksum);
  fabric::store_word(at, memory::ItemState{.kind = memory::ItemKind::in_use}.encode());
  return checksum;
}

}  // namespace loch::hash
