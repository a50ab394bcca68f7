#include "hash/testing/test_table.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>

#include "base/check.h"
#include "fabric/testing/posting_fabric.h"

namespace loch::hash::fake {
namespace {

using During = memory::Attachment::Operation;

// Keys by the slot that is their home. Each is looked for once, whatever the store: tests ask for the same
// ones in thousands of stores that are alike. For one thread.
class HomeKeys {
 public:
  static HomeKeys& of(const Client& client) {
    static std::map<std::pair<std::uint64_t, std::uint64_t>, HomeKeys> all;
    return all[{client.session().geometry().hash_seed, directory_of(client.store()).encode()}];
  }

  // A key with this home, and with slots that are all empty.
  std::string find(const Client& client, SlotNumber home) {
    const std::vector<std::string>& at_home = by_home_[home];
    for (std::size_t i = 0;; ++i) {
      while (i == at_home.size()) add(client);
      const Locations at = locations(client, at_home[i]);
      const auto is_empty = [&](SlotNumber its) { return slot(client.store(), its).is(SlotType::empty); };
      if (std::ranges::all_of(std::span(at.slot).first(at.candidates), is_empty)) return at_home[i];
    }
  }

 private:
  void add(const Client& client) {
    LOCH_CHECK(next_ < 10'000'000);
    std::string k = fmt::format("filler{}", next_++);
    by_home_[locations(client, k).slot[0]].push_back(std::move(k));
  }

  int next_ = 0;
  std::map<SlotNumber, std::vector<std::string>> by_home_;
};

}  // namespace

std::shared_ptr<MemoryStore> make_store(memory::Geometry geometry, MemoryStore::Limits limits,
                                        unsigned level) {
  return MemoryStore::create({.regions = {{memory::control_region, memory::control_bytes},
                                          {memory::index_region, row_bytes << level},
                                          {memory::first_data_region, 2 * memory::block_bytes}},
                              .fill =
                                  [&](std::span<const fabric::Mapping> regions) {
                                    memory::StoreMemory::initialize_control(regions[0].base, geometry);
                                    Table::initialize(regions[0].base + memory::index_root_offset, regions[1],
                                                      {.level = static_cast<std::uint8_t>(level)});
                                  }},
                             limits);
}

Client::Client(MemoryStore& store, std::shared_ptr<fabric::Fabric> fabric, TableOptions options,
               const memory::RegionMap& map, memory::Placement placement)
    : store_(store) {
  auto attached = memory::StoreMemory::attach(std::move(fabric), map);
  LOCH_CHECK(attached.has_value());
  auto opened = memory::Attachment::open(*attached, placement);
  LOCH_CHECK(opened.has_value());
  attachment_ = std::move(*opened);
  shards_ = std::make_unique<Shards>(*attachment_, options);
  LOCH_CHECK(run(shards_->open()).has_value());
}

Key Client::key_of(std::string_view bytes) const { return Key::of(bytes, session().geometry().hash_seed); }

Result<std::string> Client::get(std::string_view k) { return run(get_task(this, std::string(k))); }
Result<std::string> Client::get_waiting(std::string_view k) {
  const During during(*attachment_);
  Reader& reader = table(k).reader();
  Known known = shards_->known(key_of(k));
  std::array<std::byte, 256> room;
  ShortWay way = reader.short_way(&known, room);
  const auto item = way.go_waiting();
  if (!item) return std::unexpected(item.error());
  if (*item) return std::string((*item)->value());
  const auto found = run(reader.get_after(&way));
  if (!found) return std::unexpected(found.error());
  return std::string(found->view.value());
}
Result<std::string> Client::get_in_batch(std::string_view k) {
  return run(get_in_batch_task(this, std::string(k)));
}
Result<std::uint64_t> Client::put(std::string_view k, std::string_view v, base::Nanos expires_at) {
  return run(put_task(this, std::string(k), std::string(v), Condition::none, 0, expires_at));
}
Result<std::uint64_t> Client::put_in_batch(std::string_view k, std::string_view v) {
  return run(put_in_batch_task(this, std::string(k), std::string(v)));
}
Result<std::uint64_t> Client::insert(std::string_view k, std::string_view v) {
  return run(put_task(this, std::string(k), std::string(v), Condition::absent, 0, 0));
}
Result<std::uint64_t> Client::replace(std::string_view k, std::string_view v, std::uint64_t version) {
  return run(put_task(this, std::string(k), std::string(v), Condition::version, version, 0));
}
Result<void> Client::remove(std::string_view k, std::optional<std::uint64_t> version) {
  return run(remove_task(this, std::string(k), version));
}

Result<std::vector<std::pair<std::string, std::string>>> Client::walk() {
  std::vector<std::pair<std::string, std::string>> items;
  const Shards::Visit visit = [&items](const ItemView& view) {
    items.emplace_back(view.key(), view.value());
    return true;
  };
  auto done = run(shards_->for_each(&visit));
  if (!done) return std::unexpected(std::move(done.error()));
  return items;
}
Result<std::uint64_t> Client::count() { return run(shards_->count()); }
Result<Collected> Client::collect() { return run(shards_->collect_garbage()); }
Result<Report> Client::check() { return run(shards_->check()); }

coro::Task<Result<std::string>> Client::get_task(Client* self, std::string k) {
  const During during(*self->attachment_);
  auto found = co_await self->shards_->get(self->key_of(k));
  if (!found) co_return std::unexpected(std::move(found.error()));
  co_return std::string(found->view.value());
}
coro::Task<Result<std::string>> Client::get_in_batch_task(Client* self, std::string k) {
  const During during(*self->attachment_);
  std::string value;
  std::array<GroupedGet, 1> gets{{{.known = self->shards_->known(self->key_of(k)), .into = &value}}};
  co_await self->shards_->get_together(gets);
  if (!gets[0].outcome) co_return std::unexpected(std::move(gets[0].outcome.error()));
  co_return value;
}
coro::Task<Result<std::uint64_t>> Client::put_task(Client* self, std::string k, std::string v,
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
coro::Task<Result<std::uint64_t>> Client::put_in_batch_task(Client* self, std::string k, std::string v) {
  const During during(*self->attachment_);
  Table& table = self->table(k);
  auto put = table.puts_together() ? table.grouped_put({.key = self->key_of(k), .value = v}) : std::nullopt;
  if (!put) co_return fail(Errc::unavailable, "put", "not in a batch now");
  co_await table.put_together({&*put, 1});
  co_return put->outcome;
}
coro::Task<Result<void>> Client::remove_task(Client* self, std::string k,
                                             std::optional<std::uint64_t> version) {
  const During during(*self->attachment_);
  co_return co_await self->table(k).remove(self->key_of(k), version);
}

Client watched_client(MemoryStore& store, std::function<void()> before, TableOptions options) {
  const auto tell = [before = std::move(before)](const fabric::Operation& operation) {
    if (operation.at.region == memory::index_region) before();
  };
  return Client(store,
                std::make_shared<fabric::fake::PostingFabric>(
                    store.shared_from_this(),
                    fabric::fake::PostingOptions{
                        .mapped = [](fabric::RegionId region) { return region != memory::index_region; },
                        .before = tell}),
                options);
}

std::string key_number(int i) { return fmt::format("key{}", i); }

Directory directory_of(const MemoryStore& store) {
  return Directory::decode(fabric::load_word(store.at(index_of_one_host.directory())));
}
SlotWord slot(const MemoryStore& store, SlotNumber number) {
  return {fabric::load_word(store.at(index_of_one_host.slot(number)))};
}
void set_slot(const MemoryStore& store, SlotNumber number, SlotWord word) {
  fabric::store_word(store.at(index_of_one_host.slot(number)), word.raw);
}
void begin_growth(MemoryStore& store, std::uint64_t chunk) {
  const Directory before = directory_of(store);
  LOCH_CHECK(store.attach()->extend(memory::index_region, 2 * before.rows() * row_bytes).has_value());
  fabric::store_word(store.at(index_of_one_host.split_cursor()),
                     ChunkCursor{.level = before.level, .chunk = chunk}.encode());
  fabric::store_word(store.at(index_of_one_host.directory()), before.begin_growing().encode());
}

Locations locations(const Client& client, std::string_view k, unsigned candidates) {
  return Locations::of(client.key_of(k).hash, directory_of(client.store()), candidates);
}

std::string find_key(const Client& client, const std::string& prefix,
                     const std::function<bool(const Locations&, std::uint64_t hash)>& wanted) {
  const std::uint64_t seed = client.session().geometry().hash_seed;
  const Directory directory = directory_of(client.store());
  for (int i = 0;; ++i) {
    LOCH_CHECK(i < 10'000'000);
    std::string k = fmt::format("{}{}", prefix, i);
    const std::uint64_t hash = Key::of(k, seed).hash;
    if (wanted(Locations::of(hash, directory, 3), hash)) return k;
  }
}

std::string occupy(Client& client, SlotNumber number) {
  const std::string k = HomeKeys::of(client).find(client, number);
  LOCH_CHECK(client.put(k, std::string("filler") + std::string(30'000, '\0')).has_value());
  return k;
}

namespace {

std::shared_ptr<fabric::Fabric> posting(MemoryStore& store, Place place,
                                        std::function<bool(std::span<const fabric::Operation>)> held) {
  fabric::fake::PostingOptions options{.keeps_order = place == Place::elsewhere, .held = std::move(held)};
  if (place == Place::here)
    options.mapped = [](fabric::RegionId region) { return region != memory::index_region; };
  return std::make_shared<fabric::fake::PostingFabric>(store.shared_from_this(), std::move(options));
}

}  // namespace

Stepper::Stepper(MemoryStore& store, TableOptions options, Place place)
    : client_(store, posting(store, place, [this](auto batch) { return step(batch); }),
              with_locations(options)) {}

void Stepper::learn_location(std::string_view k) {
  Client scout(client_.store(), posting(client_.store(), Place::elsewhere, {}), with_locations({}));
  LOCH_CHECK(scout.get(k).has_value());
}

TableOptions Stepper::with_locations(TableOptions options) {
  options.locations = &locations_;
  return options;
}

bool Stepper::step(std::span<const fabric::Operation> batch) {
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

}  // namespace loch::hash::fake
