// Any bytes taken for an item: the parts that it is taken apart into lie inside of them, and one that is
// written is read back.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "hash/item.h"

namespace loch {

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this length, aligned as items are, so that a touch beyond its end is seen.
  const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  if (size != 0) std::memcpy(bytes.get(), data, size);
  const memory::ItemRef ref{.region = 2, .size_class = 3, .unit = 64};
  hash::ItemView view;
  if (view.parse(bytes.get(), size, ref)) {
    LOCH_CHECK(view.length_bytes() <= size);
    LOCH_CHECK(!view.key().empty());
    const auto* begin = reinterpret_cast<const char*>(bytes.get());
    LOCH_CHECK(view.key().data() >= begin && view.value().data() + view.value().size() <= begin + size);
    [[maybe_unused]] const bool intact = view.is_intact();
  }

  // What is written is read back, and a change of any byte is seen.
  if (size < 4) return 0;
  const std::size_t key_bytes = 1 + data[0] % (size - 3);
  const std::string_view key(reinterpret_cast<const char*>(data) + 3, key_bytes);
  const std::string_view value(key.data() + key.size(), size - 3 - key.size());
  const std::uint64_t length = hash::item_bytes(key.size(), value.size());
  const auto words = std::make_unique<std::uint64_t[]>((length + 7) / 8);
  auto* at = reinterpret_cast<std::byte*>(words.get());
  memory::ItemHeader header{};
  header.key_hash = data[1];
  header.written_at_ns = 5;
  hash::write_item(at, ref, header, key, value);
  hash::ItemView written;
  LOCH_CHECK(written.parse(at, length, ref) && written.is_intact());
  LOCH_CHECK(written.key() == key && written.value() == value);
  const std::size_t changed =
      memory::summed_from + (std::size_t{data[1]} << 8 | data[2]) % (length - memory::summed_from);
  at[changed] ^= std::byte{1};
  hash::ItemView damaged;
  LOCH_CHECK(!damaged.parse(at, length, ref) || !damaged.is_intact());
  return 0;
}

}  // namespace loch
