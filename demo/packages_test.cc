#include "demo/packages.h"

#include <gtest/gtest.h>
#include <set>

namespace loch::demo {
namespace {

TEST(Packages, TakesStanzasWhole) {
  const Packages packages(
      "Package: a\nVersion: 1\nDescription: one\n two\n .\n three\n\n\nPackage: b\nVersion: 2");
  ASSERT_EQ(packages.size(), 2U);
  EXPECT_EQ(packages[0].key, "a");
  EXPECT_EQ(packages[0].stanza, "Package: a\nVersion: 1\nDescription: one\n two\n .\n three");
  EXPECT_EQ(packages[1].key, "b");
  EXPECT_EQ(packages[1].stanza, "Package: b\nVersion: 2");
  EXPECT_EQ(packages.bytes(), 2 + packages[0].stanza.size() + packages[1].stanza.size());
}

TEST(Packages, GivesEveryStanzaAKeyOfItsOwn) {
  const Packages packages(
      "Package: a\nVersion: 1\nArchitecture: amd64\n\n"
      "Package: a\nVersion: 2\nArchitecture: amd64\n\n"
      "Package: a\nVersion: 2\nArchitecture: amd64\nOrigin: other\n\n"
      "Package: b\nVersion: 1\nArchitecture: all\n\n"
      "Package: a\nVersion: 2\nArchitecture: amd64\n");
  std::set<std::string> keys;
  for (std::size_t i = 0; i < packages.size(); ++i) keys.insert(packages[i].key);
  EXPECT_EQ(keys, (std::set<std::string>{"a/1/amd64", "a/2/amd64", "a/2/amd64#2", "a/2/amd64#3", "b"}));
}

TEST(Packages, LeavesOutWhatIsNone) {
  const Packages packages("W: a warning\n\nPackage: a\n\n Package: no field\n\nPackage:\n\nPackage: " +
                          std::string(5000, 'x') + "\n");
  ASSERT_EQ(packages.size(), 1U);
  EXPECT_EQ(packages[0].key, "a");
  EXPECT_EQ(packages.left_out(), 4U);
}

TEST(Packages, AnEmptyIndexHasNone) {
  EXPECT_EQ(Packages("").size(), 0U);
  EXPECT_EQ(Packages("\n \n\t\n").size(), 0U);
}

TEST(Field, IsFoundByItsWholeName) {
  constexpr std::string_view stanza = "Package-Type: deb\nPackage:  a \nVersion:\n Package: no";
  EXPECT_EQ(field(stanza, "Package"), "a");
  EXPECT_EQ(field(stanza, "Version"), "");
  EXPECT_EQ(field(stanza, "Missing"), "");
}

}  // namespace
}  // namespace loch::demo
