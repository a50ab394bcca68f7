// Operations that others are always in the way of: how they pause between their tries, and when they end. In
// the time of a test, which nothing but these pauses lets pass.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/testing/posting_fabric.h"
#include "hash/pending_insert.h"
#include "hash/testing/test_table.h"

namespace loch::hash {
namespace {

using fake::Client;

constexpr base::Nanos timeout_ns = 50 * base::millisecond_ns;
// Of the pauses: the n-th is drawn below twice what the one before it was drawn below, up to this.
constexpr base::Nanos pause_max_ns = base::microsecond_ns << 10;
constexpr unsigned tries_without_pause = 10;

// A client to which something happens right before each of its operations of one kind on the index; and when
// each of its tries was.
class Hindered {
 public:
  using Kind = fabric::Operation::Kind;

  Hindered(const std::shared_ptr<fake::MemoryStore>& store, Kind kind, std::function<void()> hinder,
           base::Nanos timeout = timeout_ns)
      : client_(*store,
                std::make_shared<fabric::fake::PostingFabric>(
                    store, fabric::fake::PostingOptions{
                               .mapped = [](auto region) { return region != memory::index_region; },
                               .before =
                                   [this, store = store.get(), kind, hinder](const fabric::Operation& one) {
                                     if (one.at.region != memory::index_region || one.kind != kind) return;
                                     times_.push_back(store->now());
                                     hinder();
                                   }}),
                {.timeout_ns = timeout}) {}

  Client& client() { return client_; }
  // Between operations that came after one another: of each retry that paused, one.
  [[nodiscard]] std::vector<base::Nanos> pauses() const {
    std::vector<base::Nanos> all;
    for (std::size_t i = 1; i < times_.size(); ++i) {
      if (times_[i] != times_[i - 1]) all.push_back(times_[i] - times_[i - 1]);
    }
    return all;
  }

 private:
  std::vector<base::Nanos> times_;
  Client client_;
};

void expect_timed_out(const Error& error, base::Nanos took, bool changes) {
  EXPECT_EQ(error.code, Errc::timed_out) << error.message();
  EXPECT_EQ(error.detail.find("may or may not have happened") != std::string::npos, changes) << error.detail;
  EXPECT_GE(took, timeout_ns);
  EXPECT_LE(took, timeout_ns + pause_max_ns) << "no more than the pause in which the deadline came";
}

// Retries without a pause first; then pauses that are drawn below 2, 4, 8 us and so on, up to 1,024.
void expect_back_off(Hindered& hindered) {
  const std::vector<base::Nanos> pauses = hindered.pauses();
  constexpr std::size_t rising = 10;
  ASSERT_GT(pauses.size(), rising + 40);
  const std::uint64_t retries = hindered.client().counted(Counter::backoffs);
  EXPECT_GE(retries, tries_without_pause + pauses.size());
  EXPECT_LE(retries, tries_without_pause + pauses.size() + 2) << "and the last, which found that it was over";
  base::Nanos sum_of_late = 0;
  for (std::size_t i = 0; i < pauses.size(); ++i) {
    EXPECT_LE(pauses[i], base::microsecond_ns << std::min(i + 1, rising)) << "pause " << i;
    if (i >= rising) sum_of_late += pauses[i];
  }
  const base::Nanos mean = sum_of_late / (pauses.size() - rising);
  EXPECT_GT(mean, pause_max_ns / 4);
  EXPECT_LT(mean, pause_max_ns * 3 / 4);
}

class Deadline : public testing::Test {
 protected:
  std::shared_ptr<fake::MemoryStore> store_ = fake::make_store();
  Client other_{*store_};
};

// Receive: a key whose slots change whenever they are looked at. Expect: the get never takes that for its
// absence, backs off, and ends at its deadline.
TEST_F(Deadline, AGetThatNeverSeesTheSameWordsTwice) {
  const SlotNumber home = fake::locations(other_, "key").slot[0];
  Hindered hindered(store_, Hindered::Kind::read, [&] {
    fake::set_slot(*store_, home, SlotWord::empty(other_.session().next_nonce(), first_level));
  });
  const base::Nanos start = store_->now();
  const auto got = hindered.client().get("key");
  ASSERT_FALSE(got.has_value());
  expect_timed_out(got.error(), store_->now() - start, false);
  expect_back_off(hindered);
}

// Receive: another's put of the key before each compare-swap of a put, and of a remove. Expect: likewise; and
// the key is the other's.
TEST_F(Deadline, AWriteThatIsAlwaysTooLate) {
  for (const bool removes : {false, true}) {
    SCOPED_TRACE(removes ? "remove" : "put");
    ASSERT_TRUE(other_.put("key", "the other's").has_value());
    Hindered hindered(store_, Hindered::Kind::compare_swap,
                      [&] { ASSERT_TRUE(other_.put("key", "the other's").has_value()); });
    const base::Nanos start = store_->now();
    Result<void> done;
    if (removes) {
      done = hindered.client().remove("key");
    } else if (const auto put = hindered.client().put("key", "mine"); !put) {
      done = std::unexpected(put.error());
    }
    ASSERT_FALSE(done.has_value());
    expect_timed_out(done.error(), store_->now() - start, true);
    expect_back_off(hindered);
    EXPECT_EQ(other_.get("key").value(), "the other's");
  }
}

// Receive: a key's home that is taken whenever a put looks for a place, and empty whenever it has one
// elsewhere. Expect: it takes that back again and again, until its item can not be told apart any more; then
// it says that it did not happen.
TEST_F(Deadline, APutThatIsWithdrawnTooOften) {
  const Locations at = fake::locations(other_, "key");
  fake::occupy(other_, at.slot[0]);
  const SlotWord taken = fake::slot(*store_, at.slot[0]);
  const SlotWord empty = SlotWord::empty(other_.session().next_nonce(), first_level);
  const auto hinder = [&] {
    const bool has_place = fake::slot(*store_, at.slot[1]).is(SlotType::pending);
    fake::set_slot(*store_, at.slot[0], has_place ? empty : taken);
  };
  Hindered hindered(store_, Hindered::Kind::read, hinder, 10 * base::second_ns);
  const auto put = hindered.client().put("key", "value");
  ASSERT_FALSE(put.has_value());
  EXPECT_EQ(put.error().code, Errc::timed_out) << put.error().message();
  EXPECT_NE(put.error().detail.find("it did not happen"), std::string::npos) << put.error().detail;
  EXPECT_EQ(hindered.client().counted(Counter::pending_withdrawn), tag_max + 1U);
  EXPECT_EQ(other_.get("key").error().code, Errc::not_found);
}

// Receive: a step that the host says did not happen, of a put whose item stands as pending. Expect: the put
// says of itself only that it may yet happen.
TEST(PendingInsert, OfWhichAStepDidNotHappenMayYetHappen) {
  const Error step{.code = Errc::moved, .operation = "fabric", .detail = "there: why; it did not happen"};
  const Error none_pending = PendingInsert::error_of(step, {});
  EXPECT_EQ(none_pending.code, Errc::moved);
  EXPECT_EQ(none_pending.detail, step.detail);
  NewItem pending;
  pending.is_pending = true;
  const Error error = PendingInsert::error_of(step, pending);
  EXPECT_EQ(error.code, Errc::unavailable);
  EXPECT_EQ(error.detail,
            "the key's put had begun, and may or may not happen; of its next step: " + step.detail);
}

}  // namespace
}  // namespace loch::hash
