// For tests: a new store in shared memory, which goes with the test.
#pragma once

#include <chrono>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <utility>

#include <loch/loch.h>

#include "lab/temp_folder.h"

namespace loch::fake {

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.huge_pages = false;
    options_.expiry = std::chrono::milliseconds(50);
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

  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  const std::string url_ = "shm://" + temp_.path() + "/store";
  Options options_;
  std::optional<Store> store_;
};

}  // namespace loch::fake
