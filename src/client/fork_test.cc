// A process that forks while it has a store open: what the child may do, and what the parent finds.
#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <loch/async.h>
#include <loch/loch.h>

#include "base/fault.h"
#include "client/impl.h"
#include "client/testing/store_test.h"
#include "memory/layout.h"

namespace loch {
namespace {

// A store that is destroyed when the process exits, as programs have them.
std::optional<Store>& global_store() {
  static std::optional<Store> store;
  return store;
}

class ForkTest : public fake::StoreTest {
 protected:
  // The parent has items in several states: put, replaced, removed, and a block that it is cutting.
  void SetUp() override {
    StoreTest::SetUp();
    if (HasFatalFailure()) return;
    put_some(*store_, "before", 50);
    for (int i = 0; i < 20; ++i) {
      const std::string key = fmt::format("before{}", i);
      ASSERT_TRUE(store_->remove(key).has_value());
      expected_.erase(key);
    }
    put_some(*store_, "before", 10);
  }
  void TearDown() override {
    global_store().reset();
    StoreTest::TearDown();
  }

  void put_some(Store& store, const std::string& prefix, int count) {
    for (int i = 0; i < count; ++i) {
      const std::string key = fmt::format("{}{}", prefix, i);
      const std::string value = fmt::format("{} of {}", key, ++puts_);
      const auto put = store.put(key, value);
      ASSERT_TRUE(put.has_value()) << put.error().message();
      expected_.insert_or_assign(key, value);
    }
  }

  // What a child exits with that runs this, and returns from it to be destroyed like any program.
  static int in_child(const std::function<int()>& body, bool exits = true) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int code = body();
      if (exits) std::exit(code);
      ::_exit(code);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "ended with status " << status;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // The parent and another one go on beside each other, on memory that the store has and memory that it gets.
  void expect_in_order(Store& parent, std::uint64_t sessions = 2) {
    auto other = Store::open(url_);
    ASSERT_TRUE(other.has_value()) << other.error().message();
    EXPECT_EQ(other->info()->clients, sessions) << "the parent's are there";
    for (int round = 0; round < 20; ++round) {
      put_some(parent, fmt::format("parent{}.", round), 10);
      put_some(*other, fmt::format("other{}.", round), 10);
    }
    for (const auto& [key, value] : expected_) {
      EXPECT_EQ(parent.get(key).value_or("none"), value) << key;
      EXPECT_EQ(other->get(key).value_or("none"), value) << key;
    }
    const auto report = other->check();
    ASSERT_TRUE(report.has_value()) << report.error().message();
    for (const std::string& finding : report->findings) ADD_FAILURE() << finding;
    EXPECT_EQ(report->items_unaccounted, 0U);
  }

  // As the registry says it of this thread's session.
  std::uint64_t pinned_since() {
    auto client = store_->impl().client();
    EXPECT_TRUE(client.has_value());
    memory::Session& session = *(*client)->attachment().nodes().front().session;
    const std::uint64_t at = memory::registry_offset + session.client() * sizeof(memory::ClientEntry) +
                             offsetof(memory::ClientEntry, pin_start_ns);
    return fabric::load_word(session.endpoint().mapped({memory::control_region, at}, sizeof at));
  }

  std::map<std::string, std::string> expected_;
  int puts_ = 0;
};

bool is_refusal(const auto& result) {
  return !result && result.error().code == Errc::unavailable &&
         result.error().detail.contains("opened before a fork");
}

// Receive: a child that ends by exit(), which destroys the store that it got from its parent.
TEST_F(ForkTest, AChildThatExitsDoesNothingToTheParentsStore) {
  global_store() = std::move(store_);
  EXPECT_EQ(in_child([] { return 0; }), 0);
  expect_in_order(*global_store());
}

// Receive: a child that destroys all that it got, among it what its parent's operations stand in.
TEST_F(ForkTest, AChildThatDestroysTheStoreDoesNothingToIt) {
  std::optional<Async> async = Async::open(*store_).value();
  ASSERT_TRUE(async->run(async->put("async", "1")).has_value());
  std::optional<View> view = store_->view("before49").value();
  const std::uint64_t since = pinned_since();
  EXPECT_NE(since, 0U);
  const int code = in_child(
      [&] {
        view.reset();
        async.reset();
        store_.reset();
        return 0;
      },
      false);
  EXPECT_EQ(code, 0);
  EXPECT_EQ(pinned_since(), since) << "the parent's view is there still";
  EXPECT_EQ(view->value(), expected_.at("before49"));
  view.reset();
  EXPECT_EQ(pinned_since(), 0U);
  ASSERT_TRUE(async->run(async->put("async", "2")).has_value());
  EXPECT_EQ(async->run(async->get("async")).value_or("none"), "2");
  async.reset();
  ASSERT_TRUE(store_->remove("async").has_value());
  expect_in_order(*store_, 3);
}

// Receive: every call, in the child, of a store that the parent used just now. Expect: each says what to do;
// what the child opens itself works.
TEST_F(ForkTest, CallsOfTheParentsStoreAreRefusedInTheChild) {
  ASSERT_TRUE(store_->get("before49").has_value());
  auto async = Async::open(*store_).value();
  const int code = in_child([&] {
    std::string into(expected_.at("before49").size(), ' ');
    Store& store = *store_;
    if (!is_refusal(store.get("before49", into))) return 1;
    if (!is_refusal(store.get("before49"))) return 2;
    if (!is_refusal(store.read("before49")) || !is_refusal(store.exists("before49"))) return 3;
    if (!is_refusal(store.view("before49"))) return 4;
    if (!is_refusal(store.put("before49", "child")) || !is_refusal(store.insert("child", "1"))) return 5;
    if (!is_refusal(store.replace("before49", "child", {})) || !is_refusal(store.remove("before49")))
      return 6;
    std::array<Lookup, 2> lookups{{{.key = "before48", .value = {}}, {.key = "before49", .value = {}}}};
    store.multi_get(lookups);
    std::array<Assignment, 1> assignments{{{.key = "before49", .value = "child"}}};
    store.multi_put(assignments);
    if (!is_refusal(lookups[0].result) || !is_refusal(lookups[1].result)) return 7;
    std::array<Removal, 1> removals{{{.key = "before49"}}};
    store.multi_remove(removals);
    if (!is_refusal(assignments[0].result) || !is_refusal(removals[0].result)) return 8;
    if (!is_refusal(store.for_each([](const Entry&) { return true; })) || !is_refusal(store.count()))
      return 9;
    if (!is_refusal(store.info()) || !is_refusal(store.collect()) || !is_refusal(store.check())) return 10;
    if (store.stats()[Counter::get_hit] != 0) return 11;
    if (!is_refusal(Async::open(store))) return 12;
    if (!is_refusal(async.run(async.get("before49"))) || !is_refusal(async.run(async.read("before49"))))
      return 13;
    if (!is_refusal(async.run(async.put("before49", "child"))) ||
        !is_refusal(async.run(async.insert("child", "1"))) ||
        !is_refusal(async.run(async.replace("before49", "child", {}))) ||
        !is_refusal(async.run(async.remove("before49"))) || !is_refusal(async.run(async.exists("before49"))))
      return 14;
    async.run(async.multi_get(lookups));
    async.run(async.multi_put(assignments));
    removals[0].result = {};
    async.run(async.multi_remove(removals));
    if (!is_refusal(lookups[0].result) || !is_refusal(assignments[0].result) ||
        !is_refusal(removals[0].result))
      return 15;

    auto own = Store::open(url_);
    if (!own || own->get("before49").value_or("none") != expected_.at("before49")) return 16;
    return own->put("from the child", "1") ? 0 : 17;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(store_->get("from the child").value_or("none"), "1");
  for (const auto& [key, value] : expected_) EXPECT_EQ(store_->get(key).value_or("none"), value) << key;
}

// Receive: a step, in the child, for tasks of an Async that the parent has. Expect: the child ends, and what
// is the parent's goes on.
TEST_F(ForkTest, AStepOfTheParentsAsyncEndsTheChild) {
  auto async = Async::open(*store_).value();
  const pid_t child = ::fork();
  if (child == 0) {
    async.step();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "it made a step";
  EXPECT_EQ(async.run(async.get("before49")).value_or("none"), expected_.at("before49"));
}

// Receive: a visit that forks, in the midst of an operation, and goes on in both. Expect: the child's walk
// ends with an error, and the parent's as if nothing had been.
TEST_F(ForkTest, AWalkEndsInTheChildAndGoesOnInTheParent) {
  pid_t child = -1;
  std::map<std::string, std::string> seen;
  const auto walked = store_->for_each([&](const Entry& entry) {
    if (child < 0) child = ::fork();
    seen.emplace(entry.key, entry.value);
    return true;
  });
  if (child == 0) ::_exit(is_refusal(walked) && seen.size() == 1 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(walked.has_value());
  EXPECT_EQ(seen, expected_);
  expect_in_order(*store_);
}

// Receive: an update whose change forks, and goes on in both. Expect: it is refused in the child, and done in
// the parent.
TEST_F(ForkTest, AnUpdateIsRefusedInTheChildAndDoneInTheParent) {
  pid_t child = -1;
  const auto updated = store_->update("before0", [&](auto) {
    if (child < 0) child = ::fork();
    return std::optional<std::string>("changed");
  });
  if (child == 0) ::_exit(is_refusal(updated) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(updated.has_value());
  expected_["before0"] = "changed";
  expect_in_order(*store_);
}

std::array<int, 2> begins{};
std::array<int, 2> ends{};

void fork_who_lives_on() {
  if (::fork() != 0) return;
  char byte = 0;
  ::close(ends[1]);
  (void)!::write(begins[1], &byte, 1);
  (void)!::read(ends[0], &byte, 1);  // until the test is over
  ::_exit(0);
}

class AChildThatLivesOn : public ForkTest, public testing::WithParamInterface<const char*> {};

// Receive: a parent that ends while its child lives on, which it had when it had put something, or was about
// to open the store, as another thread of it may. Expect: its sessions count as over.
TEST_P(AChildThatLivesOn, DoesNotKeepItsParentsSessions) {
  store_.reset();
  ASSERT_EQ(::pipe(begins.data()), 0);
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    base::set_fault_hook([](const char* point) {
      if (std::string_view(point) == GetParam()) fork_who_lives_on();
    });
    auto store = Store::open(url_);
    if (!store || !store->put("k", "v")) ::_exit(1);
    ::_exit(0);  // as if it were killed
  }
  int status = 0;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  ASSERT_EQ(status, 0);
  ::close(begins[1]);
  char byte = 1;
  ASSERT_EQ(::read(begins[0], &byte, 1), 1);
  auto mine = Store::open(url_);
  ASSERT_TRUE(mine.has_value()) << mine.error().message();
  EXPECT_EQ(mine->info()->clients, 1U);
  EXPECT_EQ(mine->get("k").value_or("none"), "v");
  for (const int end : {begins[0], ends[0], ends[1]}) ::close(end);
  put_some(*mine, "after", 50);
  EXPECT_EQ(mine->collect()->sessions_reaped, 1U);
  const auto report = mine->check();
  EXPECT_EQ(report->findings, std::vector<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Forks, AChildThatLivesOn, testing::Values("session.store_found", "put.after_home"));

}  // namespace
}  // namespace loch
