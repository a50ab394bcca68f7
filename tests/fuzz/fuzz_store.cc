// A small store whose index and data are overwritten as the input says; then every kind of call. Expect:
// answers or errors, no crash, no hang.
//
// The input is a row of commands of one byte each, with operands behind it; what is missing is zero.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "fabric/testing/memory_store.h"
#include "fabric/testing/posting_fabric.h"
#include "hash/testing/test_table.h"

namespace loch::hash {
namespace {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return size_ == 0; }
  std::uint64_t take(std::size_t bytes) {
    std::uint64_t value = 0;
    const std::size_t got = bytes < size_ ? bytes : size_;
    std::memcpy(&value, data_, got);
    data_ += got;
    size_ -= got;
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

std::string key_number(std::uint64_t i) { return fmt::format("k{}", i % 24); }

// A slot word that is right in most of its parts: a plain overwrite seldom is.
SlotWord near_word(const fake::MemoryStore& store, Input& input, fake::Client& client) {
  const std::uint64_t how = input.take(1);
  const std::string key = key_number(input.take(1));
  const memory::ItemRef item{.region = static_cast<fabric::RegionId>(how & 3),
                             .size_class = static_cast<std::uint8_t>(input.take(1) & 31),
                             .unit = static_cast<std::uint32_t>(input.take(2))};
  const Locations at = fake::locations(client, key);
  const SlotWord there = fake::slot(store, at.slot[how >> 2 & 1]);
  const auto type = static_cast<SlotType>(how >> 3 & 7);
  if ((how & 128) != 0) return there.with_type(type).with_tag(static_cast<std::uint8_t>(item.unit & 63));
  return SlotWord::link(type, item, client.key_of(key).filter(),
                        static_cast<std::uint8_t>(input.take(1) & 63), first_level + (how >> 6 & 1));
}

void damage(fake::MemoryStore& store, Input& input, fake::Client& client) {
  const std::uint64_t where = input.take(1);
  switch (where & 3) {
    case 0: {  // a slot of some key
      const std::string key = key_number(where >> 2);
      const Locations at = fake::locations(client, key);
      const SlotWord word =
          (input.take(1) & 1) != 0 ? near_word(store, input, client) : SlotWord{input.take(8)};
      fake::set_slot(store, at.slot[(where >> 5) % at.count], word);
      break;
    }
    case 1: {  // a word of an item of some key
      const Locations at = fake::locations(client, key_number(where >> 2));
      const memory::ItemRef item = fake::slot(store, at.slot[0]).item();
      const fabric::Address address = item.address() + (input.take(1) & 15) * 8;
      if (item.region != memory::first_data_region ||
          address.offset_bytes + 8 > store.length_bytes(item.region))
        return;
      fabric::store_word(store.at(address), input.take(8));
      break;
    }
    case 2: {  // a descriptor
      const std::uint64_t word =
          input.take(1) % (2 * store.length_bytes(memory::first_data_region) / memory::block_bytes);
      fabric::store_word(store.at({memory::first_data_region, word * 8}),
                         input.take((where & 4) != 0 ? 8 : 2));
      break;
    }
    default: {  // any word of index or data
      const fabric::RegionId region = (where & 4) != 0 ? memory::index_region : memory::first_data_region;
      fabric::store_word(store.at({region, input.take(3) % (store.length_bytes(region) / 8) * 8}),
                         input.take(8));
      break;
    }
  }
}

struct Caller {
  fake::Client& client;
  // Of its last put that was done.
  std::string key{};
  std::uint64_t version = 0;
};

std::string value_of_any_length(Input& input) {
  static constexpr std::array<std::size_t, 8> lengths = {0, 10, 100, 700, 3'000, 60'000, 400'000, 1'500'000};
  return std::string(lengths[input.take(1) & 7], 'y');
}

constexpr std::uint64_t call_count = 9;

void call(fake::MemoryStore& store, Input& input, Caller& caller, std::uint64_t what) {
  fake::Client& client = caller.client;
  const std::uint64_t operand = input.take(1);
  const std::string key = key_number(operand);
  const bool in_batch = client.session().remote() && operand >= 128;
  switch (what) {
    case 0: {
      [[maybe_unused]] const auto got = in_batch ? client.get_in_batch(key) : client.get(key);
      break;
    }
    case 1:
    case 2: {
      const std::string value = value_of_any_length(input);
      const auto put = in_batch ? client.put_in_batch(key, value) : client.put(key, value);
      if (!put) break;
      caller.key = key;
      caller.version = *put;
      break;
    }
    case 3: {
      [[maybe_unused]] const auto removed = client.remove(key);
      break;
    }
    case 4: {
      [[maybe_unused]] const auto inserted = client.insert(key, "inserted");
      break;
    }
    case 5: {
      const bool is_known = operand >= 128 && !caller.key.empty();
      [[maybe_unused]] const auto replaced = is_known ? client.replace(caller.key, "replaced", caller.version)
                                                      : client.replace(key, "replaced", input.take(8));
      break;
    }
    case 6:
      store.advance(operand * 20 * base::millisecond_ns);
      break;
    case 7: {
      [[maybe_unused]] const auto swept = client.run(client.allocator().sweep_all());
      break;
    }
    default:
      if (!fake::directory_of(store).growing && fake::directory_of(store).level < first_level + 2)
        fake::begin_growth(store, 0);
      break;
  }
}

std::shared_ptr<fabric::Fabric> in_order(const std::shared_ptr<fake::MemoryStore>& store) {
  return std::make_shared<fabric::fake::PostingFabric>(
      store, fabric::fake::PostingOptions{.keeps_order = true, .mapped = {}, .before = {}, .held = {}});
}

void run(Input input) {
  const auto store =
      fake::make_store({.max_bytes = 24 * memory::block_bytes, .hash_seed = 42}, {.region_bytes = 64U << 20});
  fake::Client first(*store);
  // On this host, or on another one, by all that it keeps.
  LocationCache locations(std::size_t{1} << 14);
  const TableOptions options{
      .timeout_ns = 50 * base::millisecond_ns, .cache_bytes = 100'000, .locations = &locations};
  const bool is_far = (input.take(1) & 1) != 0;
  fake::Client second(*store, is_far ? in_order(store) : store->attach(), options);
  for (std::uint64_t i = 0; i < 24; ++i) {
    LOCH_CHECK(first.put(key_number(i), std::string(i * i * 20, 'x'), i % 5 == 0 ? store->now() + 1 : 0)
                   .has_value());
  }
  std::array callers = {Caller{second}, Caller{first}};
  for (int commands = 0; !input.empty() && commands < 64; ++commands) {
    const std::uint64_t command = input.take(1);
    if ((command & 1) != 0) {
      damage(*store, input, first);
    } else {
      call(*store, input, callers[command >> 1 & 1], (command >> 2) % call_count);
    }
  }
  for (fake::Client* client : {&first, &second}) {
    for (std::uint64_t i = 0; i < 26; ++i) {
      const auto got = client->get(fmt::format("k{}", i));
      if (!got) LOCH_CHECK(got.error().code != Errc::timed_out);
    }
    [[maybe_unused]] const auto walked = client->walk();
    [[maybe_unused]] const auto counted = client->count();
    [[maybe_unused]] const auto report = client->check();
    [[maybe_unused]] const auto collected = client->collect();
  }
  store->advance(10 * base::second_ns);
  [[maybe_unused]] const auto put = second.put("last", std::string(5'000, 'z'));
  [[maybe_unused]] const auto collected = second.collect();
}

}  // namespace
}  // namespace loch::hash

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  loch::hash::run({data, size});
  return 0;
}
