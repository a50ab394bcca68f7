// Attachment: one client of a store: its way to all regions, and a session and an allocator for each node.
//
// A client is attached to the nodes that can be reached when it begins, and whose part is one of the store
// (StoreMemory::check_part). What is on another is `unavailable` to it. What it does runs in the sessions of
// all its nodes, since it does not know before which ones it will come to: no item is reused on any node, and
// no word of an index repeats, while an operation that may have seen it runs (Session, "Reuse").
//
// A node whose memory was lost comes back as another incarnation. What the other nodes have that names its
// former memory means nothing then, and nobody may take it for what lies there now. So each node keeps which
// incarnation of the others its words are about: the first client that is attached to both says so, and no
// client is attached to nodes that do not agree.
//
// One thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <loch/coro/task.h>

#include "memory/allocator.h"
#include "memory/session.h"
#include "memory/store_memory.h"

namespace loch::memory {

// On which node a new item is put. If that one can not have it, on another.
struct Placement {
  enum class Policy : std::uint8_t {
    local,   // this client's own host; if it has no node that can be reached, as `by_key`
    spread,  // on each in turn
    by_key,  // where the key's index is
    node,
    gone,  // on a node that the cluster does not have any more: nothing can be put
  };
  Policy policy = Policy::by_key;
  std::uint32_t node = 0;  // local: of this host; node: that one, and no other
};

class Attachment {
 public:
  // Takes a client number on each node that can be reached. Errors: as Session::open, of the first node if
  // there is no other.
  static Result<std::unique_ptr<Attachment>> open(std::shared_ptr<StoreMemory> memory,
                                                  const Placement& placement = {});
  ~Attachment();
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  [[nodiscard]] fabric::Endpoint& endpoint() { return *endpoint_; }
  [[nodiscard]] StoreMemory& memory() { return *memory_; }
  [[nodiscard]] const RegionMap& region_map() const { return memory_->region_map(); }
  [[nodiscard]] bool is_of_cluster() const { return is_of_cluster_; }

  struct Node {
    std::unique_ptr<Session> session;
    std::unique_ptr<Allocator> allocator;
  };
  // Those that it is attached to.
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  // Null if it is not attached to that one.
  [[nodiscard]] const Node* node(std::uint32_t number) const { return by_number_[number]; }
  // Of one that it is not attached to: its name, and why; for people.
  [[nodiscard]] std::string describe_unreached(std::uint32_t node) const;
  // The node of an item that was read during this operation, so that there is one.
  [[nodiscard]] const Node& node_of(const ItemRef& item) const { return *by_region_[item.region]; }
  [[nodiscard]] const Node* find_node_of(const ItemRef& item) const { return by_region_[item.region]; }
  [[nodiscard]] Session& session_of(const ItemRef& item) const { return *node_of(item).session; }
  [[nodiscard]] Allocator& allocator_of(const ItemRef& item) const { return *node_of(item).allocator; }

  // An operation, for as long as this lives. Several may overlap.
  class Operation {
   public:
    explicit Operation(Attachment& attachment)
        : attachment_(attachment), first_(attachment.nodes_.front().session->begin_operation()) {
      if (attachment.nodes_.size() != 1) [[unlikely]]
        begin_others();
    }
    ~Operation() {
      attachment_.nodes_.front().session->end_operation(first_);
      if (others_ != nullptr) [[unlikely]]
        end_others();
    }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    // Of the first node.
    [[nodiscard]] base::Nanos start() const { return first_; }

   private:
    void begin_others();
    void end_others();

    Attachment& attachment_;
    base::Nanos first_;
    std::unique_ptr<base::Nanos[]> others_;
  };
  // Words that name items are read within one: from when they are asked for, until they are there.
  class Look {
   public:
    explicit Look(Attachment& attachment) : attachment_(attachment), lapses_(attachment.lapses()) {}
    // Whether they may be acted on (Session::has_lapsed_since). If not, they are to be read again.
    [[nodiscard]] bool holds() const { return !attachment_.has_lapsed_since(lapses_); }
    // Before they are. Errors: timed_out, if that has gone on for so long.
    [[nodiscard]] Result<void> again(base::Nanos timeout_ns, const char* operation,
                                     std::uint64_t key_hash = 0);

   private:
    Attachment& attachment_;
    std::uint64_t lapses_;
    std::optional<base::Nanos> since_{};  // it goes on
  };
  // A view or an iteration likewise.
  class Pin {
   public:
    explicit Pin(Attachment& attachment);
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    // Of the session of nodes()[index].
    [[nodiscard]] base::Nanos start(std::size_t index) const { return starts_[index]; }

   private:
    Attachment& attachment_;
    std::vector<base::Nanos> starts_;
  };
  // Any thread may ask: once there are none, nobody touches this for a pin's sake any more.
  [[nodiscard]] bool has_pins() const { return pins_.load(std::memory_order_acquire) != 0; }

  // What these say of one session they say of all; docs there.
  [[nodiscard]] bool refresh_due() const {
    for (const Node& node : nodes_) {
      if (node.session->refresh_due()) return true;
    }
    return false;
  }
  // All sessions, due or not. Errors: those of any node ...
  coro::Task<Result<void>> refresh();
  // ... or of this one alone: an operation that does not come to another may go on without it.
  coro::Task<Result<void>> refresh_for(std::uint32_t number);
  [[nodiscard]] bool has_failed() const { return endpoint_->has_failed(); }
  // Whether another client might be attached to nodes that this one is not ...
  [[nodiscard]] bool is_behind() const {
    return nodes_.size() != region_map().living() && memory_->fabric().hosts_found() != hosts_found_;
  }
  // ... or would go by a later map: the latest epoch that a node told this one of.
  [[nodiscard]] std::uint64_t newest_epoch() const;
  // Whether the nodes' memory is elsewhere: of all, or of none.
  [[nodiscard]] bool remote() const { return nodes_.front().session->remote(); }
  [[nodiscard]] Stats stats() const;

  void set_guard(ReuseGuard* guard);
  // Before the guard goes: ends what the allocators still do, and leaves their notes to others. Nothing is
  // allocated afterwards.
  void close();
  // As Allocator::allocate, on a node that the placement names for a key whose index is on node `home`, which
  // it is attached to. Errors: unavailable, too.
  coro::Task<Result<ItemRef>> allocate(std::uint64_t bytes, std::uint32_t home);

 private:
  explicit Attachment(std::shared_ptr<StoreMemory> memory, const Placement& placement);
  // Which nodes can be reached, have a part of this store and agree on each other. Errors: those of the
  // fabric, of the first node if none can be reached.
  coro::Task<Result<std::vector<std::uint32_t>>> find_nodes();
  // By index in nodes_.
  coro::Task<void> refresh_each(std::vector<Result<void>>* outcomes);
  [[nodiscard]] bool is_known_by_all(std::uint32_t node,
                                     const std::vector<std::vector<std::uint64_t>>& words) const;
  coro::Task<Result<void>> introduce(std::uint32_t by, std::uint32_t of, std::uint64_t is,
                                     std::uint64_t known);
  [[nodiscard]] std::uint64_t lapses() const {
    if (nodes_.size() == 1) [[likely]]
      return nodes_.front().session->lapses();
    return lapses_of_all();
  }
  [[nodiscard]] bool has_lapsed_since(std::uint64_t before) {
    if (nodes_.size() == 1) [[likely]]
      return nodes_.front().session->has_lapsed_since(before);
    return has_any_lapsed_since(before);
  }
  [[nodiscard]] std::uint64_t lapses_of_all() const;
  [[nodiscard]] bool has_any_lapsed_since(std::uint64_t before);
  static bool takes_items(const Node& node);
  coro::Task<Result<ItemRef>> allocate_on(std::size_t index, std::uint64_t bytes);
  // Index in nodes_. Errors: unavailable, if it is attached to none that may have the item.
  [[nodiscard]] Result<std::size_t> place(std::uint32_t home);

  const std::shared_ptr<StoreMemory> memory_;
  const Placement placement_;
  const std::uint64_t hosts_found_;  // before it went to any
  const bool is_of_cluster_;
  const std::shared_ptr<fabric::Endpoint> endpoint_;
  std::vector<Node> nodes_;
  std::vector<const Node*> by_number_;
  std::vector<std::string> left_out_;  // by number: what is wrong with a part that is reached, or empty
  std::array<const Node*, data_regions_end> by_region_{};
  std::size_t next_ = 0;  // of nodes_, for `spread`
  std::atomic<unsigned> pins_{0};
};

}  // namespace loch::memory
