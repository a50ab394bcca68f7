#include "memory/attachment.h"

#include <algorithm>
#include <utility>

#include "coro/scope.h"

namespace loch::memory {

Attachment::Attachment(std::shared_ptr<StoreMemory> memory, const Placement& placement)
    : memory_(std::move(memory)), placement_(placement), endpoint_(memory_->connect()) {}

Result<std::unique_ptr<Attachment>> Attachment::open(std::shared_ptr<StoreMemory> memory,
                                                     const Placement& placement) {
  std::unique_ptr<Attachment> attachment(new Attachment(std::move(memory), placement));
  const RegionMap& map = attachment->region_map();
  std::optional<Error> unreached;
  for (std::uint32_t number = 0; number < map.nodes.size(); ++number) {
    auto session = Session::open(attachment->memory_, attachment->endpoint_, number);
    if (!session && session.error().code == Errc::unavailable && !attachment->has_failed()) {
      if (!unreached) unreached = std::move(session.error());
      continue;
    }
    if (!session) return std::unexpected(std::move(session.error()));
    auto allocator = std::make_unique<Allocator>(**session);
    attachment->nodes_.push_back({std::move(*session), std::move(allocator)});
  }
  if (attachment->nodes_.empty()) return std::unexpected(std::move(*unreached));
  attachment->by_number_.resize(map.nodes.size());
  for (const Node& node : attachment->nodes_) {
    attachment->by_number_[node.session->node()] = &node;
    for (const fabric::RegionId region : node.session->regions().data) attachment->by_region_[region] = &node;
  }
  // A node that took this client for dead before the last one knew it can not have told that one so: whoever
  // is still attached to all of them now is known to all of them.
  if (attachment->nodes_.size() > 1) {
    if (auto fresh = attachment->endpoint_->run(attachment->refresh()); !fresh)
      return std::unexpected(std::move(fresh.error()));
  }
  return attachment;
}

Attachment::~Attachment() {
  for (Node& node : nodes_) node.allocator = nullptr;
  for (Node& node : nodes_) node.session = nullptr;
}

void Attachment::Operation::begin_others() {
  const auto& nodes = attachment_.nodes_;
  others_ = std::make_unique_for_overwrite<base::Nanos[]>(nodes.size() - 1);
  for (std::size_t i = 1; i < nodes.size(); ++i) others_[i - 1] = nodes[i].session->begin_operation();
}

void Attachment::Operation::end_others() {
  const auto& nodes = attachment_.nodes_;
  for (std::size_t i = 1; i < nodes.size(); ++i) nodes[i].session->end_operation(others_[i - 1]);
}

Attachment::Pin::Pin(Attachment& attachment) : attachment_(attachment) {
  for (const Node& node : attachment.nodes_) starts_.push_back(node.session->pin());
}

Attachment::Pin::~Pin() {
  for (std::size_t i = 0; i < starts_.size(); ++i) attachment_.nodes_[i].session->unpin(starts_[i]);
}

bool Attachment::all_may_act() {
  bool all = true;
  for (const Node& node : nodes_) all = node.session->may_act() && all;
  return all;
}

coro::Task<Result<void>> Attachment::refresh() {
  if (nodes_.size() == 1) co_return co_await nodes_.front().session->refresh();
  std::vector<coro::Task<Result<void>>> refreshing;
  refreshing.reserve(nodes_.size());
  coro::Scope scope(endpoint_->queue());
  for (const Node& node : nodes_) {
    refreshing.push_back(node.session->refresh());
    scope.start(refreshing.back());
  }
  co_await scope.join();
  Result<void> all;
  for (auto& each : refreshing) {
    if (auto done = each.take(); !done && all) all = std::move(done);
  }
  co_return all;
}

Stats Attachment::stats() const {
  Stats sum;
  for (const Node& node : nodes_) sum += node.session->stats();
  return sum;
}

void Attachment::set_guard(ReuseGuard* guard) {
  for (const Node& node : nodes_) node.allocator->set_guard(guard);
}

void Attachment::close() {
  for (const Node& node : nodes_) endpoint_->run(node.allocator->close());
}

std::size_t Attachment::place(std::uint32_t home) {
  std::uint32_t wanted = home;
  if (placement_.policy == Placement::Policy::spread) return next_++ % nodes_.size();
  if (placement_.policy != Placement::Policy::by_key) wanted = placement_.node;
  const auto found = std::ranges::find(nodes_, wanted, [](const Node& node) { return node.session->node(); });
  return found != nodes_.end() ? static_cast<std::size_t>(found - nodes_.begin()) : next_++ % nodes_.size();
}

coro::Task<Result<ItemRef>> Attachment::allocate(std::uint64_t bytes, std::uint32_t home) {
  if (nodes_.size() == 1) [[likely]]
    co_return co_await nodes_.front().allocator->allocate(bytes);
  const std::size_t first = place(home);
  auto item = co_await nodes_[first].allocator->allocate(bytes);
  if (placement_.policy == Placement::Policy::node) co_return item;
  for (std::size_t i = 1; i < nodes_.size() && !item && item.error().code == Errc::no_space; ++i)
    item = co_await nodes_[(first + i) % nodes_.size()].allocator->allocate(bytes);
  co_return item;
}

}  // namespace loch::memory
