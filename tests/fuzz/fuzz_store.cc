// A small store whose index and data are overwritten as the input says; then every kind of call, by a client
// of the library, on the store's host or on another one, and by the table's coroutines alone, which on the
// store's host are seldom what a client's call comes to. Expect: answers or errors, no crash, no hang.
//
// The input is a row of commands of one byte each, with operands behind it; what is missing is zero.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "client/client.h"
#include "fabric/testing/memory_store.h"
#include "fabric/testing/posting_fabric.h"
#include "hash/testing/test_table.h"
#include "tests/fuzz/input.h"

namespace loch::hash {
namespace {

using fuzz::Input;

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

std::string value_of_any_length(Input& input) {
  static constexpr std::array<std::size_t, 8> lengths = {0, 10, 100, 700, 3'000, 60'000, 400'000, 1'500'000};
  return std::string(lengths[input.take(1) & 7], 'y');
}

// Who calls.
class Caller {
 public:
  Caller() = default;
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  virtual ~Caller() = default;

  // `operand` says in which of the ways that there are.
  virtual Result<std::string> get(const std::string& key, std::uint64_t operand) = 0;
  virtual Result<std::uint64_t> put(const std::string& key, const std::string& value, std::uint64_t operand,
                                    Condition condition, std::uint64_t version) = 0;
  virtual void remove(const std::string& key) = 0;
  virtual void get_many(std::uint64_t first, Input& input) = 0;
  virtual void put_many(std::uint64_t first, Input& input) = 0;
  // Everything that there is.
  virtual void look_at_all() = 0;
  virtual void collect() = 0;
  virtual void sweep() = 0;

  // Of its last put that was done.
  std::string key{};
  std::uint64_t version = 0;
};

// Each call is one of the table's coroutines.
class TableCaller final : public Caller {
 public:
  explicit TableCaller(fake::Client& client) : client_(client) {}

  Result<std::string> get(const std::string& k, std::uint64_t /*operand*/) override { return client_.get(k); }
  Result<std::uint64_t> put(const std::string& k, const std::string& value, std::uint64_t /*operand*/,
                            Condition condition, std::uint64_t of) override {
    if (condition == Condition::absent) return client_.insert(k, value);
    if (condition == Condition::version) return client_.replace(k, value, of);
    return client_.put(k, value);
  }
  void remove(const std::string& k) override { std::ignore = client_.remove(k); }
  void get_many(std::uint64_t first, Input& /*input*/) override {
    for (std::uint64_t i = first; i < first + 24; ++i) std::ignore = client_.get(key_number(i));
  }
  void put_many(std::uint64_t first, Input& input) override {
    for (std::uint64_t i = first; i < first + 3; ++i)
      std::ignore = client_.put(key_number(i), value_of_any_length(input));
  }
  void look_at_all() override {
    std::ignore = client_.walk();
    std::ignore = client_.count();
    std::ignore = client_.check();
  }
  void collect() override { std::ignore = client_.collect(); }
  void sweep() override { std::ignore = client_.run(client_.allocator().sweep_all()); }

 private:
  fake::Client& client_;
};

// Each call goes the ways that one of a program goes (client/store.cc).
class LibraryCaller final : public Caller {
 public:
  LibraryCaller(std::shared_ptr<fabric::Fabric> fabric, const client::ClientOptions& options)
      : client_(
            client::Client::open(memory::StoreMemory::attach(std::move(fabric)).value(), options).value()) {}

  Result<std::string> get(const std::string& k, std::uint64_t operand) override {
    // Numbers of keys that are often met, with values as long as theirs, among them.
    std::string into((operand & 31) * (operand & 31) * 20, '?');
    switch (operand >> 5 & 3) {
      case 0:
        if (client_->get_plain<1, 128>(k, into)) return into;
        break;
      case 1: {
        const auto item = client_->run(client_->read(k));
        if (!item) return std::unexpected(item.error());
        return item->value;
      }
      case 2: {
        const memory::Attachment::Pin pin(client_->attachment());
        const auto found = client_->run(client_->find(k));
        if (!found) return std::unexpected(found.error());
        return std::string(found->view.value());
      }
      default:
        std::ignore = client_->run(client_->exists(k));
        break;
    }
    if (client_->get_here(k, into)) return into;
    if (auto got = client_->run(client_->get(k, &into)); !got) return std::unexpected(std::move(got.error()));
    return into;
  }
  Result<std::uint64_t> put(const std::string& k, const std::string& value, std::uint64_t operand,
                            Condition condition, std::uint64_t of) override {
    PutOptions options;
    if (operand >= 224) options.time_to_live = std::chrono::milliseconds(operand);
    if (condition == Condition::none && client_->put_here(k, value, options)) {
      const auto item = client_->run(client_->read(k));
      return item ? item->version.token : 0;
    }
    return client_->run(
        client_->put({.key = k, .value = value, .options = options, .condition = condition, .version = of}));
  }
  void remove(const std::string& k) override { std::ignore = client_->run(client_->remove(k)); }
  void get_many(std::uint64_t first, Input& input) override {
    const Batch batch(first);
    std::vector<Lookup> lookups;
    for (const std::string& k : batch.keys)
      lookups.push_back({.key = k, .value = value_of_any_length(input).substr(0, 3'000)});
    client_->run(client_->multi_get(lookups));
  }
  void put_many(std::uint64_t first, Input& input) override {
    const Batch batch(first);
    std::vector<std::string> values;
    for (std::size_t i = 0; i < batch.keys.size(); ++i)
      values.push_back(value_of_any_length(input).substr(0, 60'000));
    std::vector<Assignment> assignments;
    for (std::size_t i = 0; i < batch.keys.size(); ++i)
      assignments.push_back({.key = batch.keys[i], .value = values[i]});
    client_->run(client_->multi_put(assignments));
  }
  void look_at_all() override {
    const std::function<bool(const Entry&)> visit = [](const Entry& entry) { return !entry.key.empty(); };
    std::ignore = client_->run(client_->for_each(&visit));
    std::ignore = client_->run(client_->count());
    std::ignore = client_->run(client_->check());
    Info info;
    std::ignore = client_->run(client_->describe(&info));
  }
  void collect() override { std::ignore = client_->run(client_->collect()); }
  void sweep() override {
    std::ignore = client_->run(client_->attachment().nodes().front().allocator->sweep_all());
  }

 private:
  // More than take turns at once, and some of them twice.
  struct Batch {
    explicit Batch(std::uint64_t first) {
      for (std::uint64_t i = first; i < first + 26; ++i) keys.push_back(key_number(i));
    }
    std::vector<std::string> keys;
  };

  std::unique_ptr<client::Client> client_;
};

constexpr std::uint64_t call_count = 12;

void call(fake::MemoryStore& store, Input& input, Caller& caller, std::uint64_t what) {
  const std::uint64_t operand = input.take(1);
  const std::string key = key_number(operand);
  switch (what) {
    case 0:
      std::ignore = caller.get(key, operand);
      break;
    case 1:
    case 2: {
      const auto put = caller.put(key, value_of_any_length(input), operand, Condition::none, 0);
      if (!put) break;
      caller.key = key;
      caller.version = *put;
      break;
    }
    case 3:
      caller.remove(key);
      break;
    case 4:
      std::ignore = caller.put(key, "inserted", operand, Condition::absent, 0);
      break;
    case 5: {
      const bool is_known = operand >= 128 && !caller.key.empty();
      const std::string& of = is_known ? caller.key : key;
      std::ignore =
          caller.put(of, "replaced", operand, Condition::version, is_known ? caller.version : input.take(8));
      break;
    }
    case 6:
      store.advance(operand * 20 * base::millisecond_ns);
      break;
    case 7:
      caller.sweep();
      break;
    case 8:
      caller.get_many(operand, input);
      break;
    case 9:
      caller.put_many(operand, input);
      break;
    case 10:
      caller.look_at_all();
      break;
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
  const client::ClientOptions options{
      .timeout_ns = 50 * base::millisecond_ns, .cache_bytes = 100'000, .locations = &locations};
  const bool is_far = (input.take(1) & 1) != 0;
  LibraryCaller library(is_far ? in_order(store) : store->attach(), options);
  TableCaller table(first);
  for (std::uint64_t i = 0; i < 24; ++i) {
    LOCH_CHECK(first.put(key_number(i), std::string(i * i * 20, 'x'), i % 5 == 0 ? store->now() + 1 : 0)
                   .has_value());
  }
  const std::array<Caller*, 2> callers = {&library, &table};
  for (int commands = 0; !input.empty() && commands < 64; ++commands) {
    const std::uint64_t command = input.take(1);
    if ((command & 1) != 0) {
      damage(*store, input, first);
    } else {
      call(*store, input, *callers[command >> 1 & 1], (command >> 2) % call_count);
    }
  }
  for (Caller* caller : callers) {
    for (std::uint64_t i = 0; i < 26; ++i) {
      const auto got = caller->get(fmt::format("k{}", i), i);
      if (!got) LOCH_CHECK(got.error().code != Errc::timed_out);
    }
    caller->get_many(0, input);
    caller->look_at_all();
    caller->collect();
  }
  store->advance(10 * base::second_ns);
  std::ignore = library.put("last", std::string(5'000, 'z'), 0, Condition::none, 0);
  library.collect();
}

}  // namespace
}  // namespace loch::hash

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  loch::hash::run({data, size});
  return 0;
}
