// For tests: a hash store in a MemoryStore, clients of it that can die, and clients whose every touch of the
// index is a step that a test can stop at.
#pragma once

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fabric/testing/memory_store.h"
#include "fabric/testing/posting_fabric.h"
#include "hash/shards.h"
#include "hash/table.h"
#include "memory/attachment.h"

namespace loch::hash::fake {

using fabric::fake::MemoryStore;

inline std::shared_ptr<MemoryStore> make_store(memory::Geometry geometry = {.hash_seed = 42},
                                               MemoryStore::Limits limits = {}) {
  return MemoryStore::create({.regions = {{memory::control_region, memory::control_bytes},
                                          {memory::index_region, Table::initial_index_bytes},
                                          {memory::first_data_region, 2 * memory::block_bytes}},
                              .fill =
                                  [&](std::span<const fabric::Mapping> regions) {
                                    memory::StoreMemory::initialize_control(regions[0].base, geometry);
                                    Table::initialize(regions[0].base + memory::index_root_offset,
                                                      regions[1]);
                                  }},
                             limits);
}

// One process with one session on each node.
class Client {
 public:
  explicit Client(MemoryStore& store, TableOptions options = {}) : Client(store, store.attach(), options) {}
  Client(MemoryStore& store, std::shared_ptr<fabric::Fabric> fabric, TableOptions options,
         const memory::RegionMap& map = memory::RegionMap::of_one_host(), memory::Placement placement = {})
      : store_(store) {
    auto attached = memory::StoreMemory::attach(std::move(fabric), map);
    LOCH_CHECK(attached.has_value());
    auto opened = memory::Attachment::open(*attached, placement);
    LOCH_CHECK(opened.has_value());
    attachment_ = std::move(*opened);
    shards_ = std::make_unique<Shards>(*attachment_, options);
    LOCH_CHECK(run(shards_->open()).has_value());
  }

  [[nodiscard]] hash::Key key_of(std::string_view bytes) const {
    return hash::Key::of(bytes, session().geometry().hash_seed);
  }

  Result<std::string> get(std::string_view k) { return run(get_task(this, std::string(k))); }
  // In a batch, of a remote session.
  Result<std::string> get_in_batch(std::string_view k) {
    return run(get_in_batch_task(this, std::string(k)));
  }
  Result<std::uint64_t> put(std::string_view k, std::string_view v, base::Nanos expires_at = 0) {
    return run(put_task(this, std::string(k), std::string(v), Condition::none, 0, expires_at));
  }
  // In a batch, of a remote session. Errors: besides those of a put, unavailable, if it can not be in one
  // now.
  Result<std::uint64_t> put_in_batch(std::string_view k, std::string_view v) {
    return run(put_in_batch_task(this, std::string(k), std::string(v)));
  }
  Result<std::uint64_t> insert(std::string_view k, std::string_view v) {
    return run(put_task(this, std::string(k), std::string(v), Condition::absent, 0, 0));
  }
  Result<std::uint64_t> replace(std::string_view k, std::string_view v, std::uint64_t version) {
    return run(put_task(this, std::string(k), std::string(v), Condition::version, version, 0));
  }
  Result<void> remove(std::string_view k) { return run(remove_task(this, std::string(k))); }
  // All items, or the error; a key that is visited twice is there twice.
  Result<std::vector<std::pair<std::string, std::string>>> walk() {
    std::vector<std::pair<std::string, std::string>> items;
    const Shards::Visit visit = [&items](const ItemView& view) {
      items.emplace_back(view.key(), view.value());
      return true;
    };
    auto done = run(shards_->for_each(&visit));
    if (!done) return std::unexpected(std::move(done.error()));
    return items;
  }
  Result<std::uint64_t> count() { return run(shards_->count()); }
  Result<Collected> collect() { return run(shards_->collect_garbage()); }
  Result<Report> check() { return run(shards_->check()); }

  template <class T>
  T run(coro::Task<T> task) {
    return attachment_->endpoint().run(std::move(task));
  }

  static coro::Task<Result<std::string>> get_task(Client* self, std::string k) {
    const During during(*self->attachment_);
    auto found = co_await self->shards_->get(self->key_of(k));
    if (!found) co_return std::unexpected(std::move(found.error()));
    co_return std::string(found->view.value());
  }
  static coro::Task<Result<std::string>> get_in_batch_task(Client* self, std::string k) {
    const During during(*self->attachment_);
    std::string value;
    std::array<GroupedGet, 1> gets{{{.known = self->shards_->known(self->key_of(k)), .into = &value}}};
    co_await self->shards_->get_together(gets);
    if (!gets[0].outcome) co_return std::unexpected(std::move(gets[0].outcome.error()));
    co_return value;
  }
  static coro::Task<Result<std::uint64_t>> put_task(Client* self, std::string k, std::string v,
                                                    Condition condition, std::uint64_t version,
                                                    base::Nanos expires_at) {
    const During during(*self->attachment_);
    const WriteRequest request{.key = self->key_of(k),
                               .value = v,
                               .expires_at_ns = expires_at,
                               .condition = condition,
                               .version = version};
    co_return co_await self->table(k).put(request);
  }
  static coro::Task<Result<std::uint64_t>> put_in_batch_task(Client* self, std::string k, std::string v) {
    const During during(*self->attachment_);
    Table& table = self->table(k);
    auto put = table.puts_together() ? table.grouped_put({.key = self->key_of(k), .value = v}) : std::nullopt;
    if (!put) co_return fail(Errc::unavailable, "put", "not in a batch now");
    co_await table.put_together({&*put, 1});
    co_return put->outcome;
  }
  static coro::Task<Result<void>> remove_task(Client* self, std::string k) {
    const During during(*self->attachment_);
    co_return co_await self->table(k).remove(self->key_of(k));
  }

  // Of the first node, and of the first shard.
  [[nodiscard]] memory::Session& session() const { return *attachment_->nodes().front().session; }
  [[nodiscard]] memory::Allocator& allocator() { return *attachment_->nodes().front().allocator; }
  [[nodiscard]] Table& table() { return *shards_->only(); }
  [[nodiscard]] Shards& shards() { return *shards_; }
  // Of a key's shard.
  [[nodiscard]] Table& table(std::string_view k) { return **shards_->table_of(key_of(k).hash); }
  [[nodiscard]] memory::Attachment& attachment() { return *attachment_; }
  [[nodiscard]] MemoryStore& store() { return store_; }
  [[nodiscard]] std::uint64_t counted(Counter counter) const { return attachment_->stats()[counter]; }
  void die() { store_.kill(session().client()); }

 private:
  using During = memory::Attachment::Operation;

  MemoryStore& store_;
  std::unique_ptr<memory::Attachment> attachment_;
  std::unique_ptr<Shards> shards_;
};

// A client that touches the index by posted operations, and `before` is called before each operation on a
// slot.
inline Client watched_client(MemoryStore& store, std::function<void()> before) {
  const auto tell = [before = std::move(before)](const fabric::Operation& operation) {
    if (operation.at.region == memory::index_region) before();
  };
  return Client(store,
                std::make_shared<fabric::fake::PostingFabric>(
                    store.shared_from_this(),
                    fabric::fake::PostingOptions{
                        .mapped = [](fabric::RegionId region) { return region != memory::index_region; },
                        .before = tell}),
                {});
}

// ---- the index, seen and touched from outside

inline Directory directory_of(const MemoryStore& store) {
  return Directory::decode(fabric::load_word(store.at(index_of_one_host.directory())));
}
inline SlotWord slot(const MemoryStore& store, SlotNumber number) {
  return {fabric::load_word(store.at(index_of_one_host.slot(number)))};
}
inline void set_slot(const MemoryStore& store, SlotNumber number, SlotWord word) {
  fabric::store_word(store.at(index_of_one_host.slot(number)), word.raw);
}
// The index begins to grow, and no slot is split yet. The next helper splits `chunk`; one that is past the
// end leaves the slots as they are to whoever needs them split.
inline constexpr std::uint64_t no_chunk = 0xffff;
inline void begin_growth(MemoryStore& store, std::uint64_t chunk = no_chunk) {
  const Directory before = directory_of(store);
  LOCH_CHECK(store.attach()->extend(memory::index_region, 2 * before.rows() * row_bytes).has_value());
  fabric::store_word(store.at(index_of_one_host.split_cursor()),
                     std::uint64_t{before.level} << cursor_level_shift | chunk);
  fabric::store_word(store.at(index_of_one_host.directory()),
                     Directory{.level = before.level, .growing = true}.encode());
}

inline Locations locations(Client& client, std::string_view k, unsigned candidates = 3) {
  return Locations::of(client.key_of(k).hash, directory_of(client.store()), candidates);
}

// A key that `wanted` accepts; `prefix` tells searches apart.
inline std::string find_key(Client& client, const std::string& prefix,
                            const std::function<bool(const Locations&, std::uint64_t hash)>& wanted) {
  for (int i = 0;; ++i) {
    LOCH_CHECK(i < 10'000'000);
    std::string k = fmt::format("{}{}", prefix, i);
    if (wanted(locations(client, k), client.key_of(k).hash)) return k;
  }
}

// Puts some other key's item into `number`, which is its home; its alternates are empty.
inline std::string occupy(Client& client, SlotNumber number, const std::string& prefix = "filler") {
  const MemoryStore& store = client.store();
  const std::string k =
      find_key(client, fmt::format("{}{}.", prefix, number), [&](const Locations& at, std::uint64_t) {
        return at.slot[0] == number && slot(store, at.slot[0]).is(SlotType::empty) &&
               slot(store, at.slot[1]).is(SlotType::empty) && slot(store, at.slot[2]).is(SlotType::empty);
      });
  LOCH_CHECK(client.put(k, std::string("filler") + std::string(30'000, '\0')).has_value());
  return k;
}

// ---- steps

// Where a client is: on the store's host, but for the index, which it does not map; or on another one, by a
// network that keeps the order of a batch.
enum class Place : std::uint8_t { here, elsewhere };

// A client that touches the index by posted operations, one batch a step; only those that touch slots of
// interest count, if there are any. Before step `at` of the task that `run` runs, `then` is called; with
// `dies` the client is gone after that, in the midst of its operation.
class Stepper {
 public:
  explicit Stepper(MemoryStore& store, TableOptions options = {}, Place place = Place::here)
      : client_(store, posting(store, place, [this](auto batch) { return step(batch); }),
                with_locations(options)) {}

  [[nodiscard]] Client& client() { return client_; }
  // Another client elsewhere finds the item of a key; if this one is there, it knows where that was.
  void learn_location(std::string_view k) {
    Client scout(client_.store(), posting(client_.store(), Place::elsewhere, {}), with_locations({}));
    LOCH_CHECK(scout.get(k).has_value());
  }
  void look_at(std::vector<SlotNumber> slots) { interesting_ = std::move(slots); }

  // What the task returned; nothing if the client died before its end.
  template <class T>
  std::optional<T> run(coro::Task<T> task, int at, const std::function<void()>& then, bool dies = false) {
    steps_ = 0;
    at_ = at;
    then_ = then;
    dies_ = dies;
    dead_ = false;
    task.start();
    while (!task.done() && !dead_) client_.session().endpoint().step();
    then_ = nullptr;
    if (!dead_) return task.take();
    client_.die();
    // Its frame stays as it is: the dead free nothing.
    buried_.push_back(std::make_shared<coro::Task<T>>(std::move(task)));
    return std::nullopt;
  }

 private:
  static std::shared_ptr<fabric::Fabric> posting(
      MemoryStore& store, Place place, std::function<bool(std::span<const fabric::Operation>)> held) {
    fabric::fake::PostingOptions options{.keeps_order = place == Place::elsewhere, .held = std::move(held)};
    if (place == Place::here)
      options.mapped = [](fabric::RegionId region) { return region != memory::index_region; };
    return std::make_shared<fabric::fake::PostingFabric>(store.shared_from_this(), std::move(options));
  }
  TableOptions with_locations(TableOptions options) {
    options.locations = &locations_;
    return options;
  }
  // Told before each posted batch is carried out; true: not now.
  bool step(std::span<const fabric::Operation> batch) {
    if (dead_) return true;
    const bool counts = std::ranges::any_of(batch, [this](const fabric::Operation& operation) {
      return operation.at.region == memory::index_region &&
             (interesting_.empty() ||
              std::ranges::find(interesting_, operation.at.offset_bytes / 8) != interesting_.end());
    });
    if (!counts) return false;
    if (steps_++ != at_ || !then_) return false;
    const auto act = std::exchange(then_, nullptr);
    act();
    dead_ = dies_;
    return dead_;
  }

  int steps_ = 0;
  int at_ = -1;
  bool dies_ = false;
  bool dead_ = false;
  std::function<void()> then_;
  std::vector<SlotNumber> interesting_;
  LocationCache locations_{std::size_t{1} << 12};
  Client client_;
  std::vector<std::shared_ptr<void>> buried_;
};

}  // namespace loch::hash::fake
