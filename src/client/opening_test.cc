// Opening a store with right and wrong options, and a store that is full.
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <loch/async.h>
#include <loch/loch.h>

#include "lab/temp_folder.h"

namespace loch {
namespace {

using std::chrono::milliseconds;

class OpenTest : public testing::Test {
 protected:
  OpenTest() {
    options_.huge_pages = false;
    options_.expiry = milliseconds(50);
  }

  [[nodiscard]] Errc error_of(const Options& options) const { return error_of(options, url_); }
  static Errc error_of(const Options& options, const std::string& url) {
    const auto opened = Store::open(url, options);
    EXPECT_FALSE(opened.has_value());
    if (opened) return Errc{};
    EXPECT_FALSE(opened.error().detail.empty());
    return opened.error().code;
  }

  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  const std::string url_ = "shm://" + temp_.path() + "/store";
  Options options_;
};

TEST_F(OpenTest, AbsurdOptionsAreErrors) {
  const auto with = [this](auto change) {
    Options options = options_;
    change(options);
    return error_of(options);
  };
  EXPECT_EQ(with([](Options& o) { o.candidates = 0; }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.candidates = 1; }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.candidates = 5; }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.max_bytes = 1; }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.expiry = milliseconds(0); }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.expiry = milliseconds(49); }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.expiry = milliseconds(60'001); }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.expiry = milliseconds(-5); }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.timeout = milliseconds(0); }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.timeout = milliseconds::max(); }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.timeout = milliseconds::min(); }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.file_mode = 0777; }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.file_mode = 0; }), Errc::invalid_argument);
  EXPECT_EQ(with([](Options& o) { o.group = "no such group"; }), Errc::invalid_argument);
  options_.directory = "/no/such/folder";
  EXPECT_EQ(error_of(options_, "shm://store"), Errc::not_found);
}

// Receive: a name alone. Expect: the store is looked for in the usual folder.
TEST_F(OpenTest, AStoreIsInMemoryUnlessTold) {
  options_.mode = Options::Mode::attach;
  const auto opened = Store::open(fmt::format("shm://absent.{}", ::getpid()), options_);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Errc::not_found);
  EXPECT_TRUE(opened.error().detail.ends_with(" in /dev/shm")) << opened.error().detail;
}

TEST_F(OpenTest, ErrorsNameTheirOperation) {
  options_.file_mode = 0777;
  EXPECT_STREQ(Store::open(url_, options_).error().operation, "open");
  EXPECT_STREQ(Store::create(url_, options_).error().operation, "create");
}

TEST_F(OpenTest, WrongUrlsAreErrors) {
  for (const std::string url : {"", "x", "shm:", "shm://", "shm://a b", "shm://../x", "shm://.hidden",
                                "shm://relative/x", "shm:///dev/shm/", "shm://x\ny"}) {
    const auto opened = Store::open(url, options_);
    ASSERT_FALSE(opened.has_value()) << url;
    EXPECT_EQ(opened.error().code, Errc::invalid_argument) << url;
    EXPECT_FALSE(Store::destroy(url).has_value()) << url;
  }
  EXPECT_FALSE(Store::open("shm://" + std::string(65, 'a'), options_).has_value());
}

TEST_F(OpenTest, ModesAttachAndCreate) {
  options_.mode = Options::Mode::attach;
  EXPECT_EQ(error_of(options_), Errc::not_found);
  options_.mode = Options::Mode::create;
  const auto created = Store::open(url_, options_);
  ASSERT_TRUE(created.has_value()) << created.error().message();
  EXPECT_EQ(error_of(options_), Errc::exists);
  options_.mode = Options::Mode::attach;
  EXPECT_TRUE(Store::open(url_, options_).has_value());
  options_.mode = Options::Mode::attach_or_create;
  EXPECT_TRUE(Store::open(url_, options_).has_value());
  ASSERT_TRUE(Store::destroy(url_).has_value());
  EXPECT_EQ(Store::destroy(url_).error().code, Errc::not_found);
  options_.mode = Options::Mode::attach;
  EXPECT_EQ(error_of(options_), Errc::not_found);
}

TEST_F(OpenTest, WhoOnlyReadsNeitherCreatesNorDestroys) {
  options_.read_only = true;
  const auto created = Store::create(url_, options_);
  ASSERT_FALSE(created.has_value());
  EXPECT_EQ(created.error().code, Errc::permission);
  EXPECT_EQ(Store::destroy(url_, options_).error().code, Errc::permission);
  options_.read_only = false;
  ASSERT_TRUE(Store::create(url_, options_).has_value());
  options_.read_only = true;
  EXPECT_EQ(Store::destroy(url_, options_).error().code, Errc::permission);
  EXPECT_TRUE(Store::open(url_, options_).has_value());
}

TEST_F(OpenTest, AnotherGeometryIsIncompatible) {
  options_.candidates = 4;
  options_.max_bytes = 32U << 20;
  ASSERT_TRUE(Store::open(url_, options_).has_value());
  EXPECT_TRUE(Store::open(url_, options_).has_value());
  EXPECT_TRUE(Store::open(url_).has_value()) << "no geometry asked for";
  const auto with = [this](auto change) {
    Options options = options_;
    change(options);
    return error_of(options);
  };
  EXPECT_EQ(with([](Options& o) { o.candidates = 3; }), Errc::incompatible);
  EXPECT_EQ(with([](Options& o) { o.expiry = milliseconds(51); }), Errc::incompatible);
  EXPECT_EQ(with([](Options& o) { o.max_bytes = 33U << 20; }), Errc::incompatible);
  EXPECT_EQ(Store::open(url_)->info()->candidates, 4U);
}

TEST_F(OpenTest, AnotherFolder) {
  const auto another = lab::TempFolder::make("/tmp").value();
  const std::string& folder = another.path();
  options_.directory = folder;
  {
    auto store = Store::open("shm://name", options_);
    ASSERT_TRUE(store.has_value()) << store.error().message();
    ASSERT_TRUE(store->put("k", "v").has_value());
    auto same = Store::open(fmt::format("shm://{}/name", folder));
    ASSERT_TRUE(same.has_value()) << same.error().message();
    EXPECT_EQ(same->get("k").value(), "v");
    EXPECT_EQ(Store::list(options_).value(), std::vector<std::string>{"name"});
  }
  EXPECT_TRUE(Store::destroy("shm://name", options_).has_value());
  EXPECT_TRUE(Store::list(options_)->empty());
  EXPECT_EQ(::rmdir(folder.c_str()), 0) << "nothing is left behind";
}

TEST_F(OpenTest, ADestroyedStoreGoesOnForThoseWhoHaveIt) {
  auto store = Store::open(url_, options_);
  ASSERT_TRUE(store->put("k", "v").has_value());
  ASSERT_TRUE(Store::destroy(url_).has_value());
  EXPECT_EQ(store->get("k").value(), "v");
  EXPECT_TRUE(store->put("k", "w").has_value());
  EXPECT_EQ(store->get("k").value(), "w");
  auto fresh = Store::open(url_, options_);
  ASSERT_TRUE(fresh.has_value());
  EXPECT_EQ(fresh->get("k").error().code, Errc::not_found) << "another store of the same name";
}

// ---- full

TEST_F(OpenTest, AFullStoreReadsAndRemovesAndThenTakesPutsAgain) {
  options_.max_bytes = 8U << 20;
  auto store = Store::open(url_, options_);
  ASSERT_TRUE(store.has_value());
  for (const std::size_t length : {std::size_t{50}, std::size_t{10'000}, std::size_t{600'000}}) {
    SCOPED_TRACE(length);
    const std::string value(length, 'x');
    std::vector<std::string> keys;
    for (;;) {
      std::string key = fmt::format("key{}", keys.size());
      const auto put = store->put(key, value);
      if (!put) {
        EXPECT_EQ(put.error().code, Errc::no_space) << put.error().message();
        EXPECT_STREQ(put.error().operation, "put");
        EXPECT_NE(put.error().detail.find(store->info()->directory), std::string::npos)
            << put.error().message();
        break;
      }
      keys.push_back(std::move(key));
      ASSERT_LT(keys.size() * length, 20U << 20);
    }
    EXPECT_GT(keys.size(), 5U);
    const std::string another = fmt::format("key{}", keys.size());
    std::array<Assignment, 1> together{{{.key = another, .value = value}}};
    store->multi_put(together);
    ASSERT_FALSE(together[0].result.has_value());
    EXPECT_EQ(together[0].result.error().code, Errc::no_space) << together[0].result.error().message();
    EXPECT_STREQ(together[0].result.error().operation, "put");
    for (const std::string& key : keys) ASSERT_EQ(store->get(key)->size(), length);
    EXPECT_EQ(store->count().value(), keys.size());
    EXPECT_TRUE(store->for_each([](const Entry&) { return true; }).has_value());
    EXPECT_LE(store->info()->data_bytes + store->info()->index_bytes, 8U << 20);
    for (const std::string& key : keys) {
      const auto removed = store->remove(key);
      ASSERT_TRUE(removed.has_value()) << removed.error().message();
    }
    // The memory rests for an expiry; then there is room again, for as much as before.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (const std::string& key : keys) {
      Result<Version> put = store->put(key, value);
      while (!put && put.error().code == Errc::no_space && std::chrono::steady_clock::now() < until) {
        put = store->put(key, value);
      }
      ASSERT_TRUE(put.has_value()) << key << " of " << keys.size() << ": " << put.error().message();
    }
    for (const std::string& key : keys) [[maybe_unused]]
      const auto removed = store->remove(key);
    const auto collected_by = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (store->info()->blocks_free + 2 < store->info()->blocks &&
           std::chrono::steady_clock::now() < collected_by) {
      ASSERT_TRUE(store->collect().has_value());
    }
    EXPECT_GE(store->info()->blocks_free + 2, store->info()->blocks);
  }
}

// Receive: inserts and replaces of a session that gets no memory, by both forms of the calls. Expect: where
// the condition refuses them, they say so, and not that the store is full.
TEST_F(OpenTest, OnAFullStoreAConditionIsLookedAtAllTheSame) {
  options_.max_bytes = 8U << 20;
  auto store = Store::open(url_, options_);
  ASSERT_TRUE(store.has_value());
  const std::string value(10'000, 'x');
  // Of another item, so that nothing was unlinked whose memory could be had.
  const Version another = store->put("elsewhere", value).value();
  const Version current = store->put("key", value).value();
  Result<Version> filling{};
  for (int i = 0; filling && i < 2'000; ++i) filling = store->put(fmt::format("more{}", i), value);
  ASSERT_FALSE(filling.has_value());
  ASSERT_EQ(filling.error().code, Errc::no_space) << filling.error().message();

  auto other = Store::open(url_, options_);
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->insert("new", value).error().code, Errc::no_space);
  EXPECT_EQ(other->replace("key", value, current).error().code, Errc::no_space);
  EXPECT_EQ(other->insert("key", value).error().code, Errc::exists);
  EXPECT_EQ(other->replace("key", value, another).error().code, Errc::changed);
  EXPECT_EQ(other->replace("absent", value, another).error().code, Errc::not_found);
  EXPECT_STREQ(other->insert("key", value).error().operation, "insert");
  EXPECT_EQ(other->stats()[Counter::insert_exists], 2U);
  EXPECT_EQ(other->stats()[Counter::replace_changed], 1U);

  auto async = Async::open(*other).value();
  EXPECT_EQ(async.run(async.insert("key", value)).error().code, Errc::exists);
  EXPECT_EQ(async.run(async.replace("key", value, another)).error().code, Errc::changed);
  EXPECT_EQ(async.run(async.replace("absent", value, another)).error().code, Errc::not_found);
}

// Receive: puts of new keys when all memory is of items whose time to live is over. Expect: they get it, and
// nobody has to collect it.
TEST_F(OpenTest, AFullStoreTakesTheMemoryOfWhatHasExpired) {
  options_.max_bytes = 8U << 20;
  const std::string value(10'000, 'x');
  std::optional<Store> store;
  std::size_t count = 0;
  Result<Version> put{};
  // If the first items expire before it is full, another one is filled with items that live twice as long.
  milliseconds a_while(2'000);
  for (;; a_while *= 2) {
    ASSERT_LE(a_while, milliseconds(32'000)) << "it does not become full";
    store.emplace(Store::open(url_, options_).value());
    put = Version{};
    for (count = 0; count < 1'000; ++count) {
      put = store->put(fmt::format("old{}", count), value, {.time_to_live = a_while});
      if (!put) break;
    }
    if (!put) break;
    ASSERT_TRUE(Store::destroy(url_).has_value());
  }
  ASSERT_EQ(put.error().code, Errc::no_space) << put.error().message();
  std::this_thread::sleep_for(a_while);
  for (std::size_t i = 0; i < count / 2; ++i) {
    put = store->put(fmt::format("new{}", i), value);
    ASSERT_TRUE(put.has_value()) << i << " of " << count << ": " << put.error().message();
  }
  std::vector<std::string> keys;
  for (std::size_t i = count / 2; i < count; ++i) keys.push_back(fmt::format("new{}", i));
  std::vector<Assignment> assignments;
  for (const std::string& key : keys) assignments.push_back({.key = key, .value = value});
  store->multi_put(assignments);
  for (const Assignment& one : assignments)
    ASSERT_TRUE(one.result.has_value()) << one.key << ": " << one.result.error().message();
  EXPECT_EQ(store->count().value(), count);
}

// The thread sanitizer leaves too little address space for a thousand mappings of a store.
#if !__has_feature(thread_sanitizer)
TEST_F(OpenTest, MoreSessionsThanThereAreNumbersForIsAnError) {
  auto store = Store::open(url_, options_);
  ASSERT_TRUE(store.has_value());
  std::vector<Store> others;
  std::optional<Error> error;
  while (!error && others.size() < 1'100) {
    auto opened = Store::open(url_, options_);
    if (opened) {
      others.push_back(std::move(*opened));
    } else {
      error = opened.error();
    }
  }
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, Errc::no_space);
  EXPECT_EQ(others.size(), 1'022U);
  EXPECT_TRUE(store->put("k", "v").has_value());
  others.pop_back();
  EXPECT_TRUE(Store::open(url_, options_).has_value());
}
#endif

}  // namespace
}  // namespace loch
