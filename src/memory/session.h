// Session: one client of a node of a store. It holds a client number (fabric::Port::claim_presence) and the
// registry's entry of that number, in which it says since when its oldest operation runs.
//
// Reuse (docs/memory.md). An item that was unlinked at U may be used again when
//   R1 one expiry has passed since U, or there has been a barrier since, in which all living sessions took
//      part, and
//   R2 no operation or view that began at or before U still runs in a living session, unless the item was
//      written after the time until which that session may act.
// A client that was stopped before its last compare-swap therefore never finds its expected word again by
// accident, and holds back no more than what there was soon after it was stopped. The two stores an operation
// need no fence: R1 sees to it that whoever reuses sees them (barrier_model_test.cc).
//
// The store's latest time is the newest reading of the clock at which anybody began an operation, wrote an
// item, or looked who runs. Whoever sees an item sees a latest time that is no older, so a session learns
// from that word alone whether it may still act, and a short read need not ask the clock.
//
// A *remote* session does not map the control region, and works on a copy of it (Control; docs/memory.md,
// "Remote sessions"). The latest time before which the copy was not read is the session's time, and its
// operations count as begun then. In the registry it says that it runs since a time that is no later than
// that, and that it may act for ever; it says so anew now and then.
//
// A session that may only read (readers.h) is a remote one. It uses no nonces and unlinks nothing.
//
// One thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "base/random.h"
#include "fabric/endpoint.h"
#include "memory/control.h"
#include "memory/store_memory.h"

namespace loch::memory {

class Session {
 public:
  // How long a session may act without saying so anew.
  static constexpr base::Nanos act_window_ns = base::second_ns;
  // How far a time of writing may be ahead of the clock: a session counts on within one tick.
  static constexpr base::Nanos write_lead_max_ns = 10 * base::millisecond_ns;

  // Takes a client number of a node; by default, of the one that a store of one host has. Errors: no_space
  // (all numbers are held by living clients), io, those of the fabric.
  static Result<std::unique_ptr<Session>> open(std::shared_ptr<StoreMemory> memory);
  static Result<std::unique_ptr<Session>> open(std::shared_ptr<StoreMemory> memory,
                                               std::shared_ptr<fabric::Endpoint> endpoint,
                                               std::uint32_t node);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] std::uint16_t client() const { return client_; }
  [[nodiscard]] fabric::Endpoint& endpoint() { return endpoint_; }
  [[nodiscard]] std::uint32_t node() const { return node_; }
  // The regions of its node.
  [[nodiscard]] const RegionMap::Node& regions() const { return memory_->region_map().nodes[node_]; }
  [[nodiscard]] const Geometry& geometry() const { return memory_->geometry(); }
  [[nodiscard]] StoreMemory& memory() { return *memory_; }
  [[nodiscard]] base::Random& random() { return random_; }
  [[nodiscard]] Control& control() { return control_; }

  // The store's time; a remote session's is that of its copy, which has passed.
  [[nodiscard]] base::Nanos now() const { return remote() ? latest() : endpoint_.now(); }
  [[nodiscard]] bool remote() const { return control_.is_copy(); }
  // Whether a remote session is to refresh before it goes on. To be asked before each operation, and in an
  // operation before each of any number of steps, since the nonces that it has are for so many.
  [[nodiscard]] bool refresh_due() const {
    return remote() &&
           (endpoint_.now() - refreshed_at_ns_ >= refresh_every_ns_ || (nonces_are_few() && !reads_only_));
  }
  // Reads a remote session's copy anew, and tells the others which operations are over. Errors: those of the
  // fabric; it stays due then.
  coro::Task<Result<void>> refresh();
  // The store's latest time is `time` at least, which this session has seen.
  void tell_time(base::Nanos time) {
    if (time > latest() && !remote()) control_.raise_latest(time);
  }
  // Of a remote session: what a slot was seen to name by an operation that began then or later is there
  // still. Others hold on to nothing between two operations.
  [[nodiscard]] base::Nanos kept_since() const { return kept_since_ns_; }

  // An operation begins, and ends. Several may overlap.
  base::Nanos begin_operation() {
    const base::Nanos start = now();
    tell_time(start);
    if (start > extend_after_ns_) [[unlikely]]
      extend_act_until();
    operations_.add(start, entry_->op_start_ns);
    return start;
  }
  void end_operation(base::Nanos start) { operations_.drop(start, entry_->op_start_ns); }
  // The same for a short read that is not to spend its time on the clock: it counts from the store's latest
  // time, which is no later than now. False if it has to be an operation like others, because one runs
  // already.
  [[nodiscard]] bool begin_glance() {
    if (operations_.any()) [[unlikely]]
      return false;
    shared(entry_->op_start_ns).store(latest(), std::memory_order_release);
    stores_come_first();
    return true;
  }
  // `found`: whether the caller found an item. True, and counted as a hit, if it did and the session may
  // still act; else nothing may be given out.
  bool end_glance(bool found) {
    const bool succeeds = found && latest() <= glance_until_ns_;
    shared(entry_->op_start_ns).store(0, std::memory_order_release);
    if (succeeds) [[likely]]
      count(Counter::get_hit);
    return succeeds;
  }
  // How often the time until which this session may act was over when it was moved on.
  [[nodiscard]] std::uint64_t lapses() const { return lapses_; }
  // To be asked when words have been read, by who asked for lapses() before that. If true, they may name
  // items that R2 does not keep, and are to be read again. If false, what they name is kept for as long as an
  // operation or a view runs that had begun then, also if it is stopped before it acts on them.
  [[nodiscard]] bool has_lapsed_since(std::uint64_t before) {
    if (latest() > act_until_ns_) [[unlikely]]
      extend_act_until();
    return lapses_ != before;
  }
  // A view or an iteration begins, and ends.
  base::Nanos pin();
  void unpin(base::Nanos start);

  // A number that no session of this store was ever given before.
  std::uint64_t next_nonce();
  // A time of writing that rises from item to item of this session; the store's latest time with it.
  base::Nanos next_write_time() { return next_write_time(now()); }
  base::Nanos next_write_time(base::Nanos now) {
    tell_time(now);
    last_write_ns_ = std::max(now, last_write_ns_ + 1);
    return last_write_ns_;
  }

  void count(Counter counter, std::uint64_t n = 1) {
    auto word = shared(counters_->counted[static_cast<std::size_t>(counter)]);
    word.store(word.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  [[nodiscard]] Stats stats() const;
  // Whether it may change nothing.
  [[nodiscard]] bool reads_only() const { return reads_only_; }

  // Rules R1 and R2. `rested` is false if they can not hold now, whenever the item was written, so that
  // written_at need not be read.
  [[nodiscard]] bool rested(base::Nanos unlinked_at) { return rested(unlinked_at, now()); }
  [[nodiscard]] bool rested(base::Nanos unlinked_at, base::Nanos now) {
    if (unlinked_at <= rested_until_ns_) return true;
    look_at_the_others(now);
    return unlinked_at <= rested_until_ns_;
  }
  [[nodiscard]] bool reusable(base::Nanos unlinked_at, base::Nanos written_at) {
    return reusable(unlinked_at, written_at, now());
  }
  [[nodiscard]] bool reusable(base::Nanos unlinked_at, base::Nanos written_at, base::Nanos now) {
    look_at_the_others(now);
    return unlinked_at <= horizon_ns_ && (unlinked_at < stuck_from_ns_ || written_at > stuck_until_ns_);
  }
  // How long what is unlinked now has to rest by R1 alone.
  [[nodiscard]] base::Nanos rest_ns() {
    look_at_the_others(now());
    return rest_ns_;
  }

  // A move begins to leave words that name its item, and has none left. What a session does not end, because
  // it died or gave up, stays known until the slots have been repaired.
  void begin_move() { add_to(entry_->unfinished_moves, 1); }
  void end_move() { add_to(entry_->unfinished_moves, -std::uint64_t{1}); }
  // Whether words of unfinished moves may name an item that is `reusable`: false only if no move that began
  // before the item was unlinked has left any.
  [[nodiscard]] bool moves_may_linger() const { return moves_linger_; }
  // Around a repair of all slots: what there had been until before it is gone. Several may repair at a time.
  coro::Task<Result<std::uint64_t>> unfinished_moves_of_the_gone();
  coro::Task<Result<void>> forget_unfinished_moves(std::uint64_t until);

  // In a remote session these three assume the worst about what its copy can not show yet.
  //
  // Whether an operation that client number `client` began at or before `at` may still run.
  [[nodiscard]] bool may_still_run(std::uint16_t client, base::Nanos at);
  // Whether an operation that began at or before `at` may still run, in any session, apart from the one that
  // asks.
  coro::Task<Result<bool>> others_run_since(base::Nanos at);
  // When the oldest operation of this session that runs began.
  [[nodiscard]] base::Nanos oldest_operation() const { return operations_.oldest(); }
  // Whether the session that wrote something as `client` at `at` is gone.
  [[nodiscard]] bool is_gone(std::uint16_t client, base::Nanos at);

  // Takes the number of a client that died, if there is one, after `from`; 0 if there is none. Whoever gets
  // it settles what the client left, then calls `bury`; or `leave_dead`, if that failed.
  coro::Task<Result<std::uint16_t>> take_dead(std::uint16_t from);
  void leave_dead(std::uint16_t client);
  coro::Task<Result<void>> bury(std::uint16_t client);
  // The number that this session took had belonged to a client that died, and what that one left is still to
  // be settled. If it is not before the session ends, the number remains a dead one's.
  [[nodiscard]] bool took_over() const { return took_over_; }
  void has_settled() { took_over_ = false; }

  // Living sessions of all processes, this one among them.
  [[nodiscard]] std::uint64_t living();
  // The counters of all sessions, dead and alive.
  coro::Task<Result<Stats>> totals();

 private:
  // In this program, before the loads that follow; for the processor a barrier of somebody else sees to it.
  static void stores_come_first() { std::atomic_signal_fence(std::memory_order_seq_cst); }

  // Those that run, by their starts; the oldest start stands in a word of the registry. Mostly there is one.
  class Running {
   public:
    void add(base::Nanos start, std::uint64_t& word) {
      if (count_ == 0) [[likely]] {
        start_ = start;
        count_ = 1;
        shared(word).store(start, std::memory_order_release);
        stores_come_first();
      } else if (start == start_) {
        ++count_;
      } else {
        add_other(start);
      }
    }
    void drop(base::Nanos start, std::uint64_t& word) {
      if (start != start_) {
        drop_later(start);
      } else if (--count_ == 0) {
        start_ = 0;
        if (!later_.empty()) next_oldest();
        // release: what the operation read was read before whoever sees this reuses it.
        shared(word).store(start_, std::memory_order_release);
      }
    }

    [[nodiscard]] bool any() const { return count_ != 0; }
    [[nodiscard]] base::Nanos oldest() const { return start_; }  // with any()
    // How many began at or before `at`.
    [[nodiscard]] std::uint32_t count_until(base::Nanos at) const;

   private:
    struct Later {
      base::Nanos start;
      std::uint32_t count;
    };
    void add_other(base::Nanos start);
    void drop_later(base::Nanos start);
    void next_oldest();

    base::Nanos start_ = 0;
    std::uint32_t count_ = 0;
    std::vector<Later> later_;  // rising
  };

  Session(std::shared_ptr<StoreMemory> memory, std::shared_ptr<fabric::Endpoint> endpoint,
          std::uint32_t node);
  [[nodiscard]] std::uint32_t presence_of(std::uint32_t client) const {
    return fabric::client_of(node_, client);
  }
  [[nodiscard]] bool is_present(std::uint32_t client) {
    return endpoint_.port().present(presence_of(client));
  }
  coro::Task<Result<void>> enter();
  [[nodiscard]] std::vector<std::uint32_t> numbers_to_claim(std::uint32_t turn) const;
  [[nodiscard]] Result<void> is_same_store() const;
  // With the number that it has taken.
  coro::Task<Result<void>> begin();
  coro::Task<Result<void>> begin_to_read();
  coro::Task<Result<void>> leave();
  [[nodiscard]] Stats counted() const;
  void extend_act_until();
  coro::Task<Result<void>> settle_counters(std::uint32_t client);
  coro::Task<Result<void>> reserve_nonces();
  // A remote session can not reserve any when it needs one.
  static constexpr std::uint64_t nonces_at_once_remote = std::uint64_t{1} << 24;
  [[nodiscard]] bool nonces_are_few() const { return nonce_end_ - nonce_ < nonces_at_once_remote / 2; }
  // acquire: whoever sees an item, and then this, sees no older time than that of its writer.
  [[nodiscard]] base::Nanos latest() const { return shared(*latest_).load(std::memory_order_acquire); }
  // Of a word that this session alone writes.
  static void add_to(std::uint64_t& word, std::uint64_t n) {
    shared(word).store(shared(word).load(std::memory_order_relaxed) + n, std::memory_order_release);
  }
  // Whether there was a barrier that began at `now` or later, and in which all living sessions take part. One
  // that another session had is as good.
  bool barrier_with_all(base::Nanos now);
  [[nodiscard]] bool do_all_take_part();
  // Once a tick.
  void look_at_the_others(base::Nanos now) {
    if (now != looked_at_ns_) look_at_the_others_now(now);
  }
  void look_at_the_others_now(base::Nanos now);
  // What may hold back what was unlinked since `start`, if the session is there.
  struct Holder {
    base::Nanos start = 0;
    std::uint32_t number = 0;
  };
  void ask_for_those_that_hold(std::vector<Holder> holders);

  std::shared_ptr<StoreMemory> memory_;
  const std::shared_ptr<fabric::Endpoint> shared_endpoint_;
  fabric::Endpoint& endpoint_;
  const std::uint32_t node_;
  const bool reads_only_;
  Control control_;
  std::uint64_t* latest_;
  ClientEntry* entry_ = nullptr;
  ClientCounters* counters_ = nullptr;
  base::Nanos act_until_ns_ = 0;
  std::uint64_t lapses_ = 0;
  // Of a glance, by the clock alone: if the latest time is ahead of that (it was damaged, or somebody has
  // another clock), a glance would count from a time that is yet to come, and hold back nothing.
  base::Nanos glance_until_ns_ = 0;
  base::Nanos extend_after_ns_ = 0;
  std::uint16_t client_ = 0;
  bool took_over_ = false;
  base::Random random_;
  Running operations_;
  Running pins_;
  std::uint64_t nonce_ = 0;
  std::uint64_t nonce_end_ = 0;
  base::Nanos last_write_ns_ = 0;
  Stats counted_before_;  // by others who only read, with the same number

  // Of a remote session.
  base::Nanos since_ns_ = 0;         // the newest time since when others may think that it runs,
  base::Nanos kept_since_ns_ = 0;    // and that it holds on to what was unlinked
  base::Nanos refreshed_at_ns_ = 0;  // by the clock here
  base::Nanos refresh_every_ns_ = 0;

  // What look_at_the_others saw.
  base::Nanos looked_at_ns_ = 0;
  base::Nanos rest_ns_ = 0;
  base::Nanos horizon_ns_ = 0;       // unlinked at or before: R1 holds,
  base::Nanos rested_until_ns_ = 0;  // and R2 may hold, by when the item was written
  base::Nanos stuck_from_ns_ = std::numeric_limits<base::Nanos>::max();
  base::Nanos stuck_until_ns_ = 0;
  bool moves_linger_ = true;
};

}  // namespace loch::memory
