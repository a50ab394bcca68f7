// Loch: a key-value store in memory that any number of processes share, and read and change themselves.
//
//   auto store = loch::Store::open("shm://sessions");
//   if (!store) return report(store.error());
//   if (auto put = store->put("user:17", "ada"); !put) return report(put.error());
//   auto value = store->get("user:17");  // Result<std::string>
//
// A store on one host is a set of files in memory that every process maps; there is no server. Whoever may
// open the files may use the store, and whoever comes next clears up after processes that died (docs/hash.md,
// docs/memory.md). "tcp://host:port/sessions" is a store on another host, where lochd lends it
// (docs/network.md); there, a call may also end with Errc::unavailable, and the next one tries anew.
// "tcp://host,host/sessions" is a store on the hosts of a cluster (docs/clusters.md).
//
// Memory: a store lasts until it is destroyed, or its host is restarted (its files are in /dev/shm unless
// told otherwise), and nothing is evicted: when it is full, what writes a new item ends with Errc::no_space.
//
// Limits: keys of 1 B to 4 KiB, values of 0 B to 128 MiB, both any bytes; times to live of 1 ms to 36,500
// days; 1,023 sessions of a store at a time, and of those that only read, where a device changes its words,
// 64. In a cluster, of more than 511 not all can go on when a host is lost (docs/clusters.md, "Fencing").
// Threads: a Store may be used by any number of threads, but is moved or destroyed while none is in a call;
// each gets a session of its own on first use, one of those 1,023. When the thread has ended, another one has
// it, or it ends, as it does with the Store at the latest. That first call, a read too, may also end with
// Errc::no_space, if there are too many sessions, or with Errc::io.
// Time: a call about a key ends in success or an Error when it has tried for `Options::timeout`. One that
// looks at everything takes that long at most for each of its steps, and one for several keys for each 16 of
// them, or 64 over a network; there, on a full store, for each key that waits for memory. Nothing waits
// without a deadline. Over a network, each round trip may take as long, if the host stops answering in the
// midst of a call, and longer by the time that what it carries takes at 8 MiB a second; and for more memory,
// or for who is there, a call asks the host itself, which has 10 s to answer. The first call of a thread also
// begins its session there, and one that finds it broken off another: some ms more, and some seconds if no
// host answers or many begin at once.
// Heap: a read for whose value this process has no memory ends with Errc::no_space. Of anything else that a
// call does not get from the heap, the process ends, or the call throws std::bad_alloc.
// Processes: a Store does not cross fork(); open it again in the child. There, calls of the one that the
// parent opened, and of an Async, fail with Errc::unavailable, stats() says nothing, a View may come to show
// other bytes, and destroying any of them, or exit(), does nothing to the store or to the parent's sessions.
// The store's memory stays mapped in the child until that ends or executes another program; of a store on
// another host, so does the parent's connection. (A fork that passes the C library by is not noticed.)
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <loch/atomics.h>
#include <loch/devices.h>
#include <loch/error.h>
#include <loch/stats.h>

namespace loch {

inline constexpr std::size_t key_bytes_max = 4096;
inline constexpr std::size_t value_bytes_max = std::size_t{128} << 20;
inline constexpr std::chrono::milliseconds time_to_live_max = std::chrono::days(36'500);

// Where a new item of a cluster's store is put. The index decides where its key is looked up, not where it
// lies. If that host has no room, on another.
enum class Placement : std::uint8_t {
  local,   // on this host; if it lends nothing of the store, as by_key
  spread,  // on each in turn
  by_key,  // where the key's part of the index is
  node,    // on one that is named, and on no other
};

// How a store is opened. What stands under "Geometry" is fixed when the store is created; an attach that asks
// for another geometry than the store has is an Errc::incompatible.
struct Options {
  // attach_or_create attaches to what another user made only if that is root, or made it for a group that
  // this user is in, or if file_mode is 0666 here (Errc::permission): anybody may take the name of a store
  // that is not there yet, and open it to all, to have what others put there.
  enum class Mode { attach_or_create, attach, create };
  Mode mode = Mode::attach_or_create;

  // Geometry.
  std::optional<std::uint32_t> candidates;  // slots a key may stand in, 2 to 4; 3 unless told
  // Of items and index together, 4 MiB at least; 0, and unless told: what the file system gives. To ask for 0
  // of a store that has a limit is to ask for another geometry.
  std::optional<std::uint64_t> max_bytes;
  std::optional<std::chrono::milliseconds>
      expiry;  // how long unlinked memory rests, unless all clients are processes of this host, which can
               // tell sooner that nobody uses it; 1 s unless told, 50 ms to 60 s
  Atomics atomics = Atomics::processor;  // for Store::create

  // Access, on creation: as chmod and chgrp would set them on the store's files. 0600, 0660 or 0666, since
  // who may only read the files has no use of them.
  std::uint32_t file_mode = 0600;
  std::string group;  // empty: the process's own

  // This client.
  std::string directory = "/dev/shm";       // where the files are; shm:///some/folder/name says the same
  std::chrono::milliseconds timeout{1000};  // of one call, 1 ms to 1 h
  bool huge_pages = true;                   // ask the kernel for 2 MiB pages; goes on without them
  // Of a store on another host: for copies of items that a thread read more than once lately, so that a get
  // of them reads no more than whether they are the key's still. Of each thread; none of an item is kept that
  // is longer than a sixteenth of it; of a cluster, each shard has its part of it. 0: none. Besides, a thread
  // remembers where the items are of up to 16,384 keys that it used lately, in up to 2 MiB. All this is of
  // keys of up to 64 B.
  std::size_t cache_bytes = std::size_t{4} << 20;
  // Of a store on another host: for where items of less than 64 KiB were lately, shared by all threads. Over
  // TCP a get takes one round trip and not two by it, and a put one and not three; over RDMA a get two
  // messages, however full the store is. 16 B a key, taken as it is needed; 0: none.
  std::size_t location_cache_bytes = std::size_t{16} << 20;

  // Changes nothing (Errc::permission), and attaches only; creates and destroys no store. On another host,
  // lochd sees to that: also for clients whose key is one for reading, which need not say so here. On this
  // one it is this program's promise, since a session says in the store's memory what it may be reading; the
  // files' mode decides.
  bool read_only = false;

  // To a store on another host. Keys and certificates are read again whenever a connection is made, so they
  // may be replaced while the store is open.
  std::string source_address;  // of this host, to go from, which chooses the device; empty: as the routes say
  // Has the key of that host's lochd; empty: it has none, or is on this host, and for its own user and root,
  // who read the key that it made for itself in `directory`.
  std::string key_file;
  std::string tls_authority;    // PEM file of whom to trust: the connection is inside TLS; empty: it is not
  std::string tls_certificate;  // of this client, if the host asks for one,
  std::string tls_key;          // and its key

  // Of a store of a cluster: on which host new items are put.
  Placement placement = Placement::local;
  std::string placement_node;  // with Placement::node: the name that the cluster has for it
};

// Names one item that was read or written: `replace`, and `remove` of a version, succeed only while that very
// item is the key's value.
struct Version {
  std::uint64_t token = 0;
  bool operator==(const Version&) const = default;
};

// What a `read` found.
struct Item {
  std::string value;
  Version version;
  // What is left of it, 1 ms at least; none: lives until removed.
  std::optional<std::chrono::milliseconds> time_to_live;
};

struct PutOptions {
  // 1 ms to time_to_live_max; none: lives until it is removed. A computed time that has come to 0 or less is
  // Errc::invalid_argument. It goes by the CLOCK_MONOTONIC of the store's host, which stands still while that
  // is suspended.
  std::optional<std::chrono::milliseconds> time_to_live{};
};

// What `update` asks for the next value, with the one that is there, or with nothing; nothing leaves all as
// it is. Asked again whenever another client was quicker. It must not throw, and may use the store.
using Change = std::function<std::optional<std::string>(std::optional<std::string_view> value)>;

// A value in the store's own memory, without a copy; of a store on another host, in a copy of its own. The
// memory is not reused while the View lives; keep it short: what other clients unlink meanwhile rests too.
// Not to be handed to another thread, nor to outlive its own; it may outlive the Store.
class View {
 public:
  View() noexcept;  // of nothing, as one that was moved from
  View(View&&) noexcept;
  View& operator=(View&&) noexcept;
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View();

  // Not of one that is about to go: `store.view(key).value().value()` would outlive its memory.
  [[nodiscard]] std::string_view value() const& { return value_; }
  std::string_view value() const&& = delete;
  [[nodiscard]] Version version() const { return version_; }

 private:
  friend class Store;
  struct Pin;
  std::string_view value_;
  Version version_;
  std::unique_ptr<Pin> pin_;
};

// One key of a multi_get, whose bytes outlive the call. `value` keeps its capacity from call to call; what an
// error leaves in it is not specified.
struct Lookup {
  std::string_view key;
  std::string value;
  Result<void> result{};
};

// One key of a multi_put; its bytes and those of its value outlive the call.
struct Assignment {
  std::string_view key;
  std::string_view value;
  PutOptions options{};
  Result<void> result{};
};

// One key of a multi_remove; its bytes outlive the call.
struct Removal {
  std::string_view key;
  Result<void> result{};
};

// One item of an iteration; valid during the visit.
struct Entry {
  std::string_view key;
  std::string_view value;
  Version version;
  std::optional<std::chrono::milliseconds> time_to_live;  // as Item's
};

// What a store is, as `loch stat` prints it.
struct Info {
  std::string name;
  std::string directory;  // or, of other hosts, the URL
  std::uint32_t hosts = 1;
  std::uint32_t hosts_away = 0;  // that can not be reached: all below is without what they have
  std::uint32_t format_version = 0;
  std::uint32_t candidates = 0;
  std::uint64_t index_slots = 0;
  bool index_growing = false;
  std::uint64_t index_bytes = 0;
  std::uint64_t control_bytes = 0;
  std::uint64_t data_bytes = 0;  // of the data files, in use or not
  std::uint64_t block_bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t blocks_free = 0;
  std::uint64_t blocks_leased = 0;    // to live clients, being filled
  std::uint64_t clients = 0;          // live sessions of all processes
  std::uint64_t max_bytes = 0;        // on each host; 0: what the file system gives
  std::uint64_t huge_page_bytes = 0;  // of this process's mapping
  std::chrono::milliseconds expiry{};
  Stats totals;  // of all clients since the store was created, the dead among them
};

// What a collection got back; see Store::collect.
struct Collected {
  std::uint64_t sessions_reaped = 0;  // of clients that died
  std::uint64_t items_reclaimed =
      0;                            // that dead clients wrote but never linked, or unlinked but never retired
  std::uint64_t items_expired = 0;  // whose time to live had passed
  std::uint64_t blocks_freed = 0;
  std::uint64_t slots_repaired = 0;  // words of unfinished inserts and moves, and damaged ones
};

// What a check of the whole store found; see Store::check.
struct Report {
  std::uint64_t items = 0;              // reachable
  std::uint64_t items_resting = 0;      // unlinked, waiting for their expiry or for reuse
  std::uint64_t items_unaccounted = 0;  // neither reachable, free, resting, nor held by a live client
  std::uint64_t items_corrupt = 0;
  std::uint64_t slots_used = 0;
  std::uint64_t slots_pending = 0;    // inserts and moves in progress, or left by the dead
  std::uint64_t slots_corrupt = 0;    // point outside the store, or at no item
  std::vector<std::string> findings;  // a line each, at most 100
  std::uint64_t findings_left_out = 0;
};

class Store {
 public:
  // Opens "shm://name", creating the store unless `options.mode` says otherwise; or "verbs://host:port/name",
  // "tcp://host:port/name" or, of a cluster, "tcp://host:port,host:port/name", which have to be there
  // (else not_found). The port is 7457 unless told; of a cluster's hosts, one that answers is enough. A name
  // has 1 to 64 characters out of letters, digits, '.', '_' and '-', and no '.' first. Another host has 5 s
  // to answer, whatever `options.timeout` is. Errors: all but changed, moved and cancelled (error.h).
  [[nodiscard]] static Result<Store> open(std::string_view url, const Options& options = {});

  // Makes "shm://name" and does not open it; where it is, for people. Errors: exists, invalid_argument,
  // not_found (no such directory), permission, no_space, io.
  [[nodiscard]] static Result<std::string> create(std::string_view url, const Options& options = {});

  // Removes the store's files. Clients that have it open go on with what they mapped. Errors: not_found,
  // permission (not the owner, or `options.read_only`), invalid_argument, io.
  [[nodiscard]] static Result<void> destroy(std::string_view url, const Options& options = {});

  // The names of the stores in `options.directory`, sorted. Errors: not_found, permission, io.
  [[nodiscard]] static Result<std::vector<std::string>> list(const Options& options = {});

  // One that was moved from can be assigned to or destroyed, and nothing else.
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  // One whose host does not answer is closed in the time of a few calls, however many threads have used it.
  ~Store();

  // Reads. Errors: not_found, corrupt, timed_out, invalid_argument, no_space (in this process), unavailable.
  [[nodiscard]] Result<std::string> get(std::string_view key);
  // Into memory that is used again; the quickest if the value is as long as what `into` holds. `key` is not
  // part of `into`. What an error leaves in `into` is not specified.
  [[nodiscard]] Result<void> get(std::string_view key, std::string& into) {
    if (get_plain(key, into)) [[likely]]
      return {};
    return get_otherwise(key, into);
  }
  [[nodiscard]] Result<Item> read(std::string_view key);  // with its version and time to live
  [[nodiscard]] Result<View> view(std::string_view key);  // in place
  // Reads no byte of the value: true also if that is damaged, and a `get` says corrupt.
  [[nodiscard]] Result<bool> exists(std::string_view key);

  // Writes. A returned success is visible to every client. One that finds no memory waits for that of items
  // whose time to live is over, if there are any, and its timeout is long enough. Errors: no_space, timed_out
  // and unavailable (the write may or may not have happened), invalid_argument, corrupt, permission (this
  // client may only read).
  //
  // Each returns the version of the item that it wrote, for a `replace` or `remove` of that one.
  [[nodiscard]] Result<Version> put(std::string_view key, std::string_view value, PutOptions options = {});
  // Errors: exists, too.
  [[nodiscard]] Result<Version> insert(std::string_view key, std::string_view value, PutOptions options = {});
  // Errors: changed and not_found, too. A copy counts as a change: a host that leaves a cluster has its items
  // copied, and the growth of the index, once in a long while, has one.
  [[nodiscard]] Result<Version> replace(std::string_view key, std::string_view value, Version expected,
                                        PutOptions options = {});
  // Reads the value, asks `change` for the next one, and replaces that very item, or inserts it: anew for as
  // long as others are quicker.
  //
  //   store.update("seen", [](auto value) { return std::string(value.value_or("")) + "user:17,"; });
  //
  // An item that is there keeps the time that it has to live; `options` are of one that is inserted. Returns
  // the version that is the key's now, Version{} if it has no item. The timeout is of the whole, and of the
  // last step once more.
  [[nodiscard]] Result<Version> update(std::string_view key, const Change& change, PutOptions options = {});
  // The time that an item has to live from now on; its value stays, and its version does not. Errors:
  // not_found, too.
  [[nodiscard]] Result<Version> touch(std::string_view key, PutOptions options);
  [[nodiscard]] Result<void> remove(std::string_view key);  // Errors: not_found, too
  // Of that version alone. Errors: changed and not_found, too, as of `replace`.
  [[nodiscard]] Result<void> remove(std::string_view key, Version expected);

  // Many keys at once; their memory misses and round trips overlap. The result of each key stands in its
  // element. A key that is put more than once gets the last of its values; what became of a put that another
  // one of its key follows may be what became of that one. Of a key that is removed more than once, one
  // removal finds it at most. Several changes are not one step: others may see some of them done and the rest
  // not yet, and some may fail.
  void multi_get(std::span<Lookup> lookups);
  void multi_put(std::span<Assignment> assignments);
  void multi_remove(std::span<Removal> removals);

  // About the whole store. Errors: timed_out; unavailable, while a host of it is away.

  // Visits items until `visit` returns false. A key that is there throughout is visited at least once, and
  // exactly once if it was neither changed nor copied (see `replace`) meanwhile. A damaged item is left out,
  // and counted by stats() (corrupt_items; corrupt_slots, if the index is damaged where it names the item).
  // Memory unlinked during the iteration rests until it ends. `visit` must not throw, and may use the store.
  // Over a network it has to do so, or return, within lochd's silence_s (10 s): else the host ends the
  // session, and the iteration fails with Errc::unavailable.
  [[nodiscard]] Result<void> for_each(const std::function<bool(const Entry&)>& visit);

  // How many items there are: exact while nobody writes. Damaged ones are left out, and are counted in
  // Counter::corrupt_items; values are not looked at.
  [[nodiscard]] Result<std::uint64_t> count();

  // Counters of the sessions of this Store and of its Asyncs, not of what else has the store open.
  [[nodiscard]] Stats stats() const;
  // Of the hosts of the store that can be reached.
  [[nodiscard]] Result<Info> info();

  // How this thread's session is connected with the store's hosts, if over RDMA (verbs://): whether both ends
  // agree. Empty otherwise. Errors: timed_out, unavailable, corrupt, io.
  [[nodiscard]] Result<std::vector<RdmaConnection>> rdma_connections();

  // Clears up after dead clients, drops items whose time has passed, and frees empty blocks. Clients do this
  // themselves in small steps when they need memory; this does all of it now. Errors: permission, too.
  [[nodiscard]] Result<Collected> collect();

  // Walks everything and accounts for every item, block and slot. Changes nothing.
  [[nodiscard]] Result<Report> check();

  // For Async (<loch/async.h>), and the project's own tests and benchmarks.
  class Impl;
  [[nodiscard]] Impl& impl() { return *impl_; }

 private:
  explicit Store(std::shared_ptr<Impl> impl);
  // The plainest of all, as most are; false if it is none, and `into` may have been changed.
  [[nodiscard]] bool get_plain(std::string_view key, std::string& into);
  [[nodiscard]] Result<void> get_otherwise(std::string_view key, std::string& into);
  std::shared_ptr<Impl> impl_;
};

}  // namespace loch
