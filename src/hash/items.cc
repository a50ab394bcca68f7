#include "hash/items.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "base/planted.h"
#include "hash/heap.h"

namespace loch::hash {
namespace {

std::unexpected<Error> damaged_item(const memory::ItemRef& ref) {
  return fail(Errc::corrupt, "read",
              fmt::format("the item at region {} unit {} is damaged", ref.region, ref.unit));
}

// Whether an item that was fetched is as somebody wrote it.
bool is_whole(const ItemView& item, std::uint64_t available) {
  if (base::planted(base::Planted::value_without_sum)) return item.header_is_intact();
  if (base::planted(base::Planted::versions_at_ends)) return has_own_tail(item, available);
  return item.is_intact();
}

}  // namespace

Result<void> Items::reaches(const memory::ItemRef& ref) const {
  if (attachment_.find_node_of(ref) != nullptr) [[likely]]
    return {};
  if (is_unknown(ref))
    return fail(Errc::moved, "read",
                "the item is on a host of the cluster that this client does not know yet");
  const auto node = attachment_.region_map().node_of(ref.region);
  if (!node) return damaged_item(ref);
  return fail(Errc::unavailable, "read",
              fmt::format("the item is on {}", attachment_.describe_unreached(*node)));
}

coro::Task<Result<Found>> Items::fetch(memory::ItemRef ref) const {
  if (auto reached = reaches(ref); !reached) co_return std::unexpected(std::move(reached.error()));
  const bool large = ref.size_class == memory::large_class;
  const bool here = endpoint_.mapped(ref.address(), sizeof(memory::ItemHeader)) != nullptr;
  std::uint64_t length = room_of(ref);
  if (large || (!here && length > one_step_bytes_max)) {
    auto header = co_await read_header(ref);
    if (!header) co_return std::unexpected(std::move(header.error()));
    length = item_bytes(header->key_bytes, header->value_bytes) + tail_bytes();
    if (length > room_of(ref)) co_return damaged_item(ref);
  }
  if (!here && length > one_step_bytes_max) {
    auto copy = bytes_of_heap(length);
    if (copy == nullptr) co_return no_heap("read", length);
    auto reading = fabric::Operation::read_settled(ref.address(), copy.get(), length);
    if (auto read = co_await endpoint_.perform({&reading, 1}); !read)
      co_return std::unexpected(std::move(read.error()));
    const auto item = take_apart(ref, copy.get(), length);
    if (!item) co_return damaged_item(ref);
    co_return Found{.view = *item, .copy = std::move(copy)};
  }
  auto bytes = co_await endpoint_.fetch_settled(ref.address(), length);
  if (!bytes) co_return std::unexpected(std::move(bytes.error()));
  const auto item = take_apart(ref, bytes->data(), length);
  if (!item) co_return damaged_item(ref);
  co_return Found{.view = *item, .copy = std::move(*bytes).take_copy()};
}

coro::Task<Result<Found>> Items::fetch_head(memory::ItemRef ref, std::uint64_t key_bytes) const {
  if (auto reached = reaches(ref); !reached) co_return std::unexpected(std::move(reached.error()));
  const std::uint64_t length = std::min(room_of(ref), item_bytes(key_bytes, 0));
  auto bytes = co_await endpoint_.fetch_settled(ref.address(), length);
  if (!bytes) co_return std::unexpected(std::move(bytes.error()));
  Found found;
  if (!found.view.parse_head(bytes->data(), length, ref)) co_return damaged_item(ref);
  found.copy = std::move(*bytes).take_copy();
  co_return found;
}

coro::Task<Result<Found>> Items::fetch_intact_head(memory::ItemRef ref, std::uint64_t key_bytes) const {
  auto found = co_await fetch_head(ref, key_bytes);
  if (found && found->view.header_is_intact()) co_return found;
  if (!found && found.error().code != Errc::corrupt) co_return found;
  if (key_bytes < key_bytes_max) co_return co_await fetch_intact_head(ref);
  co_return damaged_item(ref);
}

std::optional<ItemView> Items::take_apart(const memory::ItemRef& ref, const std::byte* bytes,
                                          std::uint64_t length) {
  ItemView item;
  if (!item.parse(bytes, length, ref) || !is_whole(item, length)) return std::nullopt;
  return item;
}

coro::Task<Result<memory::ItemHeader>> Items::read_header(memory::ItemRef ref) const {
  if (auto reached = reaches(ref); !reached) co_return std::unexpected(std::move(reached.error()));
  memory::ItemHeader header;
  std::array<fabric::Address, sizeof header / sizeof(std::uint64_t)> at;
  for (std::size_t i = 0; i < at.size(); ++i) at[i] = ref.address() + i * sizeof(std::uint64_t);
  std::array<std::uint64_t, sizeof header / sizeof(std::uint64_t)> words{};
  auto read = co_await endpoint_.read_words(at, words.data());
  if (!read) co_return std::unexpected(std::move(read.error()));
  std::memcpy(&header, words.data(), sizeof header);
  co_return header;
}

}  // namespace loch::hash
