// After a growth items are brought home, for clients on other hosts and with their help.
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "fabric/testing/posting_fabric.h"
#include "hash/table.h"
#include "hash/testing/test_table.h"

namespace loch::hash {
namespace {

using fabric::OperationCost;
using fake::Client;
using fake::directory_of;
using fake::key_number;

class Homecoming : public testing::Test {
 protected:
  // Grows once, by what a client on the store's host puts.
  Homecoming() {
    while (directory_of(*store_).level == first_level) {
      const std::string key = key_number(keys_++);
      EXPECT_TRUE(near_.put(key, key).has_value());
    }
  }

  std::shared_ptr<fabric::Fabric> elsewhere(OperationCost cost = OperationCost::message) {
    return std::make_shared<fabric::fake::PostingFabric>(
        store_, fabric::fake::PostingOptions{.operation_cost = cost,
                                             .mapped = {},
                                             .before =
                                                 [this](const fabric::Operation& operation) {
                                                   if (operation.at == index_of_one_host.homing_cursor())
                                                     ++turns_;
                                                 },
                                             .round_trips = &round_trips_,
                                             .held = {}});
  }

  // The share of keys that are not in their other rows.
  double share_at_home() {
    int at_home = 0;
    for (int i = 0; i < keys_; ++i) {
      const Key key = near_.key_of(key_number(i));
      const auto at = Locations::of(key.hash, directory_of(*store_), candidates);
      const SlotWord other = fake::slot(*store_, at.slot[candidates - 1]);
      if (!other.is(SlotType::committed) || other.filter() != key.filter()) ++at_home;
    }
    return static_cast<double>(at_home) / keys_;
  }
  void update(Client& client, int times) {
    for (int i = 0; i < times; ++i) {
      const std::string key = key_number(i % keys_);
      ASSERT_TRUE(client.put(key, key).has_value());
    }
  }
  void expect_all_intact() {
    Client reader(*store_);
    for (int i = 0; i < keys_; ++i) EXPECT_EQ(reader.get(key_number(i)), key_number(i));
    const auto report = reader.check();
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->items, static_cast<std::uint64_t>(keys_));
    for (const std::string& finding : report->findings) ADD_FAILURE() << finding;
  }
  [[nodiscard]] int chunks() const { return static_cast<int>(directory_of(*store_).chunks()); }

  static constexpr unsigned candidates = 3;
  // Of an index that is half full, in which no item has been anywhere else.
  static constexpr double share_expected = 0.9;

  const std::shared_ptr<fake::MemoryStore> store_ = fake::make_store();
  Client near_{*store_};
  int keys_ = 0;
  int turns_ = 0;
  std::uint64_t round_trips_ = 0;
};

// Receive: a store that has grown, and a client on another host that updates its keys. Expect: nearly all
// items are in their home rows afterwards, and no update takes a turn at it any more.
TEST_F(Homecoming, AClientOnAnotherHostBringsItemsHome) {
  EXPECT_LT(share_at_home(), 0.8);
  Client far(*store_, elsewhere(), {});
  update(far, chunks());
  EXPECT_GT(share_at_home(), share_expected);
  expect_all_intact();
  const int turns = turns_;
  update(far, chunks());
  EXPECT_EQ(turns_, turns);
  // Nor does who comes later: he looks when he opens the store.
  Client later(*store_, elsewhere(), {});
  EXPECT_EQ(turns_, turns + 1);
  update(later, chunks());
  EXPECT_EQ(turns_, turns + 1);
}

// Receive: a store that no client by a queue pair changes. Expect: everything stays where it is; and where
// one has begun, those of the store's host go on.
TEST_F(Homecoming, ThoseOnTheStoresHostHelpAndDoNotBegin) {
  const double before = share_at_home();
  update(near_, chunks());
  Client by_agent(*store_, elsewhere(OperationCost::little), {});
  update(by_agent, chunks());
  EXPECT_EQ(turns_, 0);
  EXPECT_EQ(share_at_home(), before);
  Client far(*store_, elsewhere(), {});
  update(far, 1);
  EXPECT_LT(share_at_home(), 0.8);
  update(near_, chunks());
  EXPECT_GT(share_at_home(), share_expected);
  expect_all_intact();
}

TEST_F(Homecoming, ACollectionEndsIt) {
  Client far(*store_, elsewhere(), {});
  ASSERT_TRUE(far.collect().has_value());
  EXPECT_GT(share_at_home(), share_expected);
  expect_all_intact();
}

// Receive: removes, and puts in batches. Expect: they help as others do; batches of puts, once there is
// nothing to do.
TEST_F(Homecoming, RemovesAndBatchesHelp) {
  Client far(*store_, elsewhere(), {});
  update(far, 20);  // so that it has memory at hand
  EXPECT_EQ(far.put_in_batch(key_number(0), key_number(0)).error().code, Errc::unavailable);
  for (int i = 0; i < chunks(); ++i) EXPECT_EQ(far.remove("no such key").error().code, Errc::not_found);
  EXPECT_GT(share_at_home(), share_expected);
  EXPECT_TRUE(far.put_in_batch(key_number(0), key_number(0)).has_value());
  expect_all_intact();
}

// Receive: a store of another growth than the one that a client knows of. Expect: it is brought home, too.
TEST_F(Homecoming, ComesAfterEachGrowth) {
  Client far(*store_, elsewhere(), {});
  while (directory_of(*store_).level < first_level + 3) {
    const std::string key = key_number(keys_++);
    ASSERT_TRUE(far.put(key, key).has_value());
  }
  update(far, chunks());
  EXPECT_GT(share_at_home(), share_expected);
  expect_all_intact();
}

// Receive: a chunk of slots. Expect: a client elsewhere looks at four of them, and moves what it can, all at
// once.
TEST_F(Homecoming, TakesAClientElsewhereAsLongAsOneItem) {
  Client far(*store_, elsewhere(), {});
  update(far, 10);
  const std::uint64_t before = round_trips_;
  update(far, 1);
  EXPECT_LE(round_trips_ - before, 20U);
  EXPECT_GT(round_trips_ - before, 3U);
}

}  // namespace
}  // namespace loch::hash
