#include "hash/forget.h"

#include <algorithm>

namespace loch::hash {

coro::Task<Result<std::uint64_t>> forget_items(memory::Session* session, IndexPlace place,
                                               const std::vector<fabric::RegionId>* lost) {
  fabric::Endpoint& endpoint = session->endpoint();
  const auto directory = co_await endpoint.read_word(place.directory());
  if (!directory) co_return std::unexpected(directory.error());
  const Directory d = Directory::decode(*directory);
  const SlotNumber slots = d.slots();
  std::uint64_t forgotten = 0;
  for (SlotNumber slot = 0; slot < slots; ++slot) {
    const fabric::Address at = place.slot(slot);
    const auto read = co_await endpoint.read_word(at);
    if (!read) co_return std::unexpected(read.error());
    const SlotWord word{*read};
    if (!word.names_item() || !std::ranges::binary_search(*lost, word.item().region)) continue;
    const SlotWord empty = cleared_word(word, slot, d, session->next_nonce());
    const auto before = co_await endpoint.compare_swap(at, word.raw, empty.raw);
    if (!before) co_return std::unexpected(before.error());
    if (*before == word.raw) ++forgotten;
  }
  co_return forgotten;
}

}  // namespace loch::hash
