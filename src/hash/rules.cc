#include "hash/rules.h"

namespace loch::hash {
namespace {

// P at `j` is live while its source still holds its item at the tag before.
int live_source(const Collect& c, unsigned j) {
  const SlotWord placed = c.word[j];
  const int source = c.at.find(placed.ref(), j, c.key_hash);
  if (source < 0 || source == static_cast<int>(j)) return -1;
  const SlotWord word = c.word[static_cast<unsigned>(source)];
  const bool live =
      word.is(SlotType::committed) && word.item() == placed.item() && word.tag() + 1 == placed.tag();
  return live ? source : -1;
}

}  // namespace

bool Collect::same_words(const Collect& other) const {
  if (at.count != other.at.count || at.directory != other.at.directory) return false;
  for (unsigned j = 0; j < at.count; ++j) {
    if (word[j] != other.word[j]) return false;
  }
  return true;
}

bool is_outdated(const Collect& c) {
  const Directory d = c.at.directory;
  for (unsigned j = 0; j < c.at.count; ++j) {
    const bool high = j >= c.at.candidates;
    if (high && c.word[j].is(SlotType::unborn)) continue;
    const bool at_level = !high && d.is_unsplit(c.word[j]);
    const bool at_next = d.growing && d.is_split(c.word[j]);
    if (!at_level && !at_next) return true;
  }
  return false;
}

bool is_damaged(const Collect& c) {
  for (unsigned j = 0; j < c.at.count; ++j) {
    const bool unborn_below = j < c.at.candidates && c.word[j].is(SlotType::unborn);
    if (unborn_below || c.word[j].is(SlotType::none)) return true;
  }
  return false;
}

unsigned open_location(const Collect& c, unsigned candidate) {
  if (!c.at.directory.growing || c.at.high[candidate] < 0) return candidate;
  const bool split = c.at.directory.is_split(c.word[candidate]);
  return split ? static_cast<unsigned>(c.at.high[candidate]) : candidate;
}

bool home_is_claimable(const Collect& c) {
  const SlotWord home = c.word[home_location(c)];
  return home.is(SlotType::empty) || home.is(SlotType::moved);
}

std::optional<unsigned> empty_alternate(const Collect& c) {
  for (unsigned i = 1; i < c.at.candidates; ++i) {
    const unsigned j = open_location(c, i);
    if (c.word[j].is(SlotType::empty)) return j;
  }
  return std::nullopt;
}

bool may_be_moved(const Collect& c, unsigned source, unsigned destination) {
  if (source < c.at.candidates && c.at.high[source] == static_cast<int>(destination)) return true;
  for (unsigned i = 0; i < c.at.candidates; ++i) {
    if (open_location(c, i) == destination) return true;
  }
  return false;
}

int committed_location(const Collect& c) {
  for (unsigned j = 0; j < c.at.count; ++j) {
    if (c.is_mine(j, SlotType::committed)) return static_cast<int>(j);
  }
  return -1;
}

int location_naming(const Collect& c, memory::ItemRef item) {
  for (unsigned j = 0; j < c.at.count; ++j) {
    if (c.word[j].names_item() && c.word[j].item() == item) return static_cast<int>(j);
  }
  return -1;
}

int paired_destination(const Collect& c, unsigned j) {
  const SlotWord source = c.word[j];
  if (!source.is(SlotType::moved)) return -1;
  const int destination = c.at.find(source.ref(), j, c.key_hash);
  if (destination < 0) return -1;
  const auto to = static_cast<unsigned>(destination);
  const SlotWord placed = c.word[to];
  const bool paired = placed.is(SlotType::placed) && same_link(placed, source) &&
                      c.at.find(placed.ref(), to, c.key_hash) == static_cast<int>(j);
  return paired ? destination : -1;
}

int current_location(const Collect& c) {
  if (const int committed = committed_location(c); committed >= 0) return committed;
  for (unsigned j = 0; j < c.at.count; ++j) {
    if (c.is_mine(j) && paired_destination(c, j) >= 0) return static_cast<int>(j);
  }
  return -1;
}

bool has_unfinished(const Collect& c) {
  for (unsigned j = 0; j < c.at.count; ++j) {
    if (c.is_mine(j, SlotType::placed) || c.is_mine(j, SlotType::moved) || c.is_mine(j, SlotType::pending))
      return true;
  }
  return false;
}

int lowest_pending(const Collect& c) {
  for (unsigned j = 0; j < c.at.count; ++j) {
    if (c.is_mine(j, SlotType::pending)) return static_cast<int>(j);
  }
  return -1;
}

std::optional<Repair> resolve(const Collect& s, std::uint64_t fresh_nonce) {
  const auto cleared = [&](unsigned j) {
    return cleared_word(s.word[j], s.at.slot[j], s.at.directory, fresh_nonce);
  };
  const unsigned count = s.at.count;

  // 1 A paired M: its P becomes the committed word.
  for (unsigned j = 0; j < count; ++j) {
    if (!s.is_mine(j, SlotType::moved)) continue;
    if (const int d = paired_destination(s, j); d >= 0) {
      const auto to = static_cast<unsigned>(d);
      return Repair{Repair::Kind::commit_move, to, s.word[to],
                    s.word[to].with_type(SlotType::committed).with_ref({})};
    }
  }
  // 2 An M alone is what a finished move left.
  for (unsigned j = 0; j < count; ++j) {
    if (s.is_mine(j, SlotType::moved)) return Repair{Repair::Kind::clear, j, s.word[j], cleared(j)};
  }
  // 3 A live P: its source is marked; a dead one is cleared.
  for (unsigned j = 0; j < count; ++j) {
    if (!s.is_mine(j, SlotType::placed)) continue;
    if (const int source = live_source(s, j); source >= 0) {
      const auto from = static_cast<unsigned>(source);
      const SlotWord marked = s.word[j]
                                  .with_type(SlotType::moved)
                                  .with_ref(s.at.ref_of(j, from))
                                  .with_level(s.word[from].level());
      return Repair{Repair::Kind::mark_source, from, s.word[from], marked};
    }
    return Repair{Repair::Kind::clear, j, s.word[j], cleared(j)};
  }
  // 4 Pending inserts: the highest loses while there is a reason; one alone wins.
  int pending = 0;
  unsigned highest = 0;
  for (unsigned j = 0; j < count; ++j) {
    if (!s.is_mine(j, SlotType::pending)) continue;
    ++pending;
    highest = j;
  }
  if (pending != 0) {
    const bool loses = pending > 1 || committed_location(s) >= 0 || home_is_claimable(s);
    const SlotWord word = s.word[highest];
    if (loses) return Repair{Repair::Kind::abort_insert, highest, word, word.with_type(SlotType::aborted)};
    return Repair{Repair::Kind::commit_insert, highest, word, word.with_type(SlotType::committed)};
  }
  // 5 An A whose owner can not clear it any more.
  for (unsigned j = 0; j < count; ++j) {
    if (s.is_mine(j, SlotType::aborted) && (s.owner_gone >> j & 1) != 0) {
      return Repair{Repair::Kind::clear_aborted, j, s.word[j], cleared(j)};
    }
  }
  return std::nullopt;
}

}  // namespace loch::hash
