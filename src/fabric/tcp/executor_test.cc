// What becomes of single operations; what a connection makes of many is tested with the agent.
#include "fabric/tcp/executor.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/uio.h>

#include "fabric/tcp/testing/raw_end.h"
#include "fabric/testing/memory_store.h"

namespace loch::fabric::tcp {
namespace {

using enum Operation::Kind;
using raw::answer;
using raw::bytes_of;
using raw::operation;
using raw::read_words;

constexpr std::uint64_t region_bytes = 1 << 20;

std::string word(std::uint64_t value) { return bytes_of(&value, sizeof value); }
constexpr Operation::Kind with(Operation::Kind kind, std::uint8_t bit) {
  return static_cast<Operation::Kind>(static_cast<unsigned>(kind) | bit);
}

class ExecutorTest : public testing::Test {
 public:
  ExecutorTest(const ExecutorTest&) = delete;
  ExecutorTest& operator=(const ExecutorTest&) = delete;
  ~ExecutorTest() override = default;

 protected:
  ExecutorTest() {
    const auto fabric = store_->attach();
    regions_ = std::make_shared<Endpoint>(fabric, fabric->connect());
  }
  Executor executor(Executor::Settings settings) {
    Executor made(answers_, counts_, settings);
    made.set_regions(regions_);
    return made;
  }
  std::string done_by(Executor& executor, const std::string& operation) {
    answers_.clear();
    executor.execute(reinterpret_cast<const std::byte*>(operation.data()));
    std::string all;
    for (const iovec& part : answers_.parts()) all += bytes_of(part.iov_base, part.iov_len);
    return all;
  }

  std::shared_ptr<fake::MemoryStore> store_ =
      fake::MemoryStore::create({.regions = {{0, region_bytes}}, .fill = {}});
  std::shared_ptr<Endpoint> regions_;
  Answers answers_;
  Executor::Counts counts_{};
};

TEST_F(ExecutorTest, CarriesOutEachKind) {
  Executor all = executor({.may_change = true});
  EXPECT_EQ(done_by(all, operation(write, 0, 8, 0, word(5))), answer(write, Status::done, 0, 0));
  EXPECT_EQ(done_by(all, operation(fetch_add, 0, 8, 1, word(2))),
            answer(fetch_add, Status::done, 1, 8, word(5)));
  EXPECT_EQ(done_by(all, operation(compare_swap, 0, 8, 2, word(7) + word(9))),
            answer(compare_swap, Status::done, 2, 8, word(7)));
  EXPECT_EQ(done_by(all, operation(read, 0, 8, 3)), answer(read, Status::done, 3, 8, word(9)));
  EXPECT_EQ(done_by(all, operation(expect, 0, 8, 4, word(9))), answer(expect, Status::done, 4, 0));
  EXPECT_EQ(done_by(all, operation(read_words, 0, 16, 5, word(8))),
            answer(read_words, Status::done, 5, 16, word(9) + word(0)));
  EXPECT_EQ(counts_.reads, 4U);
  EXPECT_EQ(counts_.writes, 1U);
  EXPECT_EQ(counts_.atomics, 2U);
  EXPECT_EQ(counts_.bad_addresses, 0U);
}

// Receive: a connection that may write its own words alone. Expect: it does so once it has been told which,
// and changes nothing else, nor those by atomics.
TEST_F(ExecutorTest, WhoMayWriteItsOwnWordsChangesNothingElse) {
  Executor one = executor({.may_change = false});
  const std::string written = answer(write, Status::done, 0, 0);
  const std::string refused = answer(write, Status::bad_address, 0, 0);
  EXPECT_EQ(done_by(one, operation(write, 64, 8, 0, word(1))), refused);
  one.set_own_words(
      {.first = {.at = {0, 64}, .length_bytes = 16}, .second = {.at = {0, 96}, .length_bytes = 8}});
  EXPECT_EQ(done_by(one, operation(write, 64, 16, 0, word(1) + word(2))), written);
  EXPECT_EQ(done_by(one, operation(write, 72, 16, 0, word(3) + word(4))), refused);
  EXPECT_EQ(done_by(one, operation(write, 96, 8, 0, word(5))), written);
  EXPECT_EQ(done_by(one, operation(write, 88, 8, 0, word(6))), refused);
  EXPECT_EQ(done_by(one, operation(write, 96, 16, 0, word(6) + word(7))), refused);
  EXPECT_EQ(done_by(one, operation(fetch_add, 64, 8, 0, word(1))),
            answer(fetch_add, Status::bad_address, 0, 0));
  EXPECT_EQ(done_by(one, operation(read, 64, 24, 0)),
            answer(read, Status::done, 0, 24, word(1) + word(2) + word(0)));
  one.set_own_words({});
  EXPECT_EQ(done_by(one, operation(write, 64, 8, 0, word(1))), refused);
}

// Receive: operations that are done only if the one before them was. Expect: none is after one that was not,
// and those that are left out for that are not counted as bad addresses.
TEST_F(ExecutorTest, WhatComesAfterWhatWasNotDoneIsNotDone) {
  Executor all = executor({.may_change = true});
  const auto then_write = with(write, after_previous_bit);
  const auto refused = answer(write, Status::bad_address, 0, 0);
  EXPECT_EQ(done_by(all, operation(expect, 0, 8, 0, word(1))), answer(expect, Status::bad_address, 0, 0));
  EXPECT_EQ(done_by(all, operation(then_write, 0, 8, 0, word(2))), refused);
  EXPECT_EQ(counts_.bad_addresses, 0U);
  EXPECT_EQ(done_by(all, operation(read, region_bytes, 8, 0)), answer(read, Status::bad_address, 0, 0));
  EXPECT_EQ(done_by(all, operation(then_write, 0, 8, 0, word(2))), refused);
  EXPECT_EQ(done_by(all, operation(then_write, 0, 8, 0, word(2))), refused);
  EXPECT_EQ(counts_.bad_addresses, 1U);
  EXPECT_EQ(done_by(all, operation(write, 0, 8, 0, word(2))), answer(write, Status::done, 0, 0));
  EXPECT_EQ(done_by(all, operation(then_write, 0, 8, 0, word(3))), answer(write, Status::done, 0, 0));
}

TEST_F(ExecutorTest, WordsThatAreNoneAreSaidToBe) {
  Executor all = executor({});
  EXPECT_EQ(done_by(all, operation(read_words, 0, 24, 0, word(4) + word(region_bytes))),
            answer(read_words, Status::bad_address, 0, 32, word(0b110) + word(0) + word(0) + word(0)));
  EXPECT_EQ(counts_.reads, 1U);
  EXPECT_EQ(counts_.bad_addresses, 2U);
}

// Receive: a long read of what is settled. Expect: it is read when it is sent, unless the stream copies it
// anyway.
TEST_F(ExecutorTest, WhatIsSettledAndLongIsReadWhenItIsSent) {
  constexpr std::uint32_t length = 1'024;
  const std::string asked = operation(with(read, settled_bit), 0, length, 0);
  std::byte* const at = regions_->mapped({0, 0}, length);
  for (const bool gathers : {true, false}) {
    Executor reads = executor({.gathers = gathers});
    *at = std::byte{1};
    answers_.clear();
    reads.execute(reinterpret_cast<const std::byte*>(asked.data()));
    *at = std::byte{2};
    std::string all;
    for (const iovec& part : answers_.parts()) all += bytes_of(part.iov_base, part.iov_len);
    EXPECT_EQ(all.size(), sizeof(AnswerHead) + length);
    EXPECT_EQ(all.at(sizeof(AnswerHead)), gathers ? '\2' : '\1');
  }
}

}  // namespace
}  // namespace loch::fabric::tcp
