// Making room for a key all of whose candidates are taken: the shortest chain of moves that frees one, found
// breadth first and carried out from its end, so that each move goes to an empty slot (nessie.txt 4.2.3,
// without its copies).
#include <vector>

#include "hash/table.h"

namespace loch::hash {
namespace {

constexpr std::size_t nodes_max = 240;  // slots looked at; about five moves deep with three candidates

struct Node {
  SlotNumber slot = 0;
  SlotWord word;
  int parent = -1;  // the node whose item would move here; -1: a candidate of the new key itself
};

// An item that can not be moved, because it is damaged or on a node that can not be reached.
bool is_out_of_reach(const Error& error) {
  return error.code == Errc::corrupt || error.code == Errc::unavailable;
}

}  // namespace

// True if something was moved (or has changed), so that another look is worthwhile.
coro::Task<Result<bool>> Table::displace(const KeyCollect* full) {
  std::vector<Node> nodes;
  nodes.reserve(nodes_max);
  for (unsigned i = 0; i < full->at.candidates; ++i) {
    const unsigned j = open_location(*full, i);
    nodes.push_back({full->at.slot[j], full->word[j], -1});
  }
  for (std::size_t next = 0; next < nodes.size() && nodes.size() < nodes_max; ++next) {
    const Node victim = nodes[next];
    if (!victim.word.is(SlotType::committed) || victim.word.tag() + 2 > tag_max) continue;
    auto header = co_await read_header(victim.word.item());
    if (!header) {
      if (is_out_of_reach(header.error())) continue;
      co_return std::unexpected(std::move(header.error()));
    }
    Collect slots;
    if (auto read = co_await collect_words(header->key_hash, &slots); !read) {
      if (is_out_of_reach(read.error())) continue;
      co_return std::unexpected(std::move(read.error()));
    }
    for (unsigned i = 0; i < slots.at.candidates; ++i) {
      const unsigned j = open_location(slots, i);
      const SlotNumber slot = slots.at.slot[j];
      if (slot == victim.slot) continue;
      if (!slots.word[j].is(SlotType::empty)) {
        nodes.push_back({slot, slots.word[j], static_cast<int>(next)});
        continue;
      }
      // The chain, from its end.
      SlotNumber to = slot;
      bool met_damage = false;
      for (int n = static_cast<int>(next); n >= 0; n = nodes[static_cast<std::size_t>(n)].parent) {
        const Node& from = nodes[static_cast<std::size_t>(n)];
        auto moved = co_await move(from.word.item(), from.slot, to);
        if (!moved) co_return moved;
        if (*moved) {
          to = from.slot;
          continue;
        }
        // Somebody changed the chain, and what was moved stays moved; or the item can not be moved at all.
        const auto found = co_await read_item(from.word.item());
        met_damage = to == slot && !found && is_out_of_reach(found.error());
        break;
      }
      if (!met_damage) co_return true;
      break;
    }
  }
  // Near its end the old half may be so full that no chain is short enough. Splits free slots, so some are
  // made right here: half of them make room for one of the chain's items.
  constexpr unsigned splits_max = 8;
  const Directory d = directory();
  unsigned splits = 0;
  for (const Node& node : nodes) {
    if (!d.growing || splits == splits_max) break;
    if (node.slot >= d.rows() * candidates_ || node.word.level() != d.level % level_modulus) continue;
    const auto split = co_await split_slot(node.slot, d);
    if (!split) co_return std::unexpected(split.error());
    if (*split) ++splits;
  }
  co_return splits != 0;
}

}  // namespace loch::hash
