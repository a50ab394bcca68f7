// For tests: a hash store in a MemoryStore, clients of it that can die, and clients whose every touch of the
// index is a step that a test can stop at.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/testing/memory_store.h"
#include "hash/shards.h"
#include "hash/table.h"
#include "memory/attachment.h"

namespace loch::hash::fake {

using fabric::fake::MemoryStore;

std::shared_ptr<MemoryStore> make_store(memory::Geometry geometry = {.hash_seed = 42},
                                        MemoryStore::Limits limits = {}, unsigned level = first_level);

// One process with one session on each node.
class Client {
 public:
  explicit Client(MemoryStore& store, TableOptions options = {}) : Client(store, store.attach(), options) {}
  Client(MemoryStore& store, std::shared_ptr<fabric::Fabric> fabric, TableOptions options,
         const memory::RegionMap& map = memory::RegionMap::of_one_host(), memory::Placement placement = {});

  [[nodiscard]] hash::Key key_of(std::string_view bytes) const;

  Result<std::string> get(std::string_view k);
  // By who waits for each step, of a remote session.
  Result<std::string> get_waiting(std::string_view k);
  // In a batch, of a remote session.
  Result<std::string> get_in_batch(std::string_view k);
  Result<std::uint64_t> put(std::string_view k, std::string_view v, base::Nanos expires_at = 0);
  // In a batch, of a remote session. Errors: besides those of a put, unavailable, if it can not be in one
  // now.
  Result<std::uint64_t> put_in_batch(std::string_view k, std::string_view v);
  Result<std::uint64_t> insert(std::string_view k, std::string_view v);
  Result<std::uint64_t> replace(std::string_view k, std::string_view v, std::uint64_t version);
  Result<void> remove(std::string_view k, std::optional<std::uint64_t> version = std::nullopt);
  // All items, or the error; a key that is visited twice is there twice.
  Result<std::vector<std::pair<std::string, std::string>>> walk();
  Result<std::uint64_t> count();
  Result<Collected> collect();
  Result<Report> check();

  template <class T>
  T run(coro::Task<T> task) {
    return attachment_->endpoint().run(std::move(task));
  }

  static coro::Task<Result<std::string>> get_task(Client* self, std::string k);
  static coro::Task<Result<std::uint64_t>> put_task(Client* self, std::string k, std::string v,
                                                    Condition condition, std::uint64_t version,
                                                    base::Nanos expires_at);
  static coro::Task<Result<void>> remove_task(Client* self, std::string k,
                                              std::optional<std::uint64_t> version = std::nullopt);

  // Of the first node, and of the first shard.
  [[nodiscard]] memory::Session& session() const { return *attachment_->nodes().front().session; }
  [[nodiscard]] memory::Allocator& allocator() { return *attachment_->nodes().front().allocator; }
  [[nodiscard]] Table& table() { return *shards_->only(); }
  [[nodiscard]] Shards& shards() { return *shards_; }
  // Of a key's shard.
  [[nodiscard]] Table& table(std::string_view k) { return **shards_->table_of(key_of(k).hash); }
  [[nodiscard]] memory::Attachment& attachment() { return *attachment_; }
  [[nodiscard]] MemoryStore& store() const { return store_; }
  [[nodiscard]] std::uint64_t counted(Counter counter) const { return attachment_->stats()[counter]; }
  void die() { store_.kill(session().client()); }

 private:
  static coro::Task<Result<std::string>> get_in_batch_task(Client* self, std::string k);
  static coro::Task<Result<std::uint64_t>> put_in_batch_task(Client* self, std::string k, std::string v);

  MemoryStore& store_;
  std::unique_ptr<memory::Attachment> attachment_;
  std::unique_ptr<Shards> shards_;
};

// A client that touches the index by posted operations, and `before` is called before each operation on a
// slot.
Client watched_client(MemoryStore& store, std::function<void()> before, TableOptions options = {});

std::string key_number(int i);  // "key7"

// ---- the index, seen and touched from outside

Directory directory_of(const MemoryStore& store);
SlotWord slot(const MemoryStore& store, SlotNumber number);
void set_slot(const MemoryStore& store, SlotNumber number, SlotWord word);
// The index begins to grow, and no slot is split yet. The next helper splits `chunk`; one that is past the
// end leaves the slots as they are to whoever needs them split.
inline constexpr std::uint64_t no_chunk = 0xffff;
void begin_growth(MemoryStore& store, std::uint64_t chunk = no_chunk);

Locations locations(const Client& client, std::string_view k, unsigned candidates = 3);

// A key that `wanted` accepts; `prefix` tells searches apart.
std::string find_key(const Client& client, const std::string& prefix,
                     const std::function<bool(const Locations&, std::uint64_t hash)>& wanted);

// Puts some other key's item into `number`, which is its home; its alternates are empty.
std::string occupy(Client& client, SlotNumber number);

// ---- steps

// Where a client is: on the store's host, but for the index, which it does not map; or on another one, by a
// network that keeps the order of a batch.
enum class Place : std::uint8_t { here, elsewhere };

// A client that touches the index by posted operations, one batch a step; only those that touch slots of
// interest count, if there are any. Before step `at` of the task that `run` runs, `then` is called; with
// `dies` the client is gone after that, in the midst of its operation.
class Stepper {
 public:
  explicit Stepper(MemoryStore& store, TableOptions options = {}, Place place = Place::here);

  [[nodiscard]] Client& client() { return client_; }
  // Another client elsewhere finds the item of a key; if this one is there, it knows where that was.
  void learn_location(std::string_view k);
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
  TableOptions with_locations(TableOptions options);
  // Told before each posted batch is carried out; true: not now.
  bool step(std::span<const fabric::Operation> batch);

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
