#include <gtest/gtest.h>

#include "cmd/doctor.h"

namespace loch::cmd {
namespace {

Error error_of(Errc code, const char* detail = "") {
  return {.code = code, .operation = "open", .detail = detail};
}

TEST(Advice, IsToRemoveWhatIsDamagedAlone) {
  for (const Errc code : {Errc::not_found, Errc::exists, Errc::changed, Errc::timed_out, Errc::corrupt,
                          Errc::no_space, Errc::invalid_argument, Errc::incompatible, Errc::permission,
                          Errc::unavailable, Errc::moved, Errc::cancelled, Errc::io}) {
    const bool is_leftover = code == Errc::corrupt || code == Errc::incompatible;
    EXPECT_EQ(mend_near_store("s", error_of(code)).contains("loch rm s "), is_leftover)
        << static_cast<int>(code);
    EXPECT_FALSE(mend_far_store(error_of(code)).contains("loch rm")) << static_cast<int>(code);
  }
  const Error lent = error_of(Errc::incompatible, "'s' is a part; open it as tcp://HOST/s");
  EXPECT_FALSE(mend_near_store("s", lent).contains("loch rm"));
}

TEST(Advice, FitsTheErrorAndTheHost) {
  EXPECT_TRUE(mend_near_store("s", error_of(Errc::no_space)).contains("close some"));
  EXPECT_TRUE(mend_near_store("s", error_of(Errc::permission)).contains("its owner"));
  EXPECT_FALSE(mend_near_store("s", error_of(Errc::permission)).contains("lochd"));
  EXPECT_TRUE(mend_far_store(error_of(Errc::permission)).contains("--key-file"));
  EXPECT_TRUE(mend_far_store(error_of(Errc::unavailable)).contains("is lochd running"));
}

}  // namespace
}  // namespace loch::cmd
