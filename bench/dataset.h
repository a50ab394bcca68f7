// bench/dataset: the keys and values of a benchmark, computed from an item's number alone, so that every
// process knows them and every answer can be checked.
//
// A key of 16 B and more opens with 16 letters that name the item; a shorter one is as many letters as it has
// bytes. Keys are printable, since one of the peers speaks a text protocol. A value holds a stamp of its item
// in front, the version that wrote it, and at its end a sum of both: a value of another item, or one torn
// between two versions, does not pass the check.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include <loch/error.h>

#include "base/hash.h"

namespace loch::bench {

class Dataset {
 public:
  static constexpr std::uint64_t items_max = std::uint64_t{1} << 31;

  // Errors: invalid_argument, when a size is outside the store's limits or the benchmark's.
  static Result<Dataset> make(std::uint64_t items, std::uint64_t key_bytes, std::uint64_t value_bytes);

  [[nodiscard]] std::uint64_t items() const { return items_; }
  [[nodiscard]] std::size_t key_bytes() const { return key_bytes_; }
  [[nodiscard]] std::size_t value_bytes() const { return value_bytes_; }

  // Writes the key of item `id` (below 2^32) to `at`, which a call of `prepare_key` made ready.
  void write_key(std::uint64_t id, char* at) const {
    // One store of 16 bytes: a reader's wide load of the key is then served from it without a stall.
    using Pair = std::uint64_t __attribute__((vector_size(16)));
    if (key_bytes_ >= name_bytes) {
      const std::uint64_t word = base::mix(id);
      const Pair letters = {letters_of(word), letters_of(word >> 32)};
      std::memcpy(at, &letters, name_bytes);
    } else {
      write_short_key(id, at);
    }
  }

  // Fills the bytes of a key (or value) that are the same for all items.
  void prepare_key(char* at) const;
  void prepare_value(char* at) const;

  // Writes what differs between items and versions into a value that `prepare_value` made ready.
  void write_value(std::uint64_t id, std::uint64_t version, char* at) const {
    const std::uint64_t stamp = stamp_of(id);
    if (value_bytes_ >= 24) {
      const std::uint64_t tail = tail_of(stamp, version);
      std::memcpy(at, &stamp, 8);
      std::memcpy(at + 8, &version, 8);
      std::memcpy(at + value_bytes_ - 8, &tail, 8);
    } else {
      std::memcpy(at, &stamp, value_bytes_ < 8 ? value_bytes_ : 8);
    }
  }

  // Whether `value` is one that was written for item `id`.
  [[nodiscard]] bool check(std::uint64_t id, std::string_view value) const {
    if (value.size() != value_bytes_) return false;
    const std::uint64_t stamp = stamp_of(id);
    if (value_bytes_ >= 24) {
      const std::uint64_t version = word_at(value, 8);
      return word_at(value, 0) == stamp && word_at(value, value_bytes_ - 8) == tail_of(stamp, version);
    }
    return std::memcmp(value.data(), &stamp, value_bytes_ < 8 ? value_bytes_ : 8) == 0;
  }

  // A word that can only be known from the value: what a dependent read takes its next key from.
  [[nodiscard]] std::uint64_t word_in(std::string_view value) const {
    std::uint64_t word = 0;
    std::memcpy(&word, value.data(), value.size() < 8 ? value.size() : 8);
    return word;
  }

 private:
  static constexpr std::size_t name_bytes = 16;

  Dataset(std::uint64_t items, std::size_t key_bytes, std::size_t value_bytes)
      : items_(items), key_bytes_(key_bytes), value_bytes_(value_bytes) {}

  void write_short_key(std::uint64_t id, char* at) const;

  // The lower 32 bits as 8 letters from 'a' to 'p'.
  static constexpr std::uint64_t letters_of(std::uint64_t word) {
    word &= 0xffffffff;
    word = (word | word << 16) & 0x0000ffff0000ffff;
    word = (word | word << 8) & 0x00ff00ff00ff00ff;
    word = (word | word << 4) & 0x0f0f0f0f0f0f0f0f;
    return word + 0x6161616161616161;
  }
  static constexpr std::uint64_t stamp_of(std::uint64_t id) { return base::mix(id + 0x5851f42d4c957f2d); }
  static constexpr std::uint64_t tail_of(std::uint64_t stamp, std::uint64_t version) {
    return stamp + version * 0x9e3779b97f4a7c15;
  }
  // The 8 bytes of `value` from `offset` on, which are there.
  static std::uint64_t word_at(std::string_view value, std::size_t offset) {
    std::uint64_t word = 0;
    std::memcpy(&word, value.data() + offset, sizeof word);
    return word;
  }

  std::uint64_t items_;
  std::size_t key_bytes_;
  std::size_t value_bytes_;
};

// Buffers for the keys and values of a batch, one cache line aligned to the next.
class Room {
 public:
  Room(const Dataset& dataset, std::size_t count);

  std::string_view key(std::size_t slot, std::uint64_t id) {
    char* at = keys_.data() + slot * key_stride_;
    dataset_.write_key(id, at);
    return {at, dataset_.key_bytes()};
  }
  std::string_view value(std::size_t slot, std::uint64_t id, std::uint64_t version) {
    char* at = values_.data() + slot * value_stride_;
    dataset_.write_value(id, version, at);
    return {at, dataset_.value_bytes()};
  }

 private:
  Dataset dataset_;
  std::size_t key_stride_;
  std::size_t value_stride_;
  std::vector<char> keys_;
  std::vector<char> values_;
};

}  // namespace loch::bench
