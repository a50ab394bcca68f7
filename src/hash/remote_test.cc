// A client on another host: it goes by copies of the directory and of the clock.
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "fabric/testing/posting_fabric.h"
#include "hash/testing/scenes.h"
#include "hash/testing/test_table.h"
#include "memory/testing/test_memory.h"

namespace loch::hash {
namespace {

using fake::begin_growth;
using fake::Client;
using fake::directory_of;
using fake::expect_sound;
using fake::find_key;
using fake::locations;
using fake::make_store;
using fake::MemoryStore;
using fake::slot;
using memory::fake::elsewhere;
using memory::fake::tell_time;

class RemoteClient : public testing::TestWithParam<std::size_t> {
 protected:
  RemoteClient() { tell_time(*store_); }

  std::shared_ptr<MemoryStore> store_ = make_store();
  Client near_{*store_};
  Client far_{*store_, elsewhere(*store_), {.cache_bytes = GetParam()}};
};

TEST_P(RemoteClient, SeesWhatOthersDoAndTheySeeWhatItDoes) {
  ASSERT_TRUE(near_.put("a", "1").has_value());
  EXPECT_EQ(far_.get("a").value(), "1");
  ASSERT_TRUE(far_.put("a", "2").has_value());
  EXPECT_EQ(near_.get("a").value(), "2");
  EXPECT_EQ(far_.insert("a", "3").error().code, Errc::exists);
  ASSERT_TRUE(near_.remove("a").has_value());
  EXPECT_EQ(far_.get("a").error().code, Errc::not_found);
  ASSERT_TRUE(far_.insert("a", "4").has_value());
  ASSERT_TRUE(far_.remove("a").has_value());
  EXPECT_EQ(near_.get("a").error().code, Errc::not_found);
  expect_sound(near_, 0);
}

TEST_P(RemoteClient, FindsItsWayThroughGrowthsThatOthersBegin) {
  constexpr int keys = 9'000;
  const auto key = [](int i) { return fmt::format("key{}", i); };
  for (int i = 0; i < keys; ++i) {
    Client& client = i % 16 == 0 ? far_ : near_;
    ASSERT_TRUE(client.put(key(i), key(i)).has_value()) << i;
    if (i % 64 == 0) ASSERT_EQ(far_.get(key(i / 2)).value(), key(i / 2));
  }
  EXPECT_GT(directory_of(*store_).level, first_level);
  for (int i = 0; i < keys; i += 50) ASSERT_EQ(far_.get(key(i)).value(), key(i));
  expect_sound(near_, keys);
}

// Receive: a growth that the copy of the directory does not know of yet; the key's item is half way up.
// Expect: what is seen at the old places alone is no snapshot.
TEST_P(RemoteClient, ACopyOfTheDirectoryThatIsOldMissesNoMove) {
  const std::string key = find_key(near_, "key", [](const Locations& at, std::uint64_t hash) {
    return (home_row_mix(hash) & at.directory.rows()) != 0;
  });
  ASSERT_TRUE(near_.put(key, "value").has_value());
  ASSERT_EQ(far_.get(key).value(), "value");
  begin_growth(*store_);
  const Locations at = locations(near_, key);
  const unsigned up = static_cast<std::uint8_t>(at.high[0]);
  const SlotNumber low = at.slot[0];
  const SlotNumber high = at.slot[up];
  const SlotWord committed = slot(*store_, low);
  fake::set_slot(
      *store_, high,
      SlotWord::link(SlotType::placed, committed.item(), committed.filter(), 2, at.directory.level + 1U)
          .with_ref(at.ref_of(0, up)));
  fake::set_slot(*store_, low,
                 SlotWord::link(SlotType::moved, committed.item(), committed.filter(), 2, at.directory.level)
                     .with_ref(at.ref_of(up, 0)));
  ASSERT_EQ(near_.get(key).value(), "value");
  EXPECT_EQ(far_.insert(key, "other").error().code, Errc::exists);
  EXPECT_EQ(far_.get(key).value(), "value");
}

// Receive: sessions that refresh, and otherwise do nothing, while the index grows by four levels, after which
// its words look as they did before. Expect: their first put does not go by the directory of then.
TEST_P(RemoteClient, GoesByNoDirectoryThatIsOlderThanItsLastRefresh) {
  std::list<Client> idle;
  for (int i = 0; i < 4; ++i) idle.emplace_back(*store_, elsewhere(*store_), TableOptions{});
  std::vector<Client*> all{&far_};
  for (Client& each : idle) all.push_back(&each);
  const Directory before = directory_of(*store_);
  const Directory after{.level = static_cast<std::uint8_t>(before.level + level_modulus)};
  std::uint64_t keys = 0;
  const auto grow_to = [&](Directory wanted) {
    while (directory_of(*store_) != wanted) {
      ASSERT_TRUE(near_.put(fmt::format("key{}", keys++), "value").has_value());
      if (keys % 512 != 0) continue;
      store_->advance(base::millisecond_ns);
      tell_time(*store_);
      for (Client* each : all) ASSERT_TRUE(each->run(each->attachment().refresh()).has_value());
    }
  };
  ASSERT_NO_FATAL_FAILURE(grow_to(after));
  int found = 0;
  for (Client& each : idle) {
    // One that there would be a slot for where it does not belong.
    const std::string key =
        find_key(near_, fmt::format("new{}.", found++), [&](const Locations& now, std::uint64_t hash) {
          const Locations then = Locations::of(hash, before, now.candidates);
          const auto holds = [&](unsigned i, SlotType type) { return slot(*store_, then.slot[i]).is(type); };
          return holds(0, SlotType::committed) && holds(1, SlotType::empty) && now.index_of(then.slot[1]) < 0;
        });
    ASSERT_TRUE(each.run(each.attachment().refresh()).has_value());
    EXPECT_TRUE(each.put(key, "value").has_value());
    EXPECT_EQ(near_.get(key).value(), "value");
  }
  expect_sound(near_, keys + idle.size());
}

TEST_P(RemoteClient, JudgesTimesToLiveByTheStoresClock) {
  const base::Nanos end = store_->now() + base::second_ns;
  ASSERT_TRUE(near_.put("a", "1", end).has_value());
  EXPECT_EQ(far_.get("a").value(), "1");
  store_->advance(base::second_ns - 1);
  tell_time(*store_);
  EXPECT_EQ(far_.get("a").value(), "1");
  store_->advance(1);
  EXPECT_EQ(near_.get("a").error().code, Errc::not_found) << "and this tells the time to all";
  EXPECT_EQ(far_.get("a").error().code, Errc::not_found);
  EXPECT_TRUE(far_.insert("a", "2").has_value());
}

TEST_P(RemoteClient, VisitsEverythingOnce) {
  constexpr std::uint64_t keys = 200;
  for (std::uint64_t i = 0; i < keys; ++i) ASSERT_TRUE(near_.put(fmt::format("key{}", i), "v").has_value());
  Client walker(
      *store_,
      std::make_shared<fabric::fake::PostingFabric>(
          store_, fabric::fake::PostingOptions{.before = [this](const auto&) { tell_time(*store_); }}),
      {});
  const auto walked = walker.walk();
  ASSERT_TRUE(walked.has_value()) << walked.error().message();
  EXPECT_EQ(walked->size(), keys);
  EXPECT_EQ(walker.count().value(), keys);
}

// A walk waits for the store's time to go on.
TEST_P(RemoteClient, GivesUpAWalkWhenNobodyTellsTheTime) {
  ASSERT_TRUE(near_.put("a", "1").has_value());
  const auto walked = far_.walk();
  ASSERT_FALSE(walked.has_value());
  EXPECT_EQ(walked.error().code, Errc::timed_out);
}

// Receive: a pointer to an item whose memory, long since, is another key's, with the same filter and in one
// of the key's slots. Expect: the pointer is of no use any more.
TEST_P(RemoteClient, APointerIsGoodForAsLongAsItsItemCanNotHaveBeenReused) {
  const std::string key = "key";
  const std::string value(60, 'v');
  ASSERT_TRUE(near_.put(key, value).has_value());
  ASSERT_EQ(far_.get(key).value(), value);
  const Locations at = locations(near_, key);
  const memory::ItemRef place = slot(*store_, at.slot[0]).item();
  const std::string other = find_key(near_, "other", [&](const Locations& its, std::uint64_t hash) {
    return its.slot[0] == at.slot[0] && filter_of(hash) == near_.key_of(key).filter();
  });
  ASSERT_TRUE(near_.remove(key).has_value());
  store_->advance(3 * base::second_ns);
  tell_time(*store_);
  ASSERT_FALSE(far_.get("none").has_value()) << "it learns of the time";
  const std::string another(key.size() + value.size() - other.size(), 'a');
  ASSERT_TRUE(near_.put(other, another).has_value());
  ASSERT_EQ(slot(*store_, at.slot[0]).item().place(), place.place()) << "it was reused";
  ASSERT_TRUE(far_.put(key, "again").has_value());
  EXPECT_EQ(near_.get(other).value(), another);
  EXPECT_EQ(far_.get(key).value(), "again");
}

// A client on another host that knows where items were; what it posts can be looked at before it is carried
// out.
class ByLocation : public testing::Test {
 protected:
  explicit ByLocation(bool keeps_order, std::uint64_t seed = 1)
      : far_(*store_,
             std::make_shared<fabric::fake::PostingFabric>(
                 store_,
                 fabric::fake::PostingOptions{
                     .seed = seed,
                     .keeps_order = keeps_order,
                     .mapped = {},
                     .before = [this](const fabric::Operation& operation) { before_(operation); }}),
             {.locations = &locations_}) {
    tell_time(*store_);
  }
  void TearDown() override {
    before_ = [](const fabric::Operation& /*operation*/) {};
  }

  // Until what it knows lately is known no more.
  void let_it_forget() {
    for (int half = 0; half < 2; ++half) {
      store_->advance(2 * base::second_ns);
      tell_time(*store_);
      ASSERT_FALSE(far_.get("none").has_value()) << "it learns of the time";
    }
  }
  void expect_no_older_value(const std::string& key, Result<std::string> (Client::*get)(std::string_view)) {
    ASSERT_TRUE(near_.put(key, "value 1").has_value());
    ASSERT_EQ(far_.get(key).value(), "value 1");
    const memory::ItemRef place = home_item(key);
    ASSERT_TRUE(near_.put(key, "value 2").has_value());
    let_it_forget();
    int operations = 0;
    before_ = [&](const fabric::Operation& /*operation*/) {
      if (++operations == 2) ASSERT_TRUE(near_.put(key, "value 3").has_value());
    };
    const auto got = (far_.*get)(key).value();
    before_ = [](const fabric::Operation& /*operation*/) {};
    ASSERT_EQ(home_item(key), place) << "it was used again";
    EXPECT_TRUE(got == "value 2" || got == "value 3") << got;
  }
  memory::ItemRef home_item(const std::string& key) {
    return slot(*store_, locations(near_, key).slot[0]).item();
  }

  std::function<void(const fabric::Operation&)> before_ = [](const fabric::Operation& /*operation*/) {};
  std::shared_ptr<MemoryStore> store_ = make_store();
  LocationCache locations_{std::size_t{1} << 16};
  Client near_{*store_};
  Client far_;
};
class InOrder : public ByLocation {
 protected:
  InOrder() : ByLocation(true) {}
};
class InAnyOrder : public ByLocation, public testing::WithParamInterface<std::uint64_t> {
 protected:
  InAnyOrder() : ByLocation(false, GetParam()) {}
};

// Receive: an item where a key's was earlier, whose memory another client uses again for the key's next value
// between the two reads of a get. Expect: the value that was there when the get began, or the next one; not
// the one that the memory had before.
TEST_F(InOrder, ALocationIsReadBehindItsSlot) { expect_no_older_value("key", &Client::get); }
TEST_F(InOrder, LocationsOfABatchAreReadBehindTheirSlots) {
  expect_no_older_value("key", &Client::get_in_batch);
}
TEST_P(InAnyOrder, ALocationIsReadBehindItsSlot) { expect_no_older_value("key", &Client::get); }
TEST_P(InAnyOrder, LocationsOfABatchAreReadBehindTheirSlots) {
  expect_no_older_value("key", &Client::get_in_batch);
}
INSTANTIATE_TEST_SUITE_P(Seeds, InAnyOrder, testing::Range(std::uint64_t{1}, std::uint64_t{9}));

// Receive: a put that goes by where the key's item was, which has been removed since. Right behind the first
// thing that the put expects, that memory becomes the item of another key, as long, with the same filter and
// in the same slot. Expect: the other key keeps its item.
TEST_F(InOrder, APutByALocationLooksAtTheSlotBeforeTheItem) {
  const Locations at = locations(near_, "anchor");
  const auto is_at_anchor = [&](const Locations& its, std::uint64_t hash) {
    return its.slot[0] == at.slot[0] && filter_of(hash) == near_.key_of("anchor").filter();
  };
  const std::string key = find_key(near_, "key", is_at_anchor);
  const std::string other = find_key(near_, "its", is_at_anchor);
  ASSERT_EQ(key.size(), other.size()) << "the test needs keys of one length";
  ASSERT_TRUE(near_.put(key, "value").has_value());
  ASSERT_EQ(far_.get(key).value(), "value");
  const memory::ItemRef place = home_item(key);
  ASSERT_TRUE(near_.remove(key).has_value());
  let_it_forget();
  bool has_expected = false;
  bool is_there = false;
  before_ = [&](const fabric::Operation& operation) {
    if (has_expected && !std::exchange(is_there, true)) {
      ASSERT_TRUE(near_.put(other, "value").has_value());
      ASSERT_EQ(home_item(other), place) << "it is used again";
    }
    has_expected = has_expected || operation.kind == fabric::Operation::Kind::expect;
  };
  ASSERT_TRUE(far_.put(key, "again").has_value());
  ASSERT_TRUE(is_there);
  EXPECT_EQ(near_.get(other).value_or("lost"), "value");
  EXPECT_EQ(near_.get(key).value(), "again");
}

INSTANTIATE_TEST_SUITE_P(CacheBytes, RemoteClient, testing::Values(0, 100'000));

}  // namespace
}  // namespace loch::hash
