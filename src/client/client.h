// Client: the calls of one client of a store, as coroutines. Both public forms, blocking (Store) and
// awaitable (Async), are made of these. One thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <loch/coro/task.h>
#include <loch/loch.h>

#include "hash/shards.h"
#include "memory/attachment.h"

namespace loch::client {

struct ClientOptions {
  base::Nanos timeout_ns = base::second_ns;
  std::size_t cache_bytes = 0;
  hash::LocationCache* locations = nullptr;  // as of hash::TableOptions
  memory::Placement placement{};
  bool read_only = false;  // also where the store would let it change something
};

// What a put, an insert or a replace is to write. Key and value outlive the call.
struct Write {
  std::string_view key;
  std::string_view value;
  PutOptions options{};
  hash::Condition condition = hash::Condition::none;
  std::uint64_t version = 0;                   // with Condition::version
  std::optional<base::Nanos> expires_at_ns{};  // 0: never; nothing: as the options say
  const char* operation = "put";
};
inline Write insertion(std::string_view key, std::string_view value, PutOptions options) {
  return {.key = key,
          .value = value,
          .options = options,
          .condition = hash::Condition::absent,
          .operation = "insert"};
}
inline Write replacement(std::string_view key, std::string_view value, Version expected, PutOptions options) {
  return {.key = key,
          .value = value,
          .options = options,
          .condition = hash::Condition::version,
          .version = expected.token,
          .operation = "replace"};
}

class Client {
 public:
  static Result<std::unique_ptr<Client>> open(const std::shared_ptr<memory::StoreMemory>& memory,
                                              const ClientOptions& options);

  // The plainest get at once: a key of `shortest` to `longest` bytes, and a short value as long as what
  // `into` holds, that never expires. False if it is no such; `into` may have been changed.
  //
  // The processor overlaps the misses of one get with those of the next ones as far ahead as it looks, which
  // is 256 to 512 instructions. So it is in line, calls nothing, and touches the least; the slots are asked
  // for first (docs/performance.md).
  template <std::size_t shortest, std::size_t longest>
  [[gnu::always_inline]] bool get_plain(std::string_view key, std::string& into) {
    hash::Table* const table = here_;
    const std::size_t key_bytes = key.size();
    if (table == nullptr || key_bytes - shortest > longest - shortest) [[unlikely]]
      return false;
    __builtin_assume(key_bytes >= shortest && key_bytes <= longest);
    const hash::Here& here = table->here();
    const auto glance = here.begin_glance(key_of(key));
    const std::size_t value_bytes = into.size();
    memory::Session& session = *session_;
    if (value_bytes > base::crc_in_line_bytes_max || !session.begin_glance()) [[unlikely]]
      return false;
    hash::ItemView item;
    const std::byte* at = here.end_glance(glance, hash::item_bytes(longest, base::crc_in_line_bytes_max));
    if (at != nullptr) [[likely]]
      item.begin(at, {});
    return session.end_glance(at != nullptr && item.is_plain(key, value_bytes) &&
                              item.copy_just_value_to(into.data()));
  }
  // The plain cases, at once; false, or nothing, if it takes the coroutine of the same name.
  bool get_here(std::string_view key, std::string& into) { return here_ != nullptr && get_mapped(key, into); }
  // The version of what was put.
  std::optional<std::uint64_t> put_here(std::string_view key, std::string_view value,
                                        const PutOptions& options);

  coro::Task<Result<void>> get(std::string_view key, std::string* into);
  // The same for who waits for it. Of a store of one host: once it was refreshed, if that was due.
  Result<void> get_waiting(std::string_view key, std::string& into);
  coro::Task<Result<Item>> read(std::string_view key);
  coro::Task<Result<hash::Found>> find(std::string_view key);  // the caller holds a pin
  coro::Task<Result<bool>> exists(std::string_view key);
  // If there is no memory, waits for that of items whose time is over, or that belong to nobody.
  coro::Task<Result<std::uint64_t>> put(Write write);
  // As Store::update; the version that is the key's after it, 0 if that has no item.
  coro::Task<Result<std::uint64_t>> update(std::string_view key, const Change* change, PutOptions options);
  // As Store::touch.
  coro::Task<Result<std::uint64_t>> touch(std::string_view key, PutOptions options);
  // `version`: and no other one.
  coro::Task<Result<void>> remove(std::string_view key, std::optional<std::uint64_t> version = std::nullopt);
  // What a put does that finds no memory: hash::Shards::make_room.
  coro::Task<Result<std::optional<base::Nanos>>> make_room(base::Nanos until) {
    return shards_.make_room(until);
  }
  coro::Task<void> multi_get(std::span<Lookup> lookups);
  coro::Task<void> multi_put(std::span<Assignment> assignments);
  coro::Task<void> multi_remove(std::span<Removal> removals);
  coro::Task<Result<void>> for_each(const std::function<bool(const Entry&)>* visit);
  coro::Task<Result<std::uint64_t>> count();
  coro::Task<Result<Collected>> collect();
  coro::Task<Result<Report>> check();

  // The counters of all clients there ever were.
  coro::Task<Result<Stats>> totals();
  // Fills in what a client knows of the store.
  coro::Task<Result<void>> describe(Info* into);

  template <class T>
  T run(coro::Task<T> task) {
    return attachment_->endpoint().run(std::move(task));
  }

  [[nodiscard]] memory::Attachment& attachment() { return *attachment_; }
  // Of the map of the cluster that it goes by.
  [[nodiscard]] std::uint64_t epoch() const { return attachment_->region_map().epoch; }
  [[nodiscard]] bool is_remote() const { return attachment_->remote(); }
  // Its session was broken off: the network failed, or its host took it for dead. Nothing it does succeeds.
  [[nodiscard]] bool is_lost() const { return attachment_->remote() && attachment_->has_failed(); }

  // One of a store of one host that can go on as it is.
  [[nodiscard]] bool is_fresh() const {
    return !attachment_->has_failed() && !attachment_->is_of_cluster() && !attachment_->refresh_due();
  }

  // By whoever is in the midst of a call of it, or has a View of it; asked by any thread.
  void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() { holders_.fetch_sub(1, std::memory_order_release); }
  [[nodiscard]] bool is_held() const { return holders_.load(std::memory_order_acquire) != 0; }

 private:
  using DuringOperation = memory::Attachment::Operation;

  Client(std::unique_ptr<memory::Attachment> attachment, const ClientOptions& options);
  static Result<std::unique_ptr<Client>> begin(std::shared_ptr<memory::StoreMemory> memory,
                                               const ClientOptions& options);
  coro::Task<Result<void>> settle_predecessors();

  // Of a call about a key, once it is over: it found the key's item, or that there is none. One that failed,
  // or is asked again elsewhere, is neither.
  template <class T>
  void count_outcome(const Result<T>& outcome, Counter found, Counter absent) {
    if (outcome) {
      session_->count(found);
    } else if (outcome.error().code == Errc::not_found) {
      session_->count(absent);
    }
  }
  // Errors: permission.
  [[nodiscard]] Result<void> may_change(const char* operation) const;
  // The key's item, during an operation: what is given out of it while that lasts, or a pin that is as old,
  // is what was there. Errors are of the operation that asks.
  coro::Task<Result<hash::Found>> look_up(hash::Key key, const char* asks);
  // The value of an item whose key was found right, into memory that is used again. `asked_at`: before its
  // slots were read. It may be given to the caller if what was seen of the slots holds.
  bool copy_out(hash::ItemView& item, base::Nanos asked_at, std::string& into);
  template <class Request>
  coro::Task<void> in_turns(std::span<Request> requests,
                            void (Client::*here)(std::span<Request>, std::span<bool>),
                            coro::Task<Result<void>> (Client::*one)(Request*));
  // Items that are longer go each by itself: of many, the value of the first can be looked at while the last
  // are on their way, and it is not copied.
  static constexpr std::size_t short_bytes_max = 1'024;
  static bool reads_long(const hash::Known& known);
  bool get_mapped(std::string_view key, std::string& into);
  Result<void> answer_get(const Result<hash::Found>& found, std::string* into);
  // Of a remote session: so many that they are asked for together, and then the next.
  template <class Request>
  coro::Task<void> in_groups(std::span<Request> requests,
                             coro::Task<void> (Client::*group)(std::span<Request>));
  coro::Task<void> refresh_if_due();
  coro::Task<void> get_group(std::span<Lookup> group);
  // Nothing if it is not one for several at once.
  [[nodiscard]] std::optional<hash::GroupedGet> grouped_get(hash::Key key, Lookup* lookup) const;
  coro::Task<void> put_group(std::span<Assignment> group);
  coro::Task<void> try_put_group(std::span<Assignment> group);
  coro::Task<void> remove_group(std::span<Removal> group);
  void multi_get_here(std::span<Lookup> lookups, std::span<bool> done);
  void multi_put_here(std::span<Assignment> assignments, std::span<bool> done);
  // The versions of those that are done.
  template <std::size_t most>
  std::array<std::uint64_t, most> put_all_here(std::span<const Assignment> assignments, std::span<bool> done);
  Result<hash::WriteRequest> request_of(const Write& write, base::Nanos now) const;
  static coro::Task<Result<void>> know_time(hash::Table* table, const Write* write);
  // Whether the key's item lets a put be that found no memory. Errors: exists, changed, not_found.
  coro::Task<Result<void>> check_condition(const Write* write);
  void count_refusal(Errc refusal);
  coro::Task<Result<void>> get_one(Lookup* lookup);
  coro::Task<Result<void>> put_one(Assignment* assignment);
  // Without a wait for memory. `waited_ns`: how long the call that it is of has waited before.
  coro::Task<Result<void>> try_put_one(Assignment* assignment);
  coro::Task<Result<std::uint64_t>> try_put(const Write* write, base::Nanos waited_ns);
  // The key's item, out of the store.
  struct Whole {
    std::string value;
    std::uint64_t version = 0;
    base::Nanos expires_at_ns = 0;  // 0: never
    std::optional<std::chrono::milliseconds> time_to_live;
  };
  coro::Task<Result<Whole>> read_whole(std::string_view key, const char* operation);
  // What update and touch are: an item that is there keeps its time to live, or has it from the options.
  enum class Keep : std::uint8_t { time_to_live, value };
  coro::Task<Result<std::uint64_t>> change_item(std::string_view key, const Change* change,
                                                PutOptions options, Keep keep, const char* operation);
  [[nodiscard, gnu::always_inline]] hash::Key key_of(std::string_view key) const {
    return hash::Key::of(key, hash_seed_);
  }

  std::unique_ptr<memory::Attachment> attachment_;
  memory::Session* session_;  // with the first node
  hash::Shards shards_;
  hash::Table* here_ = nullptr;  // of a store all of which is mapped here
  const std::uint64_t hash_seed_;
  const bool reads_only_;
  const base::Nanos timeout_ns_;
  std::atomic<std::uint32_t> holders_ = 0;
};

}  // namespace loch::client
