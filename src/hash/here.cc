// What the plain cases of one key on mapped memory take beside the steps of here.h.
#include "hash/here.h"

#include "base/fault.h"
#include "hash/table.h"

namespace loch::hash {

bool Here::take_directory(std::uint64_t word) {
  const Directory directory = Directory::decode(word);
  if (directory.growing || directory.level == 0) return false;
  const std::uint64_t rows = directory.rows();
  std::byte* const index = endpoint_.mapped({region_, 0}, rows * row_bytes);
  if (index == nullptr) return false;
  index_ = index;
  row_mask_ = rows - 1;
  upper_bits_ = SlotWord::link(SlotType::committed, {}, 0, 0, directory.level).raw;
  seen_directory_ = word;
  if (candidates_ == usual_candidates) usual_directory_ = word;
  return true;
}

bool Table::parse_here(ItemView& item) {
  const memory::ItemRef& ref = item.ref();
  return item.take_lengths(room_of(ref)) &&
         shard_.endpoint.mapped(ref.address(), item.length_bytes()) != nullptr;
}

memory::Allocator::Place Table::prepare_item_here(std::uint64_t length_bytes, base::Nanos now) {
  const auto place = shard_.attachment.nodes().front().allocator->allocate_here(length_bytes, now);
  if (place.at == nullptr) return place;
  constexpr std::uint64_t lines_max = 4;
  for (std::uint64_t line = 0; line < lines_max && line * fabric::cache_line_bytes < length_bytes; ++line) {
    __builtin_prefetch(place.at + line * fabric::cache_line_bytes, 1);
  }
  return place;
}

bool Table::update_here(const memory::Attachment::Look& look, const Probe& probe,
                        const memory::Allocator::Place& place, std::string_view value,
                        base::Nanos expires_at_ns, base::Nanos now, std::uint64_t* version) {
  const WriteRequest request{.key = probe.key, .value = value, .expires_at_ns = expires_at_ns};
  const memory::ItemHeader header =
      ItemWriter::header_for(request, shard_.home, shard_.home.next_write_time(now));
  *version = write_item(place.at, place.ref, header, request.key.bytes, request.value);
  LOCH_FAULT_POINT("put_here.item_written");
  // A damaged word may name what is no node's.
  if (!look.holds() || shard_.attachment.find_node_of(probe.word.item()) == nullptr) return false;
  const SlotWord linked =
      SlotWord::link(SlotType::committed, place.ref, probe.key.filter(), 0, probe.word.level());
  LOCH_FAULT_POINT("put_here.before_update");
  const bool won = fabric::swap_word(probe.matched, probe.word.raw, linked.raw) == probe.word.raw;
  shard_.home.count(won ? Counter::put_update : Counter::conflicts);
  LOCH_FAULT_POINT("put_here.after_update");
  return won;
}

void Table::retire_here(SlotWord unlinked, base::Nanos now) {
  const bool moved = unlinked.tag() != 0;
  memory::Allocator& allocator = shard_.attachment.allocator_of(unlinked.item());
  if (allocator.retire_here(unlinked.item(), moved, now)) return;
  // What can not be marked is found by a collection.
  [[maybe_unused]] const auto retired = shard_.endpoint.run(allocator.retire(unlinked.item(), moved));
}

}  // namespace loch::hash
