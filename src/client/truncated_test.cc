// Hostile memory: files of a store that somebody truncates while a process that survives that has it open.
// Expect: of every call Errc::corrupt once it came to what was cut off, and nothing else of all the others.
// Each test is a child of its own, since a process keeps what it does about SIGBUS.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <loch/async.h>
#include <loch/loch.h>
#include <loch/truncation.h>

#include "base/testing/in_child.h"
#include "lab/temp_folder.h"
#include "memory/layout.h"

namespace loch {
namespace {

using base::fake::in_child;
using namespace std::string_view_literals;

constexpr std::string_view key = "a key of a pair";
constexpr std::string_view value = "its value";

class Truncated : public testing::Test {
 protected:
  Truncated() {
    options_.directory = temp_.path();
    options_.huge_pages = false;
  }

  // A store with items, of which this process has read some and written some.
  struct Opened {
    Store store;
    Async async;
  };
  [[nodiscard]] Opened opened(const std::string& name) const {
    Store made = Store::open("shm://" + name, options_).value();
    Async async = Async::open(made).value();
    EXPECT_TRUE(async.run(async.put(key, value)).has_value());
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(made.put(fmt::format("{}", i), "one of many").has_value());
    EXPECT_TRUE(made.put(key, value).has_value());
    std::string into(value.size(), ' ');
    EXPECT_TRUE(made.get(key, into).has_value());
    EXPECT_TRUE(async.run(async.get(key)).has_value());
    return {.store = std::move(made), .async = std::move(async)};
  }
  void truncate(const std::string& name, fabric::RegionId region) const {
    std::filesystem::resize_file(fmt::format("{}/loch.{}/region.{}", options_.directory, name, region), 0);
  }

  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  Options options_;
};

// One call of each kind; of several keys, what became of the first.
struct Call {
  std::string_view name;
  std::function<Result<void>(Store&, Async&)> call;
};

template <class T>
Result<void> without_value(Result<T> result) {
  if (!result) return std::unexpected(std::move(result.error()));
  return {};
}

std::vector<Call> calls() {
  const auto lookups = [] {
    return std::array<Lookup, 2>{{{.key = key, .value = {}}, {.key = "1", .value = {}}}};
  };
  const auto puts = [] {
    return std::array<Assignment, 2>{{{.key = key, .value = value}, {.key = "1", .value = value}}};
  };
  return {
      {"get", [](Store& s, Async&) { return without_value(s.get(key)); }},
      {"get into",
       [](Store& s, Async&) {
         std::string into(value.size(), ' ');
         return s.get(key, into);
       }},
      {"read", [](Store& s, Async&) { return without_value(s.read(key)); }},
      {"view", [](Store& s, Async&) { return without_value(s.view(key)); }},
      {"exists", [](Store& s, Async&) { return without_value(s.exists(key)); }},
      {"put", [](Store& s, Async&) { return without_value(s.put(key, value)); }},
      {"put of another", [](Store& s, Async&) { return without_value(s.put("another", value)); }},
      {"put of a long one",
       [](Store& s, Async&) { return without_value(s.put(key, std::string(100'000, 'v'))); }},
      {"insert", [](Store& s, Async&) { return without_value(s.insert("another", value)); }},
      {"replace", [](Store& s, Async&) { return without_value(s.replace(key, value, {.token = 1})); }},
      {"remove", [](Store& s, Async&) { return s.remove(key); }},
      {"remove of a version", [](Store& s, Async&) { return s.remove(key, {.token = 1}); }},
      {"multi_get",
       [lookups](Store& s, Async&) {
         auto asked = lookups();
         s.multi_get(asked);
         return asked[0].result;
       }},
      {"multi_put",
       [puts](Store& s, Async&) {
         auto given = puts();
         s.multi_put(given);
         return given[0].result;
       }},
      {"multi_remove",
       [](Store& s, Async&) {
         std::array<Removal, 1> given{{{.key = key}}};
         s.multi_remove(given);
         return given[0].result;
       }},
      {"for_each", [](Store& s, Async&) { return s.for_each([](const Entry&) { return true; }); }},
      {"count", [](Store& s, Async&) { return without_value(s.count()); }},
      {"info", [](Store& s, Async&) { return without_value(s.info()); }},
      {"collect", [](Store& s, Async&) { return without_value(s.collect()); }},
      {"check", [](Store& s, Async&) { return without_value(s.check()); }},
      {"async get", [](Store&, Async& a) { return without_value(a.run(a.get(key))); }},
      {"async read", [](Store&, Async& a) { return without_value(a.run(a.read(key))); }},
      {"async exists", [](Store&, Async& a) { return without_value(a.run(a.exists(key))); }},
      {"async put", [](Store&, Async& a) { return without_value(a.run(a.put(key, value))); }},
      {"async insert", [](Store&, Async& a) { return without_value(a.run(a.insert("another", value))); }},
      {"async replace",
       [](Store&, Async& a) { return without_value(a.run(a.replace(key, value, {.token = 1}))); }},
      {"async remove", [](Store&, Async& a) { return a.run(a.remove(key)); }},
      {"async multi_remove",
       [](Store&, Async& a) {
         std::array<Removal, 1> given{{{.key = key}}};
         a.run(a.multi_remove(given));
         return given[0].result;
       }},
      {"async remove of a version", [](Store&, Async& a) { return a.run(a.remove(key, {.token = 1})); }},
      {"async multi_get",
       [lookups](Store&, Async& a) {
         auto asked = lookups();
         a.run(a.multi_get(asked));
         return asked[0].result;
       }},
      {"async multi_put",
       [puts](Store&, Async& a) {
         auto given = puts();
         a.run(a.multi_put(given));
         return given[0].result;
       }},
  };
}

// What a call says that does not say so.
std::string outcome(const auto& result) { return result ? "it succeeds" : base::fake::outcome(result); }

bool says_so(const Result<void>& result, const std::string& file) {
  return !result && result.error().code == Errc::corrupt && result.error().detail.contains(file) &&
         result.error().detail.contains("somebody truncated it");
}

// Receive: a store of which all is cut off. Expect: whatever is called first says so, and so does all that is
// called after it; another store is as it was, and this one ends like others.
TEST_F(Truncated, EveryCallSaysSo) {
  for (const Call& first : calls()) {
    EXPECT_EQ(in_child([&]() -> std::string {
                if (!survive_truncation()) return "no guard";
                auto [other, other_async] = opened("other");
                auto [cut, async] = opened("cut");
                for (const fabric::RegionId region :
                     {memory::control_region, memory::index_region, memory::first_data_region})
                  truncate("cut", region);
                const auto said = first.call(cut, async);
                if (!says_so(said, "/loch.cut/region.")) return outcome(said);
                for (const Call& next : calls()) {
                  const auto again = next.call(cut, async);
                  if (!says_so(again, "/loch.cut/region."))
                    return fmt::format("{}: {}", next.name, outcome(again));
                }
                for (const Call& next : calls()) {
                  const auto there = next.call(other, other_async);
                  if (!there && there.error().code == Errc::corrupt)
                    return fmt::format("{} of another: {}", next.name, outcome(there));
                }
                return "ok";
              }),
              "ok")
        << first.name;
    std::filesystem::remove_all(options_.directory + "/loch.cut");
    std::filesystem::remove_all(options_.directory + "/loch.other");
  }
}

// Receive: one region that is cut off. Expect: what comes to it says so, by its name; a value that is got is
// right, and one that is put can be got by others.
TEST_F(Truncated, ARegionThatIsCutOffIsNamed) {
  for (const fabric::RegionId region :
       {memory::control_region, memory::index_region, memory::first_data_region}) {
    for (const Call& call : calls()) {
      EXPECT_EQ(in_child([&]() -> std::string {
                  if (!survive_truncation()) return "no guard";
                  auto [cut, async] = opened("cut");
                  truncate("cut", region);
                  const auto said = call.call(cut, async);
                  const auto get = cut.get(key);
                  const std::string file = fmt::format("/loch.cut/region.{}", region);
                  if (!says_so(without_value(get), file)) return "get: " + outcome(get);
                  // These ask first how long a region is, and do not come to what it has no longer.
                  const bool may_succeed = call.name == "info" || call.name == "for_each";
                  return says_so(said, file) || (may_succeed && said) ? "ok" : outcome(said);
                }),
                "ok")
          << call.name << " without region " << int{region};
      std::filesystem::remove_all(options_.directory + "/loch.cut");
    }
  }
}

// Receive: a key whose item is there still, and memory for its next one of which the end alone is cut off, so
// that it is written by the plainest way. Expect: it is not said to be stored.
TEST_F(Truncated, WhatIsWrittenToNobodyIsNotStored) {
  const std::string long_value(10'000, 'v');
  const auto put = [&](Store& store) { return without_value(store.put(key, long_value)); };
  const auto multi_put = [&](Store& store) {
    std::array<Assignment, 1> one{{{.key = key, .value = long_value}}};
    store.multi_put(one);
    return one[0].result;
  };
  for (const std::function<Result<void>(Store&)>& call : {std::function(put), std::function(multi_put)}) {
    EXPECT_EQ(in_child([&]() -> std::string {
                if (!survive_truncation()) return "no guard";
                Store cut = Store::open("shm://cut", options_).value();
                for (const std::string_view each : {key, "the second"sv, "the third"sv}) {
                  if (!cut.put(each, long_value)) return "not put";
                }
                const std::string file = options_.directory + "/loch.cut/region.2";
                std::ostringstream bytes;
                bytes << std::ifstream(file, std::ios::binary).rdbuf();
                const std::size_t third = bytes.view().find("the third");
                const std::size_t fourth = third + (third - bytes.view().find("the second"));
                constexpr std::size_t page_bytes = 4'096;
                std::filesystem::resize_file(file, (fourth / page_bytes + 1) * page_bytes);
                if (const auto read = cut.get(key); !read) return "it is not there: " + outcome(read);
                const auto stored = call(cut);
                return says_so(stored, "/loch.cut/region.2") ? "ok" : outcome(stored);
              }),
              "ok");
    std::filesystem::remove_all(options_.directory + "/loch.cut");
  }
}

// Receive: a store that was cut off, and was then made anew. Expect: whoever opens it again has the new one.
TEST_F(Truncated, AStoreThatIsMadeAnewIsAsGoodAsAny) {
  EXPECT_EQ(in_child([&]() -> std::string {
              if (!survive_truncation()) return "no guard";
              auto [cut, async] = opened("cut");
              truncate("cut", memory::control_region);
              if (!says_so(without_value(cut.put(key, value)), "/loch.cut/region.0")) return "not said";
              const auto damaged = Store::open("shm://cut", options_);
              if (damaged || damaged.error().code != Errc::corrupt) return "opened: " + outcome(damaged);
              if (const auto destroyed = Store::destroy("shm://cut", options_); !destroyed)
                return outcome(destroyed);
              auto [anew, anew_async] = opened("cut");
              if (cut.get(key)) return "the old one is as good";
              const auto got = anew.get(key);
              return got && *got == value ? "ok" : outcome(got);
            }),
            "ok");
}

}  // namespace
}  // namespace loch
