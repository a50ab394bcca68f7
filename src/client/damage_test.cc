// Hostile memory: bytes of a store's files that no client wrote. Expect: of every call an error for the keys
// concerned, or what the protocol says of such a word; never a value that is not the key's, and no harm to
// any other key.
//
// Of the ways a call may go: the least (get into a string as long as the value, multi_get likewise), the
// plain ones, and the coroutines behind them (ARCHITECTURE.md, "The path of the data").
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <loch/loch.h>

#include "client/testing/damaged_store.h"
#include "hash/index.h"
#include "hash/item.h"
#include "hash/slot.h"
#include "memory/layout.h"

namespace loch {
namespace {

using namespace std::chrono_literals;

// What a read of a damaged key may answer.
struct Answers {
  bool value = false;    // the key's, since what it was got by is whole
  bool head = false;     // the value is not, but it is there
  bool corrupt = false;  // Errc::corrupt
  bool absent = false;   // the word that names the item is one that says nothing of the key
};

// Keys and values of which one is read by another way than the next.
struct Shape {
  const char* name;
  std::size_t key_bytes;
  std::size_t value_bytes;
  std::optional<std::chrono::milliseconds> time_to_live{};
};
constexpr std::array shapes = {
    Shape{"key of two words", 15, 64},
    Shape{"short key", 7, 24},
    Shape{"long key", 200, 64},
    Shape{"long value", 15, 2'000},
    Shape{"empty value", 15, 0},
    Shape{"with a time to live", 15, 64, 1h},
    Shape{"the longest plain value", 16, 512},
};

class Damage : public fake::DamagedStore {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    for (std::size_t i = 0; i < shapes.size() * 3; ++i)
      neighbours_.push_back(put_new(shapes[i % shapes.size()]));
  }
  // Neighbours are as they were, and by every way.
  void TearDown() override {
    expect_neighbours();
    StoreTest::TearDown();
  }

  struct Put {
    std::string key;
    std::string value;
  };

  Put put_new(const Shape& shape) {
    const std::uint64_t number = next_number_++;
    Put put{.key = fmt::format("{:0{}}", number, shape.key_bytes),
            .value = value_of(number, shape.value_bytes)};
    const auto done = store_->put(put.key, put.value, {.time_to_live = shape.time_to_live});
    EXPECT_TRUE(done.has_value()) << done.error().message();
    return put;
  }
  static std::string value_of(std::uint64_t number, std::size_t bytes) {
    std::string value(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) value[i] = static_cast<char>('a' + (number + i * 7) % 26);
    return value;
  }

  // ---- calls

  // Any of the store's answers, which is to be one of these.
  static void expect_one_of(const Answers& answers, const Result<std::string>& got, const std::string& value,
                            const char* call) {
    if (got) {
      EXPECT_TRUE(answers.value) << call << " gave out a value";
      EXPECT_TRUE(*got == value) << call << " gave out another value: " << *got;
      return;
    }
    const bool is_one = (answers.corrupt && got.error().code == Errc::corrupt) ||
                        (answers.absent && got.error().code == Errc::not_found);
    EXPECT_TRUE(is_one) << call << ": " << got.error().message();
  }

  // Every call that reads the key. `as_long`: how long its damaged item says that its value is.
  void expect_reads(const Put& put, const Answers& answers, std::size_t as_long) {
    const auto expect = [&](const Result<std::string>& got, const char* call) {
      expect_one_of(answers, got, put.value, call);
    };
    const auto as_result = [](const Result<void>& outcome, const std::string& value) -> Result<std::string> {
      if (!outcome) return std::unexpected(outcome.error());
      return value;
    };
    expect(store_->get(put.key), "get");
    const std::array lengths = {put.value.size(), as_long, std::size_t{0}};
    for (const std::size_t length : lengths) {
      std::string into(length, '?');
      const auto got = store_->get(put.key, into);
      expect(as_result(got, into), "get into a string");
    }
    // Beside others, each in a string of such a length.
    std::vector<Lookup> lookups;
    for (const std::size_t length : lengths) {
      lookups.push_back({.key = put.key, .value = std::string(length, '?')});
      const Put& other = neighbours_[lookups.size()];
      lookups.push_back({.key = other.key, .value = std::string(other.value.size(), '?')});
    }
    store_->multi_get(lookups);
    for (std::size_t i = 0; i < lookups.size(); i += 2) {
      expect(as_result(lookups[i].result, lookups[i].value), "multi_get");
      const auto other = as_result(lookups[i + 1].result, lookups[i + 1].value);
      expect_one_of({.value = true}, other, neighbours_[i + 1].value, "multi_get of another");
    }
    const auto item = store_->read(put.key);
    expect(item ? Result<std::string>(item->value) : std::unexpected(item.error()), "read");
    {
      const auto view = store_->view(put.key);
      expect(view ? Result<std::string>(std::string(view->value())) : std::unexpected(view.error()), "view");
    }
    const auto exists = store_->exists(put.key);
    if (exists) {
      EXPECT_TRUE(*exists ? answers.value || answers.head : answers.absent) << "exists says " << *exists;
    } else {
      EXPECT_TRUE(answers.corrupt && !answers.head && exists.error().code == Errc::corrupt)
          << exists.error().message();
    }
  }
  void expect_whole(const Put& put) { expect_reads(put, {.value = true}, put.value.size()); }
  void expect_neighbours() {
    for (const Put& neighbour : neighbours_) {
      SCOPED_TRACE(neighbour.key);
      expect_whole(neighbour);
    }
  }

  static Result<void> without_version(const Result<Version>& written) {
    return written ? Result<void>{} : std::unexpected(written.error());
  }

  // One of the calls that write: each damage meets another. After a success the key is what was written.
  void expect_write(Put put, std::uint64_t which, bool can_be_removed, Version version) {
    Result<void> outcome;
    bool is_removed = false;
    const char* call = "";
    const auto old = std::exchange(put.value, fmt::format("new value {}", which));
    switch (which % 6) {
      case 0:
        call = "put";
        outcome = without_version(store_->put(put.key, put.value));
        EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
        break;
      case 1: {
        call = "multi_put";
        std::array<Assignment, 2> assignments = {
            {{.key = put.key, .value = put.value},
             {.key = neighbours_.front().key, .value = neighbours_.front().value}}};
        store_->multi_put(assignments);
        EXPECT_TRUE(assignments[1].result.has_value()) << assignments[1].result.error().message();
        outcome = assignments[0].result;
        EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
        break;
      }
      case 2:
        call = "insert";
        outcome = without_version(store_->insert(put.key, put.value));
        break;
      case 3:
        call = "replace";
        outcome = without_version(store_->replace(put.key, put.value, version));
        break;
      case 4:
        call = "remove of a version";
        outcome = store_->remove(put.key, version);
        is_removed = true;
        break;
      default:
        call = "remove";
        outcome = store_->remove(put.key);
        is_removed = true;
        break;
    }
    SCOPED_TRACE(call);
    if (!outcome) {
      constexpr std::array said = {Errc::corrupt, Errc::exists, Errc::changed, Errc::not_found};
      EXPECT_NE(std::ranges::find(said, outcome.error().code), said.end()) << outcome.error().message();
      return;
    }
    if (!is_removed) {
      expect_whole(put);
    } else {
      expect_reads({put.key, old}, {.corrupt = !can_be_removed, .absent = true}, old.size());
    }
  }

  std::vector<Put> neighbours_;

 private:
  std::uint64_t next_number_ = 1;
};

// What may be answered while the byte at `offset` of an item is another one.
Answers answers_of_item_with(std::size_t offset, std::size_t key_bytes, std::size_t summed_bytes) {
  if (offset < offsetof(memory::ItemHeader, header_sum)) return {.value = true};  // its state: in no sum
  // Who compares the key and sums the value up needs nothing of these.
  const auto is_in = [&](std::size_t from, std::size_t bytes) {
    return offset >= from && offset < from + bytes;
  };
  const bool is_beside =
      is_in(offsetof(memory::ItemHeader, key_hash), 16) || is_in(offsetof(memory::ItemHeader, client), 2);
  const bool is_of_value =
      is_in(offsetof(memory::ItemHeader, value_sum), 4) || offset >= hash::item_bytes(key_bytes, 0);
  return {.value = is_beside || offset >= summed_bytes, .head = is_of_value, .corrupt = true};
}

// Receive: every byte of an item changed, by one bit and by all. Expect: the key is damaged for all calls,
// but where what was changed is nothing that the call goes by; then a call that writes mends or removes it.
TEST_F(Damage, EveryByteOfAnItem) {
  std::uint64_t which = 0;
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(shape.name);
    const std::size_t bytes = hash::item_bytes(shape.key_bytes, shape.value_bytes);
    for (std::size_t offset = 0; offset < bytes; offset += offset < 300 ? 1 : 97) {
      SCOPED_TRACE(fmt::format("byte {}", offset));
      const auto mask = static_cast<std::uint8_t>(std::array{0x01, 0x80, 0xff, 0x10}[offset % 4]);
      const Put put = put_new(shape);
      const Version version = store_->read(put.key)->version;
      const fabric::Address item = item_of(put.key);
      const fabric::Address at = item + offset;
      const hash::SlotNumber slot = slot_of(put.key);
      const hash::SlotWord word = word_at(slot);
      write_at(at, static_cast<std::uint8_t>(read_at<std::uint8_t>(at) ^ mask));
      const auto header = read_at<memory::ItemHeader>(item);
      expect_reads(put, answers_of_item_with(offset, shape.key_bytes, bytes),
                   std::min<std::size_t>(header.value_bytes, 4'096));
      write_at(at, static_cast<std::uint8_t>(read_at<std::uint8_t>(at) ^ mask));
      expect_whole(put);
      write_at(at, static_cast<std::uint8_t>(read_at<std::uint8_t>(at) ^ mask));
      // A key that is not there any more can not be removed by its name.
      const bool is_key = offset >= sizeof header && offset < sizeof header + shape.key_bytes;
      const bool is_length = offset == offsetof(memory::ItemHeader, key_bytes) ||
                             offset == offsetof(memory::ItemHeader, key_bytes) + 1;
      expect_write(put, which++, !is_key && !is_length, version);
      if (HasFailure()) return;
      // What does not say any more whose it is stays where it is, and would fill the small index.
      if (word_at(slot) == word) write_at(address_of(slot), hash::SlotWord::empty(which, word.level()).raw);
    }
  }
}

// Receive: every bit of a slot that names an item changed. Expect: the value, while the word still names it;
// an error where it names what is no item of the key; absence where the word is of another key, or of a state
// in which a key is not there. Then a call that writes ends, and the key is what it wrote.
TEST_F(Damage, EveryBitOfASlot) {
  std::uint64_t which = 0;
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(shape.name);
    for (unsigned bit = 0; bit < 64; ++bit) {
      SCOPED_TRACE(fmt::format("bit {}", bit));
      const Put put = put_new(shape);
      const Version version = store_->read(put.key)->version;
      const hash::SlotNumber slot = slot_of(put.key);
      const hash::SlotWord right = word_at(slot);
      write_at(address_of(slot), right.raw ^ std::uint64_t{1} << bit);
      Answers answers{.corrupt = true, .absent = true};
      const bool is_class_or_ref = bit >= hash::SlotWord::class_at && bit < hash::SlotWord::filter_at;
      const bool is_level = bit == hash::SlotWord::level_at || bit == hash::SlotWord::level_at + 1;
      if (bit < hash::SlotWord::unit_at || is_class_or_ref || is_level) answers.value = true;
      expect_reads(put, answers, put.value.size());
      write_at(address_of(slot), right.raw);
      expect_whole(put);
      write_at(address_of(slot), right.raw ^ std::uint64_t{1} << bit);
      if (bit < hash::SlotWord::level_at) {
        expect_write(put, which++, false, version);
      } else {
        // Of a slot that may be in the midst of something: the deadline may be what ends it.
        const auto outcome = store_->put(put.key, "new value");
        if (outcome) expect_whole({put.key, "new value"});
      }
      // For the collections to come, which would not know it.
      write_at(address_of(slot), hash::SlotWord::empty(which << 12, right.level()).raw);
      if (HasFailure()) return;
    }
  }
}

// Receive: a slot that names the item of another key, as if it were this one's. Expect: this key is not
// there, by whatever call; and none of them takes away the other's item.
TEST_F(Damage, ASlotThatNamesAnotherKeysItem) {
  for (std::uint64_t which = 0; which < 3 * shapes.size(); ++which) {
    const Shape& shape = shapes[which % shapes.size()];
    SCOPED_TRACE(shape.name);
    const Put other = put_new(shape);
    const Put put = put_new(shape);
    const Version version = store_->read(put.key)->version;
    const hash::SlotWord of_other = word_at(slot_of(other.key));
    write_at(address_of(slot_of(put.key)), hash::SlotWord::link(hash::SlotType::committed, of_other.item(),
                                                                key_of(put.key).filter(), 0, of_other.level())
                                               .raw);
    expect_reads(put, {.corrupt = true, .absent = true}, put.value.size());
    expect_whole(other);
    expect_write(put, which, false, version);
    expect_whole(other);
    const auto state = memory::ItemState::decode(read_at<std::uint64_t>(of_other.item().address()));
    EXPECT_EQ(state.kind, memory::ItemKind::in_use);
  }
}

// Receive: a slot that names a place inside of a value, where there are the bytes of what could be an item of
// the key: whole but for its sums. Expect: damage.
TEST_F(Damage, ASlotThatNamesWhatLooksLikeAnItem) {
  const Put put = put_new(shapes[0]);
  const hash::SlotWord right = word_at(slot_of(put.key));
  const auto header = read_at<memory::ItemHeader>(right.item().address());
  memory::ItemHeader like = header;
  like.value_sum ^= 1;
  std::string inside(sizeof like, '\0');
  std::memcpy(inside.data(), &like, sizeof like);
  inside += put.key + put.value;
  // At a place where an item may begin.
  constexpr std::size_t unit = memory::item_unit_bytes;
  constexpr std::string_view holder = "holds something";
  const std::size_t before = unit - (sizeof like + holder.size()) % unit;
  const std::string value = std::string(before, '.') + inside + std::string(300, '.');
  ASSERT_TRUE(store_->put(holder, value).has_value());
  const hash::SlotWord of_holder = word_at(slot_of(std::string(holder)));
  memory::ItemRef place = of_holder.item();
  place.unit += static_cast<std::uint32_t>((sizeof like + holder.size() + before) / unit);
  place.size_class = right.item().size_class;
  write_at(address_of(slot_of(put.key)),
           hash::SlotWord::link(hash::SlotType::committed, place, right.filter(), 0, right.level()).raw);
  expect_reads(put, {.corrupt = true}, put.value.size());
  expect_whole({std::string(holder), value});
}

// Receive: a slot that names a place where there are no items, but the bytes of one with the key. Expect:
// whoever writes the key leaves that place alone.
TEST_F(Damage, ASlotThatNamesWhatIsNoData) {
  for (std::uint64_t which = 0; which < 6; ++which) {
    const Put put = put_new(shapes[0]);
    const Version version = store_->read(put.key)->version;
    const hash::SlotNumber slot = slot_of(put.key);
    const hash::SlotWord right = word_at(slot);
    auto header = read_at<memory::ItemHeader>(right.item().address());
    header.value_sum ^= 1;
    // What a cluster alone uses.
    static_assert(memory::shard_roots_offset % memory::item_unit_bytes == 0);
    const fabric::Address place{memory::control_region, memory::shard_roots_offset};
    write_at(place, header);
    write_at(place + sizeof header, *reinterpret_cast<const std::array<char, 15>*>(put.key.data()));
    const memory::ItemRef item{
        .region = place.region,
        .size_class = right.item().size_class,
        .unit = static_cast<std::uint32_t>(place.offset_bytes / memory::item_unit_bytes)};
    write_at(address_of(slot),
             hash::SlotWord::link(hash::SlotType::committed, item, right.filter(), 0, right.level()).raw);
    expect_reads(put, {.corrupt = true, .absent = true}, put.value.size());
    expect_write(put, which, false, version);
    EXPECT_EQ(read_at<std::uint64_t>(place), header.state);
  }
}

// Receive: words that name what is behind the end of a region, at its very end, and in regions that there are
// none of; and lengths that reach beyond it. Expect: damage, and nothing is touched there.
TEST_F(Damage, NothingBehindARegionIsTouched) {
  const Put put = put_new(shapes[0]);
  const hash::SlotNumber slot = slot_of(put.key);
  const hash::SlotWord right = word_at(slot);
  const auto end = static_cast<std::uint32_t>(store_->info()->data_bytes / memory::item_unit_bytes);
  const auto largest = static_cast<std::uint32_t>(hash::SlotWord::unit_mask);
  for (const fabric::RegionId region : {right.item().region, fabric::RegionId{0}, fabric::RegionId{1},
                                        fabric::RegionId{3}, fabric::RegionId{77}, fabric::RegionId{127}}) {
    for (const std::uint32_t unit : {end - 2, end - 1, end, end + 1, largest}) {
      for (const std::uint8_t size_class : {std::uint8_t{0}, right.item().size_class, std::uint8_t{31}}) {
        SCOPED_TRACE(fmt::format("region {} unit {} class {}", region, unit, size_class));
        const memory::ItemRef item{.region = region, .size_class = size_class, .unit = unit};
        write_at(address_of(slot),
                 hash::SlotWord::link(hash::SlotType::committed, item, right.filter(), 0, right.level()).raw);
        expect_reads(put, {.corrupt = true, .absent = true}, put.value.size());
      }
    }
  }
  // An item at the end, whose lengths are those of a longer one.
  const fabric::Address last = {right.item().region, (end - 1) * memory::item_unit_bytes};
  auto header = read_at<memory::ItemHeader>(right.item().address());
  const memory::ItemRef item{.region = last.region, .size_class = 31, .unit = end - 1};
  write_at(address_of(slot),
           hash::SlotWord::link(hash::SlotType::committed, item, right.filter(), 0, right.level()).raw);
  for (const std::uint32_t value_bytes : {64U, 512U, 513U, 100'000U, 1U << 27, ~0U}) {
    for (const std::uint16_t key_bytes : {15U, 16U, 0U, 0xffffU}) {
      header.value_bytes = value_bytes;
      header.key_bytes = key_bytes;
      write_at(last, header);
      write_at(last + sizeof header, *reinterpret_cast<const std::array<char, 15>*>(put.key.data()));
      expect_reads(put, {.corrupt = true, .absent = true}, std::min(value_bytes, 100'000U));
    }
  }
  write_at(address_of(slot), right.raw);
  expect_whole(put);
}

}  // namespace
}  // namespace loch
