// Receive: values for which this process has no heap memory, of a store on its own host and on another one.
// Expect: an error for the call, and all as ever when there is memory again.
#include <array>
#include <cstddef>
#include <gtest/gtest.h>
#include <string>

#include <loch/loch.h>

#include "base/testing/allocations.h"
#include "client/testing/far.h"
#include "client/testing/store_test.h"

namespace loch {
namespace {

constexpr std::size_t value_bytes = std::size_t{8} << 20;

// While it lives, there is none for a value.
struct NoMemory {
  base::fake::NoLongerThan less{value_bytes / 2};
};

void expect_no_space(const char* call, const auto& answer) {
  ASSERT_FALSE(answer.has_value()) << call;
  EXPECT_EQ(answer.error().code, Errc::no_space) << call << ": " << answer.error().message();
}

using NoHeap = fake::StoreTest;

TEST_F(NoHeap, AReadHereSaysSo) {
  const std::string value(value_bytes, 'v');
  ASSERT_TRUE(store_->put("key", value).has_value());
  std::array<Lookup, 1> lookups{{{.key = "key", .value = {}}}};
  {
    const NoMemory none;
    expect_no_space("get", store_->get("key"));
    std::string into;
    expect_no_space("get into a string", store_->get("key", into));
    expect_no_space("read", store_->read("key"));
    store_->multi_get(lookups);
    expect_no_space("multi_get", lookups[0].result);
    EXPECT_TRUE(store_->exists("key").value_or(false));
    const auto view = store_->view("key");
    EXPECT_TRUE(view.has_value() && view->value() == value) << "it takes none";
  }
  EXPECT_TRUE(store_->get("key").value_or("none") == value);
}

using NoHeapFar = client::fake::Far;

TEST_F(NoHeapFar, AReadOfAnotherHostSaysSo) {
  const std::string value(value_bytes, 'v');
  ASSERT_TRUE(near_.put("key", value).has_value());
  // First of what nothing is known of, then of what is known.
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    std::array<Lookup, 1> lookups{{{.key = "key", .value = {}}}};
    {
      const NoMemory none;
      std::string into;
      expect_no_space("get", far_->run(far_->get("key", &into)));
      expect_no_space("read", far_->run(far_->read("key")));
      expect_no_space("view", far_->run(far_->find("key")));
      far_->run(far_->multi_get(lookups));
      expect_no_space("multi_get", lookups[0].result);
      expect_no_space("check", far_->run(far_->check()));
    }
    EXPECT_FALSE(far_->is_lost());
    std::string into;
    const auto got = far_->run(far_->get("key", &into));
    EXPECT_TRUE(got.has_value() && into == value);
  }
}

}  // namespace
}  // namespace loch
