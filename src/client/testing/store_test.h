// For tests: a new store in shared memory, which goes with the test.
#pragma once

#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>

#include <loch/loch.h>

namespace loch::fake {

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.huge_pages = false;
    options_.expiry = std::chrono::milliseconds(50);
    url_ = fmt::format("shm://test.{}.{}", ::getpid(),
                       testing::UnitTest::GetInstance()->current_test_info()->name());
    options_.mode = Options::Mode::create;
    auto opened = Store::open(url_, options_);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    store_.emplace(std::move(*opened));
  }
  void TearDown() override {
    store_.reset();
    auto destroyed = Store::destroy(url_);
    EXPECT_TRUE(destroyed.has_value());
  }

  Options options_;
  std::string url_;
  std::optional<Store> store_;
};

}  // namespace loch::fake
