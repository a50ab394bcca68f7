// The part of Allocator that adds blocks.
#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/fault.h"
#include "memory/allocator.h"

namespace loch::memory {
namespace {

constexpr std::uint64_t extension_blocks_max = 32;

}  // namespace

template <class LengthOf>
Result<std::uint64_t> Allocator::sum_used(LengthOf length_of) {
  std::uint64_t bytes = 0;
  for (const RegionMap::Shard& shard : session_.memory().region_map().shards) {
    if (shard.home != session_.node()) continue;
    const Result<std::uint64_t> length = length_of(shard.index);
    if (!length) return length;
    bytes += *length;
  }
  for (const fabric::RegionId region : session_.regions().data) {
    const Result<std::uint64_t> length = length_of(region);
    if (!length) return length;
    if (*length == 0) break;
    bytes += *length;
  }
  return bytes;
}

Result<std::uint64_t> Allocator::bytes_used() {
  return sum_used([this](fabric::RegionId region) { return endpoint_.length_bytes(region); });
}

// At least `blocks_wanted` in one piece, at the end of the node's last data region or in another. Errors:
// no_space (the limit, of which `bytes_used` are used; the regions).
Result<Allocator::Extension> Allocator::next_extension(std::uint64_t blocks_wanted,
                                                       std::uint64_t bytes_used) const {
  fabric::RegionId id = 0;
  std::uint64_t length_blocks = 0;
  for (const fabric::RegionId region : session_.regions().data) {
    const std::uint64_t length = endpoint_.known_length_bytes(region);
    if (length == 0 && id != 0) break;
    id = region;
    length_blocks = std::max<std::uint64_t>(length / block_bytes, 1);  // its descriptors
  }
  if (length_blocks + blocks_wanted > blocks_in_region_max) {
    const auto next = std::ranges::upper_bound(session_.regions().data, id);
    if (next == session_.regions().data.end())
      return fail(Errc::no_space, "extend", "the node has all the regions that it can have");
    id = *next;
    length_blocks = 1;
  }
  std::uint64_t added = std::clamp(length_blocks / 8, std::uint64_t{1}, extension_blocks_max);
  added = std::min(std::max(added, blocks_wanted), blocks_in_region_max - length_blocks);
  const std::uint64_t limit = session_.geometry().max_bytes;
  if (limit != 0 && bytes_used + added * block_bytes > limit) {
    added = blocks_wanted;
    if (bytes_used + added * block_bytes > limit) {
      return fail(
          Errc::no_space, "extend",
          fmt::format("{} uses {} of the {} bytes that it was created for; remove items, whose memory is for "
                      "others of about their size once nobody reads them, or create it again with a larger "
                      "max_bytes",
                      session_.memory().fabric().location(), bytes_used, limit));
    }
  }
  return Extension{.region = id, .from_blocks = length_blocks, .to_blocks = length_blocks + added};
}

// Adds blocks. If others have added some of which this session knows nothing yet, it learns of those instead.
Result<void> Allocator::extend(std::uint64_t blocks_wanted) {
  const auto used = session_.geometry().max_bytes == 0 ? 0 : bytes_used();
  if (!used) return std::unexpected(used.error());
  const auto next = next_extension(blocks_wanted, *used);
  if (!next) return std::unexpected(next.error());
  const std::uint64_t least = next->from_blocks + blocks_wanted;
  // Another host adds most of it while this session works.
  constexpr std::uint64_t waited_for_blocks = 2;
  const std::uint64_t now =
      session_.remote() ? std::min(next->to_blocks, std::max(least, next->from_blocks + waited_for_blocks))
                        : next->to_blocks;
  auto extended = session_.memory().fabric().extend(next->region, now * block_bytes);
  if (!extended && extended.error().code == Errc::no_space && least < now)
    extended = session_.memory().fabric().extend(next->region, least * block_bytes);
  else if (extended && now < next->to_blocks)
    endpoint_.port().extend_soon(next->region, next->to_blocks * block_bytes);
  if (extended) session_.count(Counter::segments_added);
  take_known_blocks();
  LOCH_FAULT_POINT("alloc.segment_added");
  return extended;
}

// The same for an allocation that finds none; if none can be added, it sweeps, once, for a small part of the
// time that a call has: its operation holds back what others unlink. The next one goes on from there. If all
// blocks have been swept so and no allocation has gained anything, there is no other sweep for one expiry:
// what is unlinked meanwhile has to rest that long anyway. `swept`: how many blocks, in a row and in vain,
// once it has.
coro::Task<Result<void>> Allocator::extend_or_sweep(std::uint64_t blocks_wanted,
                                                    std::optional<std::size_t>* swept) {
  constexpr base::Nanos part_of_timeout = 16;
  auto extended = extend(blocks_wanted);
  if (extended) co_return extended;
  if (*swept) {
    const bool is_all = **swept >= known_blocks_.size();
    if (is_all) swept_in_vain_until_ = session_.now() + session_.geometry().expiry_ns;
    swept_in_vain_ = is_all ? 0 : **swept;
  }
  if (*swept || session_.now() < swept_in_vain_until_) co_return extended;
  const auto looked_at = co_await sweep_on(endpoint_.now() + endpoint_.timeout_ns() / part_of_timeout);
  if (!looked_at) co_return std::unexpected(looked_at.error());
  *swept = std::exchange(swept_in_vain_, 0) + *looked_at;
  co_return Result<void>{};
}

// Once half of what was added last is taken, and nothing was freed since then, has more added beforehand:
// whoever finds nothing waits for as long as a host takes to fill it. Not where others have left items of the
// class: those are to be used first (find_released), and are not looked for while there are free blocks.
coro::Task<Result<void>> Allocator::extend_soon(std::uint8_t size_class, std::uint64_t frees) {
  const BlockList list = known_blocks_;
  const std::size_t count = list.size();
  const bool is_half_taken = count > full_.blocks && next_block_ >= (full_.blocks + count) / 2;
  if (!session_.remote() || frees != full_.frees || !is_half_taken || foreseen_blocks_ == count)
    co_return Result<void>{};
  foreseen_blocks_ = count;
  DescriptorGroup group;
  for (const BlockNumber block : list) {
    if (auto read = co_await read_descriptors(&list, block, &group); !read) co_return read;
    if (group.has_released(block, size_class)) co_return Result<void>{};
  }
  const auto used =
      sum_used([this](fabric::RegionId region) { return endpoint_.known_length_bytes(region); });
  if (const auto next = next_extension(1, used.value_or(0)))
    endpoint_.port().extend_soon(next->region, next->to_blocks * block_bytes);
  co_return Result<void>{};
}

}  // namespace loch::memory
