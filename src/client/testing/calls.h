// The store's calls, as tests of any way to a store: written against the public headers alone
// (calls_*test.cc). A test binary instantiates them with the ways that it has.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <unistd.h>
#include <utility>

#include <loch/async.h>
#include <loch/loch.h>

#include "lab/temp_folder.h"

namespace loch::calls {

// A new store, in a folder of its own, and the way that clients have to it.
class World {
 public:
  static constexpr const char* store_name = "store";

  explicit World(Atomics atomics = Atomics::processor) {
    here_.directory = temp_.path();
    here_.huge_pages = false;
    here_.expiry = std::chrono::milliseconds(50);
    here_.atomics = atomics;
    const auto created = Store::create(url_here(), here_);
    EXPECT_TRUE(created.has_value()) << created.error().message();
  }
  virtual ~World() {
    EXPECT_TRUE(Store::destroy(url_here(), here_).has_value());
    EXPECT_EQ(::rmdir(here_.directory.c_str()), 0) << "something is left";
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // As one more process does.
  virtual Result<Store> open() = 0;
  // Where the store is, as its Info says it.
  [[nodiscard]] virtual std::string location() const = 0;

 protected:
  static std::string url_here() { return std::string("shm://") + store_name; }
  [[nodiscard]] const Options& here() const { return here_; }

 private:
  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  Options here_;
};

struct Way {
  const char* name;
  std::function<std::unique_ptr<World>()> make;
  // Where it is slow:
  std::size_t times_fewer = 1;                        // so many fewer operations, where a test does many
  std::size_t longest_value_bytes = value_bytes_max;  // of those that are tried
};
// For lists of tests, which would show the bytes of it.
inline void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
inline std::string name_of(const testing::TestParamInfo<Way>& info) { return info.param.name; }

class Calls : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    world_ = GetParam().make();
    open(&store_);
  }
  void open(std::optional<Store>* store) {
    auto opened = world_->open();
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    store->emplace(std::move(*opened));
  }

  static std::size_t few(std::size_t many, std::size_t least = 0) {
    return std::max(many / GetParam().times_fewer, least);
  }
  // From one to the next where a test goes through all lengths. Odd, so that those that it comes to end
  // anywhere in a word.
  static std::size_t length_step() { return GetParam().times_fewer < 10 ? 1 : 11; }

  std::unique_ptr<World> world_;
  std::optional<Store> store_;
};

// Of the awaitable form.
class AsyncCalls : public Calls {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Calls::SetUp());
    auto opened = Async::open(*store_);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    async_.emplace(std::move(*opened));
  }

  std::optional<Async> async_;
};

}  // namespace loch::calls
