// The tables of the paper (Cassell et al., "Nessie: A Decoupled, Client-Driven Key-Value Store Using
// RDMA", 4.1).
//
//   region 1         the index table: `ways` columns of `rows` entries (ITE); a key has one candidate in each
//   region 2 + i     the data table of client i: entries (DTE) of dte_bytes, given out one after the other
//
//   ITE   63      40 39          32 31         0
//         [unused   ][data table   ][number     ]      0: empty
//   DTE   [valid][previous][key_bytes, value_bytes][key][value]
//
// A DTE is never used again, so no ITE but the empty one ever comes back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/hash.h"
#include "fabric/endpoint.h"

namespace loch::sim::paper {

inline constexpr fabric::RegionId index_table = 1;
inline constexpr fabric::RegionId first_data_table = 2;
inline constexpr std::uint64_t data_table_bytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t dte_bytes = 512;
inline constexpr std::uint32_t ways_max = 4;

// An entry of the index table.
struct Ite {
  std::uint64_t raw = 0;

  static constexpr Ite of(fabric::RegionId data_table, std::uint32_t number) {
    return {std::uint64_t{data_table} << 32 | number};
  }
  [[nodiscard]] constexpr bool is_empty() const { return raw == 0; }
  [[nodiscard]] constexpr fabric::RegionId data_table() const {
    return static_cast<fabric::RegionId>(raw >> 32);
  }
  [[nodiscard]] constexpr std::uint32_t number() const { return static_cast<std::uint32_t>(raw); }
  [[nodiscard]] constexpr fabric::Address address() const {
    return {data_table(), std::uint64_t{number()} * dte_bytes};
  }
  bool operator==(const Ite&) const = default;
};
inline constexpr Ite empty{};

struct DteHeader {
  std::uint64_t valid;     // 0 while its PUT or MIGRATE is in progress
  std::uint64_t previous;  // the ITE that its PUT replaced
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
};
static_assert(sizeof(DteHeader) == 24 && std::has_unique_object_representations_v<DteHeader>);
static_assert(offsetof(DteHeader, valid) == 0, "changed by itself");

// An entry of a data table, as it was read.
class Dte {
 public:
  Dte() = default;
  explicit Dte(fabric::Bytes bytes) : bytes_(std::move(bytes)) {
    std::memcpy(&header_, bytes_.data(), sizeof header_);
  }
  // Whether its lengths are such as a client writes.
  [[nodiscard]] bool fits() const {
    return sizeof header_ + std::uint64_t{header_.key_bytes} + header_.value_bytes <= dte_bytes;
  }
  [[nodiscard]] bool valid() const { return header_.valid != 0; }
  [[nodiscard]] Ite previous() const { return {header_.previous}; }
  [[nodiscard]] std::string_view key() const { return {text(), header_.key_bytes}; }
  [[nodiscard]] std::string_view value() const { return {text() + header_.key_bytes, header_.value_bytes}; }

 private:
  [[nodiscard]] const char* text() const {
    return reinterpret_cast<const char*>(bytes_.data()) + sizeof header_;
  }

  fabric::Bytes bytes_;
  DteHeader header_{};
};

// The shape of the index table, which tells where the entries of a key are.
struct Index {
  std::uint32_t ways = 2;
  std::uint32_t rows = 4;
  std::uint64_t hash_seed = 0;

  [[nodiscard]] constexpr std::uint64_t bytes() const {
    return std::uint64_t{ways} * rows * sizeof(std::uint64_t);
  }
  // The `way`th candidate of a key.
  [[nodiscard]] fabric::Address candidate(std::string_view key, std::uint32_t way) const {
    const std::uint64_t row = base::hash_bytes(key.data(), key.size(), hash_seed + way) % rows;
    return {index_table, (row * ways + way) * sizeof(std::uint64_t)};
  }
};

}  // namespace loch::sim::paper
