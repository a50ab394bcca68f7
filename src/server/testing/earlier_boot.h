// For tests: what a reboot leaves of a store whose directory is on a disk.
#pragma once

#include <cstddef>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "base/hash.h"
#include "memory/layout.h"

namespace loch::server::fake {

// The file of a control region that nobody has open says afterwards that another boot made it.
inline void make_of_earlier_boot(const std::string& control_file) {
  std::fstream file(control_file, std::ios::in | std::ios::out | std::ios::binary);
  memory::Superblock superblock{};
  ASSERT_TRUE(file.read(reinterpret_cast<char*>(&superblock), sizeof superblock)) << control_file;
  superblock.boot_id[0] ^= 1;
  superblock.checksum = base::hash_bytes(&superblock, offsetof(memory::Superblock, checksum), memory::magic);
  file.seekp(0);
  ASSERT_TRUE(file.write(reinterpret_cast<const char*>(&superblock), sizeof superblock)) << control_file;
}

}  // namespace loch::server::fake
