// For tests: stores in a folder of their own.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "fabric/endpoint.h"
#include "fabric/shm/shm.h"
#include "lab/temp_folder.h"

namespace loch::fabric::shm::fake {

inline constexpr std::uint64_t region_bytes = 1U << 20;
inline constexpr std::uint64_t mark = 0x1234567890abcdef;

// A folder of its own in /dev/shm for each test, gone afterwards. Others may look into it.
class ShmTest : public testing::Test {
 protected:
  ShmTest() { EXPECT_EQ(::chmod(access_.directory.c_str(), 0755), 0); }

  static Plan plan() {
    return {.regions = {{0, region_bytes}, {1, region_bytes}}, .fill = [](std::span<const Mapping> regions) {
              for (const Mapping& region : regions) {
                std::memcpy(region.base, &mark, sizeof mark);
                std::memcpy(region.base + region.length_bytes - sizeof mark, &mark, sizeof mark);
              }
            }};
  }
  [[nodiscard]] std::vector<std::string> files_in_folder() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(access_.directory)) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }
  // Whether the store is there as `plan` makes it.
  static bool is_whole(const std::shared_ptr<Fabric>& fabric) {
    Endpoint endpoint(fabric, fabric->connect());
    for (const RegionId region : {RegionId{0}, RegionId{1}}) {
      for (const std::uint64_t offset : {std::uint64_t{0}, region_bytes - 8}) {
        const std::byte* at = endpoint.mapped({region, offset}, 8);
        if (at == nullptr || load_word(at) != mark) return false;
      }
    }
    return true;
  }

  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  Access access_{.directory = temp_.path(), .group = {}, .huge_pages = false};
};

}  // namespace loch::fabric::shm::fake
