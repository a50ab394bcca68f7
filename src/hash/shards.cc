#include "hash/shards.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

namespace loch::hash {
namespace {

template <class T>
coro::Task<Result<T>> failed(Error error) {
  co_return std::unexpected(std::move(error));
}

}  // namespace

Shards::Shards(memory::Attachment& attachment, const TableOptions& options)
    : attachment_(attachment), items_(attachment) {
  const auto& shards = attachment.region_map().shards;
  TableOptions of_each = options;
  of_each.cache_bytes = options.cache_bytes / shards.size();
  of_each.pointer_places = std::bit_floor(std::max<std::size_t>(options.pointer_places / shards.size(), 1));
  for (std::uint32_t shard = 0; shard < shards.size(); ++shard) {
    const bool is_reached = attachment.node(shards[shard].home) != nullptr;
    tables_.push_back(is_reached ? std::make_unique<Table>(attachment, shard, of_each) : nullptr);
    if (is_reached) some_ = tables_.back().get();
  }
  attachment.set_guard(this);
}

coro::Task<Result<void>> Shards::open() {
  for (const auto& table : tables_) {
    if (table == nullptr) continue;
    if (auto opened = co_await table->open(); !opened) co_return opened;
  }
  co_return Result<void>{};
}

std::unexpected<Error> Shards::unreached(std::uint64_t key_hash) const {
  const std::uint32_t shard = shard_of(key_hash, tables_.size());
  return fail(Errc::unavailable, "index",
              fmt::format("the key's index is on {}",
                          attachment_.describe_unreached(attachment_.region_map().shards[shard].home)),
              key_hash);
}

Result<void> Shards::all_reached(const char* operation) const {
  const auto& nodes = attachment_.region_map().nodes;
  std::string unreached;
  std::size_t count = 0;
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].is_gone || attachment_.node(node) != nullptr) continue;
    ++count;
    unreached += (unreached.empty() ? "" : "; ") + attachment_.describe_unreached(node);
  }
  if (count == 0) return {};
  return fail(Errc::unavailable, operation,
              fmt::format("{} of the {} nodes of the store can not be used: {}", count,
                          attachment_.region_map().living(), unreached));
}

std::size_t Shards::at_once(memory::LeaseWord lease) const {
  constexpr std::size_t most = 64;
  constexpr std::uint64_t bytes_max = std::uint64_t{1} << 20;
  const bool is_large = lease.size_class >= memory::size_class_count;
  if (!attachment_.remote() || is_large) return 1;
  return std::clamp<std::size_t>(bytes_max / memory::class_bytes[lease.size_class], 1, most);
}

Known Shards::known(Key key) const {
  const Table* table = tables_[shard_of(key.hash, tables_.size())].get();
  return table != nullptr ? table->known().of(key) : Known{.key = key};
}

coro::Task<Result<Found>> Shards::get(Key key) {
  auto table = table_of(key.hash);
  return table ? (*table)->get(key) : failed<Found>(std::move(table.error()));
}

coro::Task<Result<bool>> Shards::exists(Key key) {
  auto table = table_of(key.hash);
  return table ? (*table)->exists(key) : failed<bool>(std::move(table.error()));
}

coro::Task<Result<std::uint64_t>> Shards::count() {
  if (auto reached = all_reached("count"); !reached) co_return std::unexpected(std::move(reached.error()));
  std::uint64_t total = 0;
  for (const auto& table : tables_) {
    auto counted = co_await table->count();
    if (!counted) co_return counted;
    total += *counted;
  }
  co_return total;
}

coro::Task<Result<void>> Shards::describe(Info* into) {
  for (const auto& table : tables_) {
    if (table == nullptr) continue;
    const auto directory = co_await table->slots().read_directory();
    if (!directory) co_return std::unexpected(directory.error());
    into->index_slots += directory->slots();
    into->index_growing = into->index_growing || directory->growing;
    const auto bytes = attachment_.endpoint().length_bytes(table->slots().place().slots);
    if (!bytes) co_return std::unexpected(bytes.error());
    into->index_bytes += *bytes;
  }
  co_return Result<void>{};
}

coro::Task<Result<bool>> Shards::is_named(memory::ItemRef item) {
  auto header = co_await items_.read_header(item);
  if (!header) co_return std::unexpected(std::move(header.error()));
  auto table = table_of(header->key_hash);
  if (!table) co_return std::unexpected(std::move(table.error()));
  co_return co_await (*table)->snapshots().is_named(item, header->key_hash);
}

coro::Task<bool> Shards::before_reuse(memory::ItemRef item) {
  const memory::Attachment::Operation during(attachment_);
  auto header = co_await items_.read_header(item);
  if (!header) co_return false;
  auto table = table_of(header->key_hash);
  if (!table) co_return false;
  co_return co_await (*table)->resolver().before_reuse(item, header->key_hash);
}

}  // namespace loch::hash
