// Growth of the index: under load, and with clients that are stale, stopped or dead.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <list>

#include "fabric/testing/posting_fabric.h"
#include "hash/table.h"
#include "hash/testing/test_table.h"
#include "memory/testing/test_memory.h"

namespace loch::hash {
namespace {

using fake::Client;
using fake::directory_of;
using fake::find_key;
using fake::key_number;
using fake::locations;
using fake::make_store;
using fake::MemoryStore;
using fake::slot;

void expect_all(Client& client, int keys) {
  for (int i = 0; i < keys; ++i) {
    const auto got = client.get(key_number(i));
    ASSERT_TRUE(got.has_value()) << key_number(i) << ": " << got.error().message();
    ASSERT_EQ(*got, key_number(i));
  }
}

TEST(Growth, SeveralDoublingsByInterleavedSessions) {
  const auto store = make_store();
  std::list<Client> clients;
  for (int i = 0; i < 3; ++i) clients.emplace_back(*store);
  constexpr int keys = 40'000;
  int i = 0;
  while (i < keys) {
    for (Client& client : clients) {
      const auto put = client.put(key_number(i), key_number(i));
      ASSERT_TRUE(put.has_value()) << i << ": " << put.error().message();
      ++i;
    }
    store->advance(20 * base::microsecond_ns);
    if (i % 2'000 < 3) ASSERT_EQ(clients.front().get(key_number(i / 2)).value(), key_number(i / 2));
  }
  EXPECT_GE(directory_of(*store).level, first_level + 3);
  expect_all(clients.back(), i);
  ASSERT_TRUE(clients.front().collect().has_value());
  const auto report = clients.front().check();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->items, static_cast<std::uint64_t>(i));
  EXPECT_EQ(report->items_unaccounted + report->slots_corrupt + report->slots_pending, 0U);
  for (const std::string& finding : report->findings) ADD_FAILURE() << finding;
  // The index is filled well before it grows.
  const auto slots = static_cast<double>(directory_of(*store).slots());
  EXPECT_GT(static_cast<double>(i) / slots, 0.3);
}

// Time stands still: all doublings happen within one tick of the clock.
TEST(Growth, SeveralDoublingsWithinOneTick) {
  const auto store = make_store();
  Client client(*store);
  constexpr int keys = 40'000;
  for (int i = 0; i < keys; ++i) {
    const auto put = client.put(key_number(i), key_number(i));
    ASSERT_TRUE(put.has_value()) << i << ": " << put.error().message();
  }
  EXPECT_GE(directory_of(*store).level, first_level + 3);
  expect_all(client, keys);
}

// The half that is not split yet gets so full that some keys find no chain in it: they split what is around
// them, and do not wait for all of it.
TEST(Growth, AFullOldHalfIsSplitWhereRoomIsNeeded) {
  const auto store = make_store();
  Client client(*store);
  constexpr int keys = 100'000;
  std::uint64_t tries_most = 0;
  for (int i = 0; i < keys; ++i) {
    const std::uint64_t before = client.counted(Counter::backoffs);
    ASSERT_TRUE(client.put(key_number(i), key_number(i)).has_value());
    tries_most = std::max(tries_most, client.counted(Counter::backoffs) - before);
  }
  EXPECT_LT(tries_most, 16U);
}

TEST(Growth, FourCandidatesAndTwo) {
  for (const std::uint32_t candidates : {2U, 4U}) {
    const auto store = make_store({.candidates = candidates, .hash_seed = 1});
    Client client(*store);
    for (int i = 0; i < 10'000; ++i) {
      ASSERT_TRUE(client.put(key_number(i), key_number(i)).has_value());
      store->advance(20 * base::microsecond_ns);
    }
    expect_all(client, 10'000);
    EXPECT_EQ(client.count().value(), 10'000U);
  }
}

// Puts keys from number 0 on until one is refused by this error; how many were put.
int put_until(Errc refusal, Client& client) {
  for (int i = 0; i < 100'000; ++i) {
    const auto put = client.put(key_number(i), key_number(i));
    client.store().advance(20 * base::microsecond_ns);
    if (put) continue;
    EXPECT_EQ(put.error().code, refusal) << put.error().message();
    return i;
  }
  ADD_FAILURE() << "none was refused";
  return 0;
}

// Receive: a client that stopped in the midst of an operation, at the level of its start. Expect: the index
// grows while a level's words can be told apart, then says who holds it back; reads and removes go on.
TEST(Growth, AStoppedClientHoldsItBackInTheEnd) {
  const auto store = make_store();
  Client stopped(*store);
  Client client(*store);
  stopped.session().begin_operation();
  const int i = put_until(Errc::no_space, client);
  EXPECT_GE(directory_of(*store).level, first_level + 2);
  expect_all(client, i);
  EXPECT_TRUE(client.remove(key_number(0)).has_value());
  EXPECT_TRUE(client.put(key_number(1), "changed").has_value());
  stopped.die();
  EXPECT_TRUE(client.put(key_number(i), key_number(i)).has_value()) << "the dead hold nothing back";
}

// Receive: a client that stopped in the midst of an insert that lost, whose word it alone clears. Expect: the
// growth that goes on does not end, so that the next can not begin, and puts that find no room say so; all
// else goes on, and so does the index once that client is gone.
TEST(Growth, AnInsertThatLostOfAStoppedClientHoldsTheNextDoublingBack) {
  const auto store = make_store();
  Client client(*store);
  Client stopped(*store);
  stopped.session().begin_operation();
  const std::string lost = find_key(stopped, "lost", [&](const Locations& at, std::uint64_t) {
    return slot(*store, at.slot[0]).is(SlotType::empty);
  });
  ASSERT_TRUE(stopped.put(lost, "value").has_value());
  const SlotNumber home = locations(stopped, lost).slot[0];
  fake::set_slot(*store, home, slot(*store, home).with_type(SlotType::aborted));
  const unsigned level = directory_of(*store).level;
  const int i = put_until(Errc::timed_out, client);
  EXPECT_EQ(directory_of(*store).level, level);
  EXPECT_TRUE(directory_of(*store).growing);
  EXPECT_GT(static_cast<std::uint64_t>(i), directory_of(*store).low_slots()) << "both halves are used";
  expect_all(client, i);
  EXPECT_TRUE(client.remove(key_number(0)).has_value());
  EXPECT_TRUE(client.put(key_number(1), "changed").has_value());
  stopped.die();
  EXPECT_TRUE(client.put(key_number(i), key_number(i)).has_value());
  for (int more = 0; more < i; ++more) ASSERT_TRUE(client.put(key_number(i + more), "more").has_value());
  EXPECT_GT(directory_of(*store).level, level);
}

// Receive: a reader that read the directory before the growth and the words after it. Expect: it looks again.
TEST(Growth, AStaleReaderLooksAgain) {
  for (int at = 0; at < 3; ++at) {
    const auto store = make_store();
    Client client(*store);
    constexpr int keys = 1'500;
    for (int i = 0; i < keys; ++i) ASSERT_TRUE(client.put(key_number(i), key_number(i)).has_value());
    for (int victim = 0; victim < 40; ++victim) {
      int reads = 0;
      Client reader = fake::watched_client(*store, [&] {
        if (reads++ != at) return;
        if (directory_of(*store).growing) {
          ASSERT_TRUE(client.collect().has_value());
        } else if (directory_of(*store).level < first_level + 2) {
          fake::begin_growth(*store, 0);
          for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.put(key_number(i), key_number(i)).has_value());
        }
      });
      const auto got = reader.get(key_number(victim));
      ASSERT_TRUE(got.has_value()) << got.error().message();
      EXPECT_EQ(*got, key_number(victim));
    }
    EXPECT_EQ(directory_of(*store).level, first_level + 2);
    expect_all(client, keys);
  }
}

// ---- without memory

TEST(Growth, AFullStoreStillReadsUpdatesAndRemoves) {
  const auto store =
      make_store({.expiry_ns = base::second_ns, .max_bytes = 4 * memory::block_bytes, .hash_seed = 3});
  Client client(*store);
  const std::string value(2'000, 'v');
  int i = 0;
  Result<std::uint64_t> put = 0;
  for (; i < 100'000 && put; ++i) put = client.put(key_number(i), value);
  ASSERT_FALSE(put.has_value());
  EXPECT_EQ(put.error().code, Errc::no_space) << put.error().message();
  --i;
  for (int k = 0; k < i; ++k) ASSERT_EQ(client.get(key_number(k)).value(), value);
  for (int k = 0; k < i; ++k) ASSERT_TRUE(client.remove(key_number(k)).has_value());
  EXPECT_EQ(client.count().value(), 0U);
  store->advance(2 * base::second_ns);
  for (int k = 0; k < i; ++k) {
    const auto again = client.put(key_number(k), value);
    ASSERT_TRUE(again.has_value()) << k << " of " << i << ": " << again.error().message();
  }
}

// Receive: a growth for which an item must be copied (its tags are used up), and no memory. Expect: removes,
// reads and collections do not mind, and the growth ends when there is memory again.
TEST(Growth, RemovesDoNotNeedMemory) {
  const auto store =
      make_store({.hash_seed = 5}, {.free_bytes = 40 * memory::block_bytes + Table::initial_index_bytes});
  Client client(*store);
  const std::string worn = find_key(client, "worn", [](const Locations& at, std::uint64_t hash) {
    return at.slot[0] < 250 && (home_row_mix(hash) & (1U << first_level)) != 0;
  });
  ASSERT_TRUE(client.put(worn, std::string(300'000, 'w')).has_value());
  const SlotNumber home = locations(client, worn).slot[0];
  fake::set_slot(*store, home, slot(*store, home).with_tag(tag_max));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.put(key_number(i), "x").has_value());
  const base::Nanos end = store->now() + 3'600 * base::second_ns;
  int i = 0;
  for (const std::size_t size : {400'000, 300'000, 100'000, 10'000, 1'000, 100, 1}) {
    const std::string value(size, 'v');
    while (client.put(fmt::format("big{}", i), value, end).has_value()) ++i;
  }
  fake::begin_growth(*store, 0);
  for (int k = 0; k < 20; ++k) {
    const auto removed = client.remove(key_number(k));
    EXPECT_TRUE(removed.has_value()) << removed.error().message();
  }
  EXPECT_EQ(client.get(worn)->size(), 300'000U);
  ASSERT_TRUE(client.collect().has_value());
  EXPECT_TRUE(directory_of(*store).growing);
  // What has expired is dropped all the same, and rests.
  store->advance(3'600 * base::second_ns);
  EXPECT_GT(client.collect()->items_expired, 0U);
  store->advance(10 * base::second_ns);
  ASSERT_TRUE(client.collect().has_value());
  EXPECT_FALSE(directory_of(*store).growing);
  EXPECT_EQ(client.get(worn)->size(), 300'000U);
}

// ---- its end

// A client elsewhere that counts how often it reads many slots at once, and how often it takes a turn.
class Finisher {
 public:
  explicit Finisher(MemoryStore& store, base::Nanos each_takes = 0)
      : client_(store,
                std::make_shared<fabric::fake::PostingFabric>(
                    store.shared_from_this(),
                    fabric::fake::PostingOptions{.mapped = {},
                                                 .before =
                                                     [this, &store, each_takes](const auto& operation) {
                                                       if (operation.at == index_of_one_host.split_cursor())
                                                         ++turns_;
                                                       if (operation.at.region != memory::index_region ||
                                                           operation.length_bytes < 1'024)
                                                         return;
                                                       ++looks_;
                                                       store.advance(each_takes);
                                                     },
                                                 .held = {}}),
                {}) {}

  [[nodiscard]] Client& client() { return client_; }
  [[nodiscard]] int looks() const { return looks_; }
  [[nodiscard]] int turns() const { return turns_; }

 private:
  int looks_ = 0;
  int turns_ = 0;
  Client client_;
};

// All chunks are taken, and whoever comes next is the first to finish.
void begin_to_finish(MemoryStore& store) {
  fake::begin_growth(store, directory_of(store).low_slots() / (rows_split_at_once * row_slots));
}

// Receive: the end of a growth waits for an insert of a client that was stopped. Expect: operations do not
// look at the index for that again and again, but once in a while; and the growth ends when it can.
TEST(Growth, WhatHoldsItsEndBackIsLookedAtOnceInAWhile) {
  const auto store = make_store();
  Client near(*store);
  Client stopped(*store);
  stopped.session().begin_operation();
  constexpr int keys = 1'000;
  for (int i = 0; i < keys; ++i) ASSERT_TRUE(near.put(key_number(i), key_number(i)).has_value());
  const std::string lost = find_key(stopped, "lost", [&](const Locations& at, std::uint64_t) {
    return slot(*store, at.slot[0]).is(SlotType::empty);
  });
  ASSERT_TRUE(stopped.put(lost, "value").has_value());
  const SlotNumber home = locations(stopped, lost).slot[0];
  fake::set_slot(*store, home, slot(*store, home).with_type(SlotType::aborted));

  begin_to_finish(*store);
  Finisher finisher(*store);
  const auto put_many = [&] {
    store->advance(base::second_ns);
    memory::fake::tell_time(*store);
    for (int i = 0; i < keys; ++i)
      ASSERT_TRUE(finisher.client().put(key_number(i), key_number(i)).has_value());
  };
  put_many();
  EXPECT_EQ(finisher.looks(), 1);
  put_many();
  EXPECT_EQ(finisher.looks(), 2);
  EXPECT_EQ(finisher.turns(), 2) << "not one for each put";
  EXPECT_TRUE(directory_of(*store).growing);
  stopped.die();
  put_many();
  EXPECT_FALSE(directory_of(*store).growing);
  expect_all(near, keys);
}

// Receive: an index that takes long to look at: a part of it most of the time that an operation has for that,
// or more. Expect: no operation does it all, and some together do.
class LongLooks : public testing::TestWithParam<int> {};

TEST_P(LongLooks, ManyOperationsFinishItTogether) {
  const auto store = make_store();
  Client near(*store);
  int keys = 0;
  for (; directory_of(*store).level < first_level + 1; ++keys)
    ASSERT_TRUE(near.put(key_number(keys), key_number(keys)).has_value());
  ASSERT_FALSE(directory_of(*store).growing);
  begin_to_finish(*store);
  Finisher finisher(*store, static_cast<base::Nanos>(GetParam()) * base::millisecond_ns);
  int puts = 0;
  for (; directory_of(*store).growing && puts < 10; ++puts) {
    const int looks_before = finisher.looks();
    ASSERT_TRUE(finisher.client().put(key_number(puts), key_number(puts)).has_value());
    EXPECT_LE(finisher.looks() - looks_before, 2);
  }
  EXPECT_FALSE(directory_of(*store).growing);
  EXPECT_GE(puts, 3);
  expect_all(near, keys);
}

INSTANTIATE_TEST_SUITE_P(Milliseconds, LongLooks, testing::Values(6, 11));

base::Nanos told_reached_at(const MemoryStore& store, unsigned level) {
  return fabric::load_word(store.at(IndexPlace{}.reached_at(level)));
}

// Receive: time passes just before the level is raised, and an operation begins then. Expect: the level
// counts as reached no earlier than that.
TEST(Growth, ALevelIsReachedWhenTheDirectorySaysIt) {
  const auto store = make_store();
  Client near(*store);
  begin_to_finish(*store);
  base::Nanos began = 0;
  const fabric::Address directory = IndexPlace{}.directory();
  const auto begin_before = [&](const fabric::Operation& operation) {
    if (operation.kind != fabric::Operation::Kind::compare_swap || operation.at != directory) return;
    store->advance(base::second_ns);
    memory::fake::tell_time(*store);
    began = store->now();
  };
  Client far(*store,
             std::make_shared<fabric::fake::PostingFabric>(
                 store, fabric::fake::PostingOptions{.before = begin_before}),
             {});
  for (int i = 0; directory_of(*store).growing && i < 10; ++i)
    ASSERT_TRUE(far.put(key_number(i), key_number(i)).has_value());
  ASSERT_FALSE(directory_of(*store).growing);
  ASSERT_NE(began, 0U);
  EXPECT_GE(told_reached_at(*store, first_level + 1), began);
  EXPECT_LE(told_reached_at(*store, first_level + 1), store->now());
}

// Receive: whoever raised a level died before it said when, and a client was stopped since. Expect: that one
// holds the index back, as it is not known that it began later; and no longer when it is gone.
TEST(Growth, ALevelThatNobodySaidToBeReachedIsReachedNow) {
  const auto store = make_store();
  Client client(*store);
  int keys = 0;
  const auto put_until_level = [&](unsigned level) {
    for (; directory_of(*store).level < level; ++keys) {
      ASSERT_TRUE(client.put(key_number(keys), key_number(keys)).has_value());
      store->advance(20 * base::microsecond_ns);
    }
  };
  put_until_level(first_level + 1);
  fabric::store_word(store->at(IndexPlace{}.reached_at(first_level + 1)), ~std::uint64_t{0});
  put_until_level(first_level + 2);
  Client stopped(*store);
  stopped.session().begin_operation();
  put_until(Errc::no_space, client);
  EXPECT_EQ(directory_of(*store).level, first_level + 3);
  stopped.die();
  put_until_level(first_level + 4);
  EXPECT_NE(told_reached_at(*store, first_level + 1), ~std::uint64_t{0});
}

}  // namespace
}  // namespace loch::hash
