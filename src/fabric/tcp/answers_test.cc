#include "fabric/tcp/answers.h"

#include <cstring>
#include <gtest/gtest.h>
#include <string>

namespace loch::fabric::tcp {
namespace {

void add(Answers& answers, std::string_view bytes) {
  std::memcpy(answers.room(), bytes.data(), bytes.size());
  answers.add(bytes.size());
}
const std::byte* bytes_of(const std::string& text) { return reinterpret_cast<const std::byte*>(text.data()); }

std::string all_of(Answers& answers) {
  std::string all;
  for (const iovec& part : answers.parts()) all.append(static_cast<const char*>(part.iov_base), part.iov_len);
  return all;
}

TEST(Answers, AreSentInOrderAndWhatIsGatheredFromWhereItLies) {
  Answers answers;
  EXPECT_TRUE(answers.is_empty());
  std::string region = "from a region, ";
  add(answers, "one, ");
  add(answers, "two, ");
  EXPECT_FALSE(answers.has_gathered());
  answers.gather(bytes_of(region), region.size());
  EXPECT_TRUE(answers.has_gathered());
  add(answers, "three");
  EXPECT_EQ(answers.parts().size(), 3U);
  region[0] = 'F';
  EXPECT_EQ(all_of(answers), "one, two, From a region, three");
}

// Receive: any number of bytes is sent, then more answers come. Expect: what is left, in order.
TEST(Answers, GoOnWhereTheyWereSentTo) {
  const std::string region = "0123456789";
  const std::string all = "head0123456789tail";
  for (std::size_t sent = 0; sent <= all.size(); ++sent) {
    Answers answers;
    add(answers, "head");
    answers.gather(bytes_of(region), region.size());
    add(answers, "tail");
    answers.parts();
    answers.drop(sent);
    EXPECT_EQ(answers.is_empty(), sent == all.size());
    EXPECT_EQ(all_of(answers), all.substr(sent));
    add(answers, "more");
    EXPECT_EQ(all_of(answers), all.substr(sent) + "more");
    const auto rest = answers.take_rest();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(rest.data()), rest.size()),
              all.substr(sent) + "more");
    EXPECT_TRUE(answers.is_empty());
    EXPECT_FALSE(answers.has_gathered());
  }
}

// Expect: they are full while there is room for one more still, whatever of them is too much.
TEST(Answers, AreFullBeforeTheyAreTooMany) {
  const std::string region(65'536, 'r');
  Answers bytes;
  std::size_t count = 0;
  for (; !bytes.is_full(); ++count) bytes.add(answer_bytes_max);
  EXPECT_GE(count, 3U);
  Answers gathered;
  for (count = 0; !gathered.is_full(); ++count) gathered.gather(bytes_of(region), region.size());
  EXPECT_LE(count * region.size(), 2U << 20);
  Answers parts;
  for (count = 0; !parts.is_full(); ++count) {
    add(parts, "h");
    parts.gather(bytes_of(region), 1);
  }
  add(parts, "t");
  EXPECT_LE(parts.parts().size(), 1'024U) << "as many as a call takes";
}

}  // namespace
}  // namespace loch::fabric::tcp
