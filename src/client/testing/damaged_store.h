// For tests of hostile memory: a new store, and the bytes of its files, to be changed as no client would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "base/file_descriptor.h"
#include "client/testing/store_test.h"
#include "fabric/fabric.h"
#include "hash/index.h"
#include "hash/slot.h"
#include "memory/layout.h"

namespace loch::fake {

class DamagedStore : public StoreTest {
 protected:
  base::FileDescriptor& file(fabric::RegionId region) {
    while (files_.size() <= region) {
      const std::string path = fmt::format("{}/region.{}", store_->info()->directory, files_.size());
      files_.emplace_back(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    }
    return files_[region];
  }
  template <class T>
  T read_at(fabric::Address at) {
    T there{};
    EXPECT_EQ(::pread(file(at.region).get(), &there, sizeof there, static_cast<off_t>(at.offset_bytes)),
              static_cast<ssize_t>(sizeof there));
    return there;
  }
  template <class T>
  void write_at(fabric::Address at, T what) {
    EXPECT_EQ(::pwrite(file(at.region).get(), &what, sizeof what, static_cast<off_t>(at.offset_bytes)),
              static_cast<ssize_t>(sizeof what));
  }
  hash::Key key_of(std::string_view key) {
    const auto seed =
        read_at<std::uint64_t>({memory::control_region, offsetof(memory::Superblock, hash_seed)});
    return hash::Key::of(key, seed);
  }
  hash::Locations locations(std::string_view key) {
    const auto word = read_at<std::uint64_t>({memory::control_region, memory::index_root_offset});
    return hash::Locations::of(key_of(key).hash, hash::Directory::decode(word), 3);
  }
  static fabric::Address address_of(hash::SlotNumber slot) { return {memory::index_region, slot * 8}; }
  hash::SlotWord word_at(hash::SlotNumber slot) { return {read_at<std::uint64_t>(address_of(slot))}; }
  // The slot that names a key's item.
  hash::SlotNumber slot_of(const std::string& key) {
    const hash::Locations at = locations(key);
    for (unsigned j = 0; j < at.count; ++j) {
      const hash::SlotWord word = word_at(at.slot[j]);
      if (!word.is(hash::SlotType::committed) || word.filter() != key_of(key).filter()) continue;
      std::string there(key.size(), '\0');
      const auto place = word.item().address().offset_bytes + sizeof(memory::ItemHeader);
      EXPECT_EQ(
          ::pread(file(word.item().region).get(), there.data(), there.size(), static_cast<off_t>(place)),
          std::ssize(there));
      if (there == key) return at.slot[j];
    }
    ADD_FAILURE() << "no slot names " << key;
    return 0;
  }
  fabric::Address item_of(const std::string& key) { return word_at(slot_of(key)).item().address(); }

  // Of another store after this.
  void forget_files() { files_.clear(); }

 private:
  std::vector<base::FileDescriptor> files_;  // by region
};

}  // namespace loch::fake
