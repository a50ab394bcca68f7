#include "memory/attachment.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <tuple>
#include <utility>

#include "base/planted.h"
#include "coro/scope.h"

namespace loch::memory {

Attachment::Attachment(std::shared_ptr<StoreMemory> memory, const Placement& placement)
    : memory_(std::move(memory)),
      placement_(placement),
      hosts_found_(memory_->fabric().hosts_found()),
      is_of_cluster_(region_map().nodes.front().control != control_region),
      endpoint_(memory_->connect()),
      left_out_(region_map().nodes.size()) {}

Result<std::unique_ptr<Attachment>> Attachment::open(std::shared_ptr<StoreMemory> memory,
                                                     const Placement& placement) {
  std::unique_ptr<Attachment> attachment(new Attachment(std::move(memory), placement));
  const auto numbers = attachment->endpoint_->run(attachment->find_nodes());
  if (!numbers) return std::unexpected(numbers.error());
  for (const std::uint32_t number : *numbers) {
    auto session = Session::open(attachment->memory_, attachment->endpoint_, number);
    if (!session) return std::unexpected(std::move(session.error()));
    auto allocator = std::make_unique<Allocator>(**session);
    attachment->nodes_.push_back({std::move(*session), std::move(allocator)});
  }
  for (const Node& node : attachment->nodes_)
    LOCH_CHECK(node.session->remote() == attachment->remote());  // a client maps all of a store, or nothing
  attachment->by_number_.resize(attachment->region_map().nodes.size());
  for (const Node& node : attachment->nodes_) {
    attachment->by_number_[node.session->node()] = &node;
    for (const fabric::RegionId region : node.session->regions().data) attachment->by_region_[region] = &node;
  }
  // A node that took this client for dead before it was known to the others can not have told them so;
  // whoever all nodes answer now is known to all of them.
  if (attachment->nodes_.size() > 1) {
    if (auto fresh = attachment->endpoint_->run(attachment->refresh()); !fresh)
      return std::unexpected(std::move(fresh.error()));
  }
  return attachment;
}

coro::Task<Result<std::vector<std::uint32_t>>> Attachment::find_nodes() {
  const auto count = static_cast<std::uint32_t>(region_map().nodes.size());
  if (count == 1) co_return std::vector<std::uint32_t>{0};
  std::vector<std::vector<std::uint64_t>> words(count);  // what each says of all; empty: not reached
  std::optional<Error> unreached;
  for (std::uint32_t node = 0; node < count; ++node) {
    if (region_map().nodes[node].is_gone) continue;
    // With what the part begins with, so that both are of the same one.
    const std::size_t words_bytes = count * sizeof(std::uint64_t);
    const auto bytes =
        co_await endpoint_->fetch({region_map().nodes[node].control, 0}, incarnations_offset + words_bytes);
    if (!bytes) {
      if (has_failed()) co_return std::unexpected(bytes.error());
      unreached = bytes.error();
      if (unreached->code != Errc::unavailable) left_out_[node] = unreached->detail;
      continue;
    }
    Superblock superblock;
    std::memcpy(&superblock, bytes->data(), sizeof superblock);
    if (auto sound = memory_->check_part(superblock); !sound) {
      left_out_[node] = std::move(sound.error().detail);
      unreached = fail(sound.error().code, "open",
                       fmt::format("{}: {}", memory_->name_of_node(node), left_out_[node]))
                      .error();
      continue;
    }
    words[node].resize(count);
    std::memcpy(words[node].data(), bytes->data() + incarnations_offset, words_bytes);
  }
  std::vector<std::uint32_t> found;
  for (std::uint32_t node = 0; node < count; ++node) {
    if (!region_map().nodes[node].is_gone && is_known_by_all(node, words)) found.push_back(node);
  }
  if (found.empty()) {
    if (unreached) co_return std::unexpected(std::move(*unreached));
    co_return fail(Errc::unavailable, "open",
                   fmt::format("{}: no host has the memory that the others know it by; make the store anew",
                               memory_->fabric().location()));
  }
  for (const std::uint32_t by : found) {
    for (const std::uint32_t of : found) {
      if (auto said = co_await introduce(by, of, words[of][of], words[by][of]); !said)
        co_return std::unexpected(std::move(said.error()));
    }
  }
  co_return found;
}

// Whether no node that is reached knows another incarnation of this one. What one says that is not reached
// does not matter yet: nobody who goes by its words is attached to this one before the two agree.
bool Attachment::is_known_by_all(std::uint32_t node,
                                 const std::vector<std::vector<std::uint64_t>>& words) const {
  if (words[node].empty()) return false;
  if (base::planted(base::Planted::dispute_ignored)) return true;
  for (std::uint32_t other = 0; other < words.size(); ++other) {
    if (other == node || words[other].empty()) continue;
    if (words[other][node] != 0 && words[other][node] != words[node][node]) return false;
  }
  return true;
}

// Node `by` knows from now on which incarnation node `of` is of.
coro::Task<Result<void>> Attachment::introduce(std::uint32_t by, std::uint32_t of, std::uint64_t is,
                                               std::uint64_t known) {
  // One that only reads leaves it to others: where nobody has been attached to both, no word names what lies
  // on the other one, and whoever comes later finds this client attached to the same as itself, or gone.
  if (memory_->fabric().read_only()) co_return Result<void>{};
  if (known == is || base::planted(base::Planted::dispute_ignored)) co_return Result<void>{};
  const auto before = co_await endpoint_->compare_swap(incarnation_at(by, of), 0, is);
  if (!before) co_return std::unexpected(before.error());
  if (*before == 0 || *before == is) co_return Result<void>{};
  co_return fail(Errc::unavailable, "open", "a host came back as another one meanwhile; try again");
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

Result<void> Attachment::Look::again(base::Nanos timeout_ns, const char* operation, std::uint64_t key_hash) {
  lapses_ = attachment_.lapses();
  const base::Nanos now = attachment_.nodes_.front().session->now();
  const base::Nanos tried_for = now - since_.value_or(now);
  since_ = now - tried_for;
  if (tried_for < timeout_ns) return {};
  return fail(Errc::timed_out, operation,
              fmt::format("held up again and again for {} ms, or the store's time runs away from the clock "
                          "here; all its processes on this host are to have one clock",
                          tried_for / base::millisecond_ns),
              key_hash);
}

Attachment::Pin::Pin(Attachment& attachment) : attachment_(attachment) {
  attachment_.pins_.fetch_add(1, std::memory_order_relaxed);
  for (const Node& node : attachment.nodes_) starts_.push_back(node.session->pin());
}

Attachment::Pin::~Pin() {
  for (std::size_t i = 0; i < starts_.size(); ++i) attachment_.nodes_[i].session->unpin(starts_[i]);
  attachment_.pins_.fetch_sub(1, std::memory_order_release);  // the last that is done to it
}

// Of each it rises, so that the sum is as it was if none has.
std::uint64_t Attachment::lapses_of_all() const {
  std::uint64_t sum = 0;
  for (const Node& node : nodes_) sum += node.session->lapses();
  return sum;
}

bool Attachment::has_any_lapsed_since(std::uint64_t before) {
  for (const Node& node : nodes_) std::ignore = node.session->has_lapsed_since(before);
  return lapses_of_all() != before;
}

coro::Task<void> Attachment::refresh_each(std::vector<Result<void>>* outcomes) {
  std::vector<coro::Task<Result<void>>> refreshing;
  refreshing.reserve(nodes_.size());
  for (const Node& node : nodes_) refreshing.push_back(node.session->refresh());
  co_await coro::run_together(&endpoint_->queue(), std::span(refreshing));
  for (auto& each : refreshing) outcomes->push_back(each.take());
}

coro::Task<Result<void>> Attachment::refresh() {
  if (nodes_.size() == 1) co_return co_await nodes_.front().session->refresh();
  std::vector<Result<void>> outcomes;
  co_await refresh_each(&outcomes);
  for (Result<void>& each : outcomes) {
    if (!each) co_return std::move(each);
  }
  co_return Result<void>{};
}

coro::Task<Result<void>> Attachment::refresh_for(std::uint32_t number) {
  if (nodes_.size() == 1) co_return co_await nodes_.front().session->refresh();
  std::vector<Result<void>> outcomes;
  co_await refresh_each(&outcomes);
  co_return std::move(outcomes[static_cast<std::size_t>(by_number_[number] - nodes_.data())]);
}

Stats Attachment::stats() const {
  Stats sum;
  for (const Node& node : nodes_) sum += node.session->stats();
  return sum;
}

std::uint64_t Attachment::newest_epoch() const {
  std::uint64_t newest = region_map().epoch;
  for (const Node& node : nodes_) newest = std::max(newest, node.session->control().word(map_epoch_offset));
  return newest;
}

bool Attachment::takes_items(const Node& node) {
  return shared(node.session->control().word(closed_offset)).load(std::memory_order_acquire) == 0;
}

void Attachment::set_guard(ReuseGuard* guard) {
  for (const Node& node : nodes_) node.allocator->set_guard(guard);
}

void Attachment::close() {
  for (const Node& node : nodes_) endpoint_->run(node.allocator->close());
}

std::string Attachment::describe_unreached(std::uint32_t node) const {
  if (!left_out_[node].empty())
    return fmt::format("{}, which can not be used now: {}", memory_->name_of_node(node), left_out_[node]);
  const std::string why = endpoint_->port().why_unreachable(region_map().nodes[node].control);
  return fmt::format("{}, which can not be reached now{}{}", memory_->name_of_node(node),
                     why.empty() ? "" : ": ", why);
}

Result<std::size_t> Attachment::place(std::uint32_t home) {
  using Policy = Placement::Policy;
  if (placement_.policy == Policy::gone) {
    return fail(Errc::unavailable, "allocate",
                "the node that new items are to be put on is in the cluster no more; open the store again "
                "with another placement");
  }
  if (placement_.policy == Policy::spread) return next_++ % nodes_.size();
  const Node* wanted = node(placement_.policy == Policy::by_key ? home : placement_.node);
  if (wanted == nullptr && placement_.policy == Policy::node) {
    return fail(Errc::unavailable, "allocate",
                fmt::format("new items are put on {}", describe_unreached(placement_.node)));
  }
  if (wanted == nullptr) wanted = node(home);
  return static_cast<std::size_t>(wanted - nodes_.data());
}

coro::Task<Result<ItemRef>> Attachment::allocate_on(std::size_t index, std::uint64_t bytes) {
  const Node& node = nodes_[index];
  if (takes_items(node)) co_return co_await node.allocator->allocate(bytes);
  co_return fail(Errc::no_space, "allocate",
                 fmt::format("{} takes no new items; it leaves the cluster",
                             node.session->memory().name_of_node(node.session->node())));
}

coro::Task<Result<ItemRef>> Attachment::allocate(std::uint64_t bytes, std::uint32_t home) {
  if (!is_of_cluster_) [[likely]]
    co_return co_await nodes_.front().allocator->allocate(bytes);
  const auto first = place(home);
  if (!first) co_return std::unexpected(first.error());
  auto item = co_await allocate_on(*first, bytes);
  if (placement_.policy == Placement::Policy::node) co_return item;
  for (std::size_t i = 1; i < nodes_.size() && !item && item.error().code == Errc::no_space; ++i)
    item = co_await allocate_on((*first + i) % nodes_.size(), bytes);
  co_return item;
}

}  // namespace loch::memory
