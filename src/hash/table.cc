// Table's beginning.
#include "hash/table.h"

#include <cstddef>

#include "fabric/words.h"

namespace loch::hash {

Table::Table(memory::Attachment& attachment, std::uint32_t shard, const TableOptions& options)
    : attachment_(attachment),
      items_(attachment),
      slots_(attachment, shard, options.timeout_ns),
      known_(slots_, options.cache_bytes, options.locations),
      snapshots_(slots_, items_, known_),
      resolver_(slots_, items_, snapshots_),
      item_writer_(slots_),
      growth_(slots_, items_, resolver_, item_writer_),
      displacement_(slots_, items_, resolver_, growth_),
      home_(slots_.home()),
      endpoint_(attachment.endpoint()),
      has_home_share_(home_.remote() && endpoint_.sends_each_alone()),
      works_here_(!home_.remote() && attachment.nodes().size() == 1),
      here_(endpoint_, slots_.place().slots, slots_.directory_word(), slots_.candidates()) {
  endpoint_.set_timeout(options.timeout_ns);
}

void Table::initialize(std::byte* root, const fabric::Mapping& index, unsigned level,
                       std::uint64_t time_ahead_ns) {
  constexpr std::uint64_t word_bytes = sizeof(std::uint64_t);
  const std::uint64_t slots = std::uint64_t{row_slots} << level;
  // Nonces of client 0, who is nobody: no session gives them out. Beyond them, what is unborn.
  for (std::uint64_t slot = 0; slot < index.length_bytes / word_bytes; ++slot) {
    const std::uint64_t word = slot < slots ? SlotWord::empty(slot << 12, level).raw : 0;
    fabric::store_word(index.base + slot * word_bytes, word);
  }
  static_assert(offsetof(IndexRoot, directory) == 0);
  for (std::size_t at = word_bytes; at < sizeof(IndexRoot); at += word_bytes)
    fabric::store_word(root + at, at == offsetof(IndexRoot, time_ahead_ns) ? time_ahead_ns : 0);
  fabric::store_word(root, Directory{.level = static_cast<std::uint8_t>(level)}.encode());
}

}  // namespace loch::hash
