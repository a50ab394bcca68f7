// The part of Allocator that leases whole blocks.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "memory/allocator.h"

namespace loch::memory {

Result<BlockList> Allocator::blocks() {
  for (const fabric::RegionId region : session_.regions().data) {
    const auto length = endpoint_.length_bytes(region);
    if (!length) return std::unexpected(length.error());
    if (*length == 0) break;
  }
  take_known_blocks();
  return known_blocks_;
}

void Allocator::take_known_blocks() {
  BlockList list;
  for (const fabric::RegionId region : session_.regions().data) {
    const std::uint64_t length = endpoint_.known_length_bytes(region);
    if (length == 0) break;
    list.add(region, length);
  }
  // Nobody has looked at what is new.
  if (list.size() > known_blocks_.size()) next_block_ = known_blocks_.size();
  known_blocks_ = list;
}

bool Allocator::exists(BlockNumber block) { return endpoint_.reaches(block_address(block), block_bytes); }

coro::Task<Result<LeaseWord>> Allocator::lease_of(BlockNumber block) {
  if (!exists(block)) co_return lease_of_nothing;
  const auto word = co_await endpoint_.read_word(lease_address(block));
  if (!word) co_return std::unexpected(word.error());
  co_return LeaseWord::decode(*word);
}

coro::Task<Result<void>> Allocator::read_descriptors(const BlockList* list, BlockNumber block,
                                                     DescriptorGroup* into) {
  if (into->has(block)) co_return Result<void>{};
  constexpr std::size_t most = 256;
  into->first_ = block;
  into->descriptors_.resize(std::min(most, list->following(block)));
  auto operation = fabric::Operation::read(lease_address(block), into->descriptors_.data(),
                                           into->descriptors_.size() * sizeof(BlockDescriptor));
  auto read = co_await endpoint_.perform({&operation, 1});
  if (!read) into->descriptors_.clear();
  co_return read;
}

LeaseWord Allocator::lease_here(BlockNumber block) {
  const std::byte* lease = endpoint_.mapped(lease_address(block), sizeof(std::uint64_t));
  const bool is_here = endpoint_.mapped(block_address(block), block_bytes) != nullptr;
  return lease == nullptr || !is_here ? lease_of_nothing : LeaseWord::decode(fabric::load_word(lease));
}

coro::Task<Result<bool>> Allocator::change_lease(BlockNumber block, LeaseWord from, LeaseWord to) {
  auto before = co_await endpoint_.compare_swap(lease_address(block), from.encode(), to.encode());
  if (!before) co_return std::unexpected(std::move(before.error()));
  co_return *before == from.encode();
}

// And says that one was freed.
coro::Task<Result<bool>> Allocator::free_block(BlockNumber block, LeaseWord word) {
  auto freed = co_await change_lease(block, word, word.next(BlockState::free, 0, 0));
  LOCH_FAULT_POINT("free.before_count");
  if (freed) co_await endpoint_.fetch_add(frees_address_, 1);
  co_return freed;
}

coro::Task<Result<bool>> Allocator::find_block(std::uint8_t size_class) {
  auto leased = co_await lease_free_block(size_class);
  if (!leased || *leased) co_return leased;
  co_return co_await find_released(size_class);
}

// Leases a free block for `size_class`, or one of that class that is open; false if none is found.
coro::Task<Result<bool>> Allocator::lease_free_block(std::uint8_t size_class) {
  const auto frees = co_await endpoint_.read_word(frees_address_);
  if (!frees) co_return std::unexpected(frees.error());
  auto leased = co_await lease_known_block(size_class, *frees);
  if (!leased || *leased) co_return leased;
  // A remote session asks its host for that, and waits, so it does not before it has to.
  if (const auto now = blocks(); !now) co_return std::unexpected(now.error());
  co_return co_await lease_known_block(size_class, *frees);
}

// One of those that this session knows of. `frees`: how often any was freed before.
coro::Task<Result<bool>> Allocator::lease_known_block(std::uint8_t size_class, std::uint64_t frees) {
  const BlockList list = known_blocks_;
  const std::size_t count = list.size();
  // Nothing was freed or added since a search found nothing: there is nothing to search.
  const Searched now{.frees = frees, .blocks = count};
  if (now == searched_[size_class]) co_return false;
  DescriptorGroup group;
  for (std::size_t step = 0; step < count; ++step, ++next_block_) {
    if (next_block_ >= count) next_block_ = 0;
    const BlockNumber block = list[next_block_];
    if (auto read = co_await read_descriptors(&list, block, &group); !read)
      co_return std::unexpected(std::move(read.error()));
    auto taken = co_await take_block(block, group.lease(block), size_class);
    if (taken && *taken) {
      searched_[size_class] = {};  // where one was, there may be more
      if (auto told = co_await extend_soon(size_class, frees); !told)
        co_return std::unexpected(std::move(told.error()));
    }
    if (!taken || *taken) co_return taken;
  }
  searched_[size_class] = full_ = now;
  co_return false;
}

// If it was seen to be free, or open for the class.
coro::Task<Result<bool>> Allocator::take_block(BlockNumber block, LeaseWord seen, std::uint8_t size_class) {
  const bool open = seen.state == BlockState::open && seen.size_class == size_class;
  if (seen.state != BlockState::free && !open) co_return false;
  const bool was_used = seen.generation != 0 && !open;
  // It has no items before these are cleared: if this client dies, nobody takes what lies there for some.
  LeaseWord leased = seen.next(BlockState::leased, was_used ? large_class : size_class, session_.client());
  auto won = co_await change_lease(block, seen, leased);
  if (!won || !*won) co_return won;
  session_.count(Counter::blocks_leased);
  LOCH_FAULT_POINT("alloc.block_leased");
  if (was_used) {
    if (auto cleared = co_await clear_items(block, size_class); !cleared)
      co_return std::unexpected(std::move(cleared.error()));
    const LeaseWord cut = leased.next(BlockState::leased, size_class, session_.client());
    won = co_await change_lease(block, std::exchange(leased, cut), cut);
    if (!won || !*won) co_return won;
  }
  carvings_[size_class] = std::make_shared<Carving>(Carving{
      .block = block, .next = open ? seen.cut() : 0, .count = items_in_block(size_class), .lease = leased});
  co_return true;
}

// What an earlier use of a block left must not look like items: notes of it may still be around. Nor has
// anybody left some there.
coro::Task<Result<void>> Allocator::clear_items(BlockNumber block, std::uint8_t size_class) {
  if (endpoint_.mapped(block_address(block), block_bytes) == nullptr) {
    static const std::vector<std::byte> zeros(block_bytes);
    std::array clearing{
        fabric::Operation::write(block_address(block), zeros.data(), zeros.size()),
        fabric::Operation::write(released_address(block), zeros.data(), sizeof(std::uint64_t))};
    co_return co_await endpoint_.perform(clearing);
  }
  for (std::uint32_t i = 0; i < items_in_block(size_class); ++i) {
    auto cleared = co_await endpoint_.write_word(item_in_block(block, size_class, i).address(), 0);
    if (!cleared) co_return cleared;
  }
  co_return co_await endpoint_.write_word(released_address(block), 0);
}

}  // namespace loch::memory
