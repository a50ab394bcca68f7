#include "server/keeper.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "memory/readers.h"
#include "memory/store_memory.h"

namespace loch::server {

Keeper::Keeper(fabric::Access access, NodeOf node_of)
    : access_(std::move(access)), node_of_(std::move(node_of)) {}

Result<std::shared_ptr<fabric::Fabric>> Keeper::open(const std::string& name) {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto kept = usable(name)) return std::shared_ptr<fabric::Fabric>(kept, kept->fabric.get());
  }
  auto attached = fabric::attach("shm://" + name, access_to(name));
  if (!attached) return attached;
  memory::RegionMap map = memory::RegionMap::of_one_host();
  const auto node = node_of_ ? node_of_(name) : std::nullopt;
  if (node) map = {.nodes = {{.control = fabric::control_region_of(*node), .data = {}}}, .shards = {}};
  const auto memory = memory::StoreMemory::attach(*attached, map);
  if (!memory) return std::unexpected(memory.error());
  const std::shared_ptr<Kept> kept(new Kept{.fabric = std::move(*attached),
                                            .region = map.nodes.front().control,
                                            .bytes_max = (*memory)->geometry().max_bytes,
                                            .identity = {(*memory)->geometry().hash_seed, 0}});
  if (node) kept->identity.second = kept->control.word(memory::incarnation_at(*node, *node).offset_bytes);
  // Before anybody goes by it: in a new store it has not begun.
  kept->control.raise_latest(kept->endpoint.now());
  if (kept->fabric->atomics() == Atomics::device) memory::make_room_for_readers(kept->control);
  if (auto intact = kept->fabric->intact(); !intact) return std::unexpected(std::move(intact.error()));
  {
    const std::scoped_lock lock(mutex_);
    // Another thread may have opened it meanwhile, and clients use that one already.
    if (const auto other = usable(name)) return std::shared_ptr<fabric::Fabric>(other, other->fabric.get());
    std::erase_if(kept_, [](const auto& each) { return each.second.expired(); });
    kept_[name] = kept;
  }
  return std::shared_ptr<fabric::Fabric>(kept, kept->fabric.get());
}

std::shared_ptr<Keeper::Kept> Keeper::usable(const std::string& name) const {
  const auto found = kept_.find(name);
  auto kept = found == kept_.end() ? nullptr : found->second.lock();
  const bool is_usable = kept != nullptr && kept->fabric->is_published() && kept->fabric->intact();
  return is_usable ? kept : nullptr;
}

std::shared_ptr<Keeper::Kept> Keeper::kept(const fabric::Fabric& store) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [name, weak] : kept_) {
    if (auto kept = weak.lock(); kept != nullptr && kept->fabric.get() == &store) return kept;
  }
  return nullptr;
}

std::uint64_t Keeper::bytes_max(const fabric::Fabric& store) {
  const auto of = kept(store);
  return of == nullptr ? 0 : of->bytes_max;
}

std::byte* Keeper::time_of(const fabric::Fabric& store) {
  const auto of = kept(store);
  return of == nullptr ? nullptr : of->control.bytes() + memory::latest_offset;
}

Result<std::optional<fabric::OwnWords>> Keeper::admit_reader(fabric::Fabric& store, std::uint32_t client) {
  const auto of = kept(store);
  if (of == nullptr)
    return fail(Errc::unavailable, "host", "the store is not lent any more; another has taken its name");
  return memory::admit_reader(of->control, client, store.atomics());
}

void Keeper::dismiss_reader(fabric::Fabric& store, std::uint32_t client) {
  if (const auto of = kept(store)) memory::dismiss_reader(of->control, client);
}

fabric::Readers Keeper::readers() {
  return {.admit = [this](auto& store, auto client) { return admit_reader(store, client); },
          .dismiss = [this](auto& store, auto client) { dismiss_reader(store, client); }};
}

void Keeper::expect(std::vector<Expected> stores) {
  const std::scoped_lock lock(mutex_);
  expected_ = std::move(stores);
}

fabric::Access Keeper::access_to(const std::string& name) {
  fabric::Access access = access_;
  const std::scoped_lock lock(mutex_);
  access.not_of_others = std::ranges::any_of(
      expected_, [&name](const Expected& store) { return store.name == name && !store.may_be_of_others; });
  return access;
}

std::vector<std::shared_ptr<fabric::Fabric>> Keeper::open_expected() {
  std::vector<Expected> expected;
  {
    const std::scoped_lock lock(mutex_);
    expected = expected_;
  }
  std::vector<std::shared_ptr<fabric::Fabric>> opened;
  for (const Expected& each : expected) {
    if (auto store = open(each.name)) opened.push_back(std::move(*store));
  }
  return opened;
}

std::map<std::string, Keeper::Seen> Keeper::seen() {
  std::map<std::string, Seen> seen;
  const auto held = open_expected();
  const std::scoped_lock lock(mutex_);
  std::map<std::string, Told> told;
  for (const auto& [name, weak] : kept_) {
    const auto kept = weak.lock();
    if (kept == nullptr) continue;
    Told now{.of = kept->identity, .totals = kept->control.totals()};
    const auto before = told_.find(name);
    if (before != told_.end() && before->second.of == now.of) {
      std::ranges::transform(now.totals.values, before->second.totals.values, now.totals.values.begin(),
                             [](std::uint64_t is, std::uint64_t was) { return std::max(is, was); });
    }
    seen[name] = {
        .totals = now.totals, .usage = memory::usage_of(kept->endpoint), .bytes_max = kept->bytes_max};
    told[name] = now;
  }
  told_ = std::move(told);
  return seen;
}

std::uint64_t Keeper::count() { return seen().size(); }

}  // namespace loch::server
