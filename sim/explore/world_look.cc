// What a World looks like: for the hash of a state, the rules that hold in every state, and for people.
#include <algorithm>
#include <fmt/format.h>

#include "base/hash.h"
#include "fabric/endpoint.h"
#include "sim/explore/world.h"

namespace loch::explore {

using hash::Directory;
using hash::SlotNumber;
using hash::SlotType;
using hash::SlotWord;

namespace {

// Words as they look when nonces are numbered in the order of their appearance, and items named by their
// values.
class Canon {
 public:
  void add(std::uint64_t number) { hash_ = base::mix(hash_ ^ number) + 0x9e3779b97f4a7c15ULL; }
  void add_word(SlotWord word, ValueId value) {
    if (word.is(SlotType::empty)) {
      const std::uint64_t nonce = word.nonce();
      auto at = std::ranges::find(nonces_, nonce);
      if (at == nonces_.end()) at = nonces_.insert(nonces_.end(), nonce);
      add(SlotWord::empty(static_cast<std::uint64_t>(at - nonces_.begin()), word.level()).raw);
    } else if (word.names_item()) {
      const std::uint64_t state =
          word.raw &
          ~(SlotWord::link({}, {.region = 0x7f, .size_class = 31, .unit = (1U << 30) - 1}, 0, 0, 0).raw);
      add(state | std::uint64_t{value} << SlotWord::unit_at);
    } else {
      add(word.raw);
    }
  }
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0x123456789;
  std::vector<std::uint64_t> nonces_;
};

}  // namespace

Directory World::directory() const {
  return Directory::decode(fabric::load_word(store_->at(hash::index_of_one_host.directory())));
}

SlotWord World::slot(SlotNumber number) const {
  return {fabric::load_word(store_->at(hash::index_of_one_host.slot(number)))};
}

SlotNumber World::slot_count() const { return directory().slots(); }

ValueId World::value_of(SlotWord word) const {
  if (!word.names_item()) return 0;
  hash::ItemView view;
  const std::byte* item = store_->at(word.item().address());
  return view.parse(item, 64, word.item()) ? static_cast<ValueId>(view.value()[0]) : ValueId{0};
}

int World::key_of(SlotWord word) const {
  if (!word.names_item()) return -1;
  hash::ItemView view;
  const std::byte* item = store_->at(word.item().address());
  if (!view.parse(item, 64, word.item())) return -1;
  const auto key = std::ranges::find(key_names_, view.key());
  return key == key_names_.end() ? -1 : static_cast<int>(key - key_names_.begin());
}

// What clients read of a growth without an operation on a slot: the directory, and which rows are left to
// help with.
std::uint64_t World::growth_word() const {
  const std::uint64_t cursor = fabric::load_word(store_->at(hash::index_of_one_host.split_cursor()));
  const auto [level, chunk] = hash::ChunkCursor::decode(cursor);
  // Behind the last row all are alike until the next one who looks whether the growth can be finished.
  const std::uint64_t finishes = directory().rows() / hash::rows_split_at_once;
  const std::uint64_t left = std::min(chunk, finishes + 1);
  return directory().encode() | left << 24 | level << 32;
}

std::uint64_t World::presence_bits() const {
  std::uint64_t bits = 0;
  for (const auto& actor : actors_) {
    bits = bits << 2 | std::uint64_t{actor->status() == Actor::Status::stopped} << 1 |
           std::uint64_t{actor->status() == Actor::Status::running};
  }
  return bits;
}

std::uint64_t World::hash() const {
  Canon canon;
  canon.add(growth_word());
  const SlotNumber slots = slot_count();
  for (SlotNumber i = 0; i < slots; ++i) canon.add_word(slot(i), value_of(slot(i)));
  for (const auto& actor : actors_) {
    canon.add(static_cast<std::uint64_t>(actor->status()) | actor->position() << 8);
    if (actor->status() != Actor::Status::running) continue;
    for (const std::uint64_t word : actor->memory()) canon.add_word({word}, value_of({word}));
    const std::uint32_t waiting = actor->port().waiting();
    canon.add(waiting);
    const auto words = actor->port().words();
    for (unsigned i = 0; i < words.size(); ++i) {
      if ((waiting >> i & 1) != 0) continue;
      std::uint64_t word = words[i].result;
      if (words[i].kind == fabric::Operation::Kind::read) std::memcpy(&word, words[i].local, sizeof word);
      canon.add_word({word}, value_of({word}));
    }
  }
  canon.add(static_cast<std::uint64_t>(just_begun_ + 1) << 8 | crashes_);
  canon.add(monitor_.hash());
  return canon.hash();
}

void World::check_state() {
  for (unsigned k = 0; k < scenario_.keys.size(); ++k) check_key(k);
  check_moves();
}

// At most one item is the key's, and it is where the key is looked for.
void World::check_key(unsigned key) {
  hash::Collect seen;
  seen.key_hash = hash::Key::of(key_names_[key], memory_->geometry().hash_seed).hash;
  seen.at.set(seen.key_hash, directory(), scenario_.candidates());
  for (unsigned j = 0; j < seen.at.count; ++j) {
    seen.word[j] = slot(seen.at.slot[j]);
    if (key_of(seen.word[j]) == static_cast<int>(key)) seen.mine |= static_cast<std::uint8_t>(1U << j);
  }
  unsigned current = 0;
  for (unsigned j = 0; j < seen.at.count; ++j) {
    if (seen.is_mine(j, SlotType::committed)) ++current;
    if (seen.is_mine(j) && paired_destination(seen, j) >= 0) ++current;
  }
  if (current > 1) fail_with(fmt::format("key {} has {} current items", key, current));
  const SlotNumber slots = slot_count();
  for (SlotNumber i = 0; i < slots; ++i) {
    const SlotWord word = slot(i);
    if (!word.is(SlotType::committed) || key_of(word) != static_cast<int>(key)) continue;
    if (std::find(seen.at.slot.begin(), seen.at.slot.begin() + seen.at.count, i) ==
        seen.at.slot.begin() + seen.at.count) {
      fail_with(fmt::format("key {} is committed in {}, where nobody looks for it", key, slot_text(i)));
    }
  }
  if (directory().growing) {
    for (unsigned j = 0; j < scenario_.candidates(); ++j) {
      const bool split = directory().is_split(seen.word[j]);
      if (split && seen.at.high[j] >= 0 && seen.is_mine(j, SlotType::committed)) {
        fail_with(fmt::format("key {} is committed in {}, which was split without it", key,
                              slot_text(seen.at.slot[j])));
      }
    }
  }
}

void World::check_moves() {
  const SlotNumber slots = slot_count();
  for (SlotNumber i = 0; i < slots; ++i) {
    const SlotWord untouched = slot(i);
    if (!untouched.is(SlotType::committed) || untouched.tag() != 0) continue;
    for (SlotNumber j = 0; j < slots; ++j) {
      const SlotWord other = slot(j);
      if ((other.is(SlotType::placed) || other.is(SlotType::moved)) && other.item() == untouched.item()) {
        fail_with(fmt::format("{} holds an item that was never moved, and {} says that it is being moved",
                              slot_text(i), slot_text(j)));
      }
    }
  }
}

// ---- for people

void World::say(const std::function<std::string()>& text) const {
  if (trace) trace(text());
}

std::string World::slot_text(SlotNumber number) const {
  return fmt::format("r{}.{}", number / hash::row_slots, number % hash::row_slots);
}

std::string World::word_text(SlotWord word) const {
  if (word.raw == 0) return "unborn";
  if (word.is(SlotType::empty)) return fmt::format("E#{:x}/L{}", word.nonce(), word.level());
  if (!word.names_item()) return fmt::format("damaged {:x}", word.raw);
  constexpr std::array names{"", "", "C", "I", "A", "P", "M"};
  std::string text = fmt::format("{}(k{} x{}.{}", names[static_cast<unsigned>(word.type())], key_of(word),
                                 value_of(word), word.tag());
  if (word.is(SlotType::placed))
    text += fmt::format(" from +{}:{}", word.ref().candidates_further, word.ref().level_parity);
  if (word.is(SlotType::moved))
    text += fmt::format(" to +{}:{}", word.ref().candidates_further, word.ref().level_parity);
  return text + fmt::format(")/L{}", word.level());
}

std::string World::describe() const {
  std::string text = fmt::format("level {}{}:", directory().level, directory().growing ? " growing" : "");
  const SlotNumber slots = slot_count();
  for (SlotNumber i = 0; i < slots; ++i) {
    if (i < waits_.size() && waits_[i]) text += fmt::format("  {}={}", slot_text(i), word_text(slot(i)));
  }
  return text;
}

}  // namespace loch::explore
