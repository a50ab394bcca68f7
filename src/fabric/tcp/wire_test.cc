// The bytes of what goes between two hosts besides messages: a change of them is one of the protocol.
#include "fabric/tcp/wire.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>

#include "fabric/verbs/rdma.h"

namespace loch::fabric::tcp {
namespace {

template <class Head>
std::string hex_of(const Head& head) {
  std::string hex;
  for (const std::byte byte : std::bit_cast<std::array<std::byte, sizeof head>>(head))
    hex += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return hex;
}

std::string operation(Operation::Kind kind, unsigned bits, std::uint32_t length) {
  const OperationHead head{.kind = static_cast<std::uint8_t>(static_cast<unsigned>(kind) | bits),
                           .region = 0xa1,
                           .number = 0xb1b2,
                           .length_bytes = length,
                           .offset_bytes = 0xd1d2'd3d4'd5d6'd7d8};
  EXPECT_TRUE(is_operation(head));
  return hex_of(head);
}

std::string answer(Status status, Operation::Kind kind, std::uint32_t length) {
  return hex_of(AnswerHead{.status = static_cast<std::uint8_t>(status),
                           .kind = static_cast<std::uint8_t>(kind),
                           .number = 0xb1b2,
                           .length_bytes = length});
}

TEST(Wire, HeadsOfOperationsAreTheseBytes) {
  using enum Operation::Kind;
  constexpr auto read_words = static_cast<Operation::Kind>(read_words_kind);
  EXPECT_EQ(operation(read, 0, 0x1234), "00a1b2b134120000d8d7d6d5d4d3d2d1");
  EXPECT_EQ(operation(write, 0, 0x1234), "01a1b2b134120000d8d7d6d5d4d3d2d1");
  EXPECT_EQ(operation(compare_swap, 0, 8), "02a1b2b108000000d8d7d6d5d4d3d2d1");
  EXPECT_EQ(operation(fetch_add, 0, 8), "03a1b2b108000000d8d7d6d5d4d3d2d1");
  EXPECT_EQ(operation(expect, 0, 0x1234), "04a1b2b134120000d8d7d6d5d4d3d2d1");
  EXPECT_EQ(operation(read_words, 0, 16), "05a1b2b110000000d8d7d6d5d4d3d2d1");
  EXPECT_EQ(operation(read, settled_bit, 0x1'0000), "40a1b2b100000100d8d7d6d5d4d3d2d1");
  EXPECT_EQ(operation(write, after_previous_bit, 1), "81a1b2b101000000d8d7d6d5d4d3d2d1");
  EXPECT_EQ(operation(read, after_previous_bit | settled_bit, 1), "c0a1b2b101000000d8d7d6d5d4d3d2d1");
}

TEST(Wire, HeadsOfAnswersAreTheseBytes) {
  EXPECT_EQ(answer(Status::done, Operation::Kind::compare_swap, 8), "0002b2b108000000");
  EXPECT_EQ(answer(Status::bad_address, Operation::Kind::write, 0), "0101b2b100000000");
}

TEST(Wire, WhatFollowsAHeadIsWholeWords) {
  using enum Operation::Kind;
  const auto after = [](Operation::Kind kind, std::uint32_t length) {
    return bytes_after({.kind = static_cast<std::uint8_t>(kind),
                        .region = 0,
                        .number = 0,
                        .length_bytes = length,
                        .offset_bytes = 0});
  };
  EXPECT_EQ(after(read, 1'000), 0U);
  EXPECT_EQ(after(write, 0), 0U);
  EXPECT_EQ(after(write, 1), 8U);
  EXPECT_EQ(after(expect, 8), 8U);
  EXPECT_EQ(after(expect, 9), 16U);
  EXPECT_EQ(after(compare_swap, 8), 16U);
  EXPECT_EQ(after(fetch_add, 8), 8U);
  EXPECT_EQ(after(static_cast<Operation::Kind>(read_words_kind), 24), 16U) << "all but the first";
}

// Expect: a message over a queue pair says whole MiB, rounded up.
TEST(Wire, ExtendSoonIsARegionAndMebibytes) {
  using verbs::ExtendSoon;
  constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
  EXPECT_EQ((ExtendSoon{.region = 0xa1, .length_bytes = 0x1234 * mebibyte}.encode()), 0xa100'1234U);
  EXPECT_EQ((ExtendSoon{.region = 2, .length_bytes = 1}.encode()), 0x0200'0001U);
  EXPECT_EQ((ExtendSoon{.region = 2, .length_bytes = mebibyte + 1}.encode()), 0x0200'0002U);
  EXPECT_EQ((ExtendSoon{.region = 255, .length_bytes = region_bytes_max}.encode()), 0xff01'0000U);
  const ExtendSoon decoded = ExtendSoon::decode(0xa100'1234);
  EXPECT_EQ(decoded.region, 0xa1);
  EXPECT_EQ(decoded.length_bytes, 0x1234 * mebibyte);
  EXPECT_EQ(ExtendSoon::decode(ExtendSoon{.region = 2, .length_bytes = mebibyte + 1}.encode()).length_bytes,
            2 * mebibyte);
}

}  // namespace
}  // namespace loch::fabric::tcp
