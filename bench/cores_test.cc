#include "bench/cores.h"

#include <gtest/gtest.h>
#include <string_view>

namespace loch::bench {
namespace {

bool is(const cpu_set_t& found, std::string_view wanted) {
  const cpu_set_t cores = parse_processors(wanted);
  return CPU_EQUAL(&found, &cores);
}

bool chosen(std::string_view allowed, std::string_view siblings, Cores wanted, std::string_view expected) {
  return is(choose(parse_processors(allowed), parse_processors(siblings), wanted), expected);
}

TEST(Cores, AreReadAsTheKernelListsThem) {
  const cpu_set_t cores = parse_processors("1-3,8");
  EXPECT_EQ(CPU_COUNT(&cores), 4);
  for (const int core : {1, 2, 3, 8}) EXPECT_TRUE(CPU_ISSET(core, &cores)) << core;
  const cpu_set_t none = parse_processors("");
  EXPECT_EQ(CPU_COUNT(&none), 0);
}

TEST(Cores, TheSecondIsOfAnotherCoreThanTheFirstIfItCanBe) {
  EXPECT_TRUE(chosen("0-3", "0-1", Cores::all, "0-3"));
  EXPECT_TRUE(chosen("0-3", "0-1", Cores::first, "0"));
  EXPECT_TRUE(chosen("0-3", "0-1", Cores::second, "2"));
  EXPECT_TRUE(chosen("2-7", "2,6", Cores::second, "3"));
  EXPECT_TRUE(chosen("0-3", "", Cores::second, "1"));
  EXPECT_TRUE(chosen("0-1", "0-1", Cores::second, "1")) << "there is no other core";
  EXPECT_TRUE(chosen("3", "3", Cores::second, "3")) << "there is no other processor";
}

}  // namespace
}  // namespace loch::bench
