// fabric: the operations that every protocol of Loch is written in. Nothing above this folder names a
// backend.
//
// A store's memory is a set of regions, each in one node's memory. A Fabric (one for each store that a
// process has open) creates, finds and extends regions; an Endpoint (endpoint.h; one for each session) reads
// and changes them.
//
// What may be assumed, on every backend (the conformance tests test exactly this):
// P1 An aligned 8-byte word is read and written whole, unless it is read as `settled`. Nothing else is: a
//    read may see any mix of old and new words of a write that runs beside it, in any order.
// P2 compare-swap and fetch-add are atomic against each other through the same fabric, and against the
//    processor of the owner only if the store's `atomics` are the processor's.
// P3 Operations of one batch, and operations posted one after the other, may execute in any order. To order
//    two, wait for the first to complete; or have them in one batch, the second `after_previous`. Where a
//    port `keeps_order`, each also executes after those that stand before it in its batch and are on the same
//    node, unless these are `settled` reads; and it takes an operation that others can not carry out,
//    `expect`.
// P4 A failed operation may or may not have happened; if it failed with Errc::moved, the host has ended the
//    session, and no compare-swap or fetch-add of its batch has happened, and nothing that is posted to that
//    host later does. Once it has ended it does not happen any more.
// P5 Every operation is bounded by a deadline and ends in success or an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <loch/atomics.h>
#include <loch/devices.h>
#include <loch/error.h>

#include "base/clock.h"
#include "net/socket.h"
#include "net/tls_files.h"

namespace loch::fabric {

using RegionId = std::uint8_t;
inline constexpr std::size_t region_count_max = 256;  // any RegionId, since addresses are input
inline constexpr std::uint64_t region_bytes_max = std::uint64_t{64} << 30;
inline constexpr std::size_t cache_line_bytes = 64;

// A place in the store's memory.
struct Address {
  RegionId region = 0;
  std::uint64_t offset_bytes = 0;

  friend constexpr Address operator+(Address a, std::uint64_t bytes) {
    return {a.region, a.offset_bytes + bytes};
  }
  bool operator==(const Address&) const = default;
};

struct Range {
  Address at;
  std::uint64_t length_bytes = 0;

  // Whether it has all of [from, from + bytes).
  [[nodiscard]] constexpr bool contains(Address from, std::uint64_t bytes) const {
    return from.region == at.region && from.offset_bytes >= at.offset_bytes && bytes <= length_bytes &&
           from.offset_bytes - at.offset_bytes <= length_bytes - bytes;
  }
};

// One operation of a batch. The fabric owns `local` from post to completion.
struct Operation {
  enum class Kind : std::uint8_t { read, write, compare_swap, fetch_add, expect };
  Kind kind = Kind::read;
  Address at;
  std::byte* local = nullptr;    // read: filled; write: taken from; expect: compared
  std::size_t length_bytes = 0;  // of an atomic: of its word
  std::uint64_t compare = 0;     // compare_swap: expected
  std::uint64_t operand = 0;     // compare_swap: desired; fetch_add: added
  std::uint64_t result = 0;      // of an atomic: the word as it was before
  // Executes after the one before it in the batch, which is on the same node; and if that one did nothing,
  // this one does nothing either, and has a bad address, too.
  bool after_previous = false;
  // Of a read: nobody changes what is there while the caller may use it, or the caller finds out that it was
  // changed. Words need not be whole, so a backend may spare a copy.
  bool settled = false;
  // Outside its region, so that this operation did nothing (but a write of more than 64 KiB over tcp may have
  // been done in part); or not what was expected.
  bool bad_address = false;
  bool unreachable = false;  // on a host that this session does not reach: likewise

  [[nodiscard]] bool did_nothing() const { return bad_address || unreachable; }
  [[nodiscard]] bool is_atomic() const { return kind == Kind::compare_swap || kind == Kind::fetch_add; }

  static Operation read(Address at, void* into, std::size_t length_bytes) {
    return {.at = at, .local = static_cast<std::byte*>(into), .length_bytes = length_bytes};
  }
  static Operation read_settled(Address at, void* into, std::size_t length_bytes) {
    return {.at = at, .local = static_cast<std::byte*>(into), .length_bytes = length_bytes, .settled = true};
  }
  // `from` is not changed.
  static Operation write(Address at, const void* from, std::size_t length_bytes) {
    return {.kind = Kind::write,
            .at = at,
            .local = static_cast<std::byte*>(const_cast<void*>(from)),
            .length_bytes = length_bytes};
  }
  // That these bytes are there: only then does what comes `after_previous` happen. `bytes` is not changed.
  static Operation expect(Address at, const void* bytes, std::size_t length_bytes) {
    return {.kind = Kind::expect,
            .at = at,
            .local = static_cast<std::byte*>(const_cast<void*>(bytes)),
            .length_bytes = length_bytes};
  }
  static Operation compare_swap(Address at, std::uint64_t expected, std::uint64_t desired) {
    return {.kind = Kind::compare_swap,
            .at = at,
            .length_bytes = sizeof(std::uint64_t),
            .compare = expected,
            .operand = desired};
  }
  static Operation fetch_add(Address at, std::uint64_t added) {
    return {.kind = Kind::fetch_add, .at = at, .length_bytes = sizeof(std::uint64_t), .operand = added};
  }
};

// Where a region is in this process; `base` is null if its memory is elsewhere.
struct Mapping {
  std::byte* base = nullptr;
  std::uint64_t length_bytes = 0;
};

// In the background: nobody waits for it. It may be sent with the next batch that somebody waits for, and its
// time counts from then on.
enum class Urgency : std::uint8_t { awaited, background };

// What one more operation in a batch costs: little, as one of many in a frame; a message of its own, as on a
// queue pair, so that what may not be needed is better asked for later if that is seldom; or even the time of
// a round trip, where a processor does in turn what a device would have under way at once.
enum class OperationCost : std::uint8_t { little, message, round_trip };

// Told once, when a posted batch has completed, successfully or not. A function pointer and not a virtual
// call: most of these live on a hot path that never posts.
struct Completion {
  void (*complete)(Completion& self, Result<void> outcome) = nullptr;
  Urgency urgency = Urgency::awaited;
};

// Whose presence it is: a client number of a node. A store of one host has node 0 alone.
inline constexpr unsigned client_number_bits = 16;
constexpr std::uint32_t client_of(std::uint32_t node, std::uint32_t number) {
  return node << client_number_bits | number;
}
constexpr std::uint32_t node_of_client(std::uint32_t client) { return client >> client_number_bits; }
constexpr std::uint32_t number_of_client(std::uint32_t client) {
  return client & ((1U << client_number_bits) - 1);
}

// The way of one session to the store's memory. One thread.
class Port {
 public:
  virtual ~Port() = default;
  // Where `region` is in this process, after it may have been extended. If its memory is elsewhere this asks
  // nobody, and `length_bytes` is what is known of it; it stays elsewhere as long as the port is there.
  // Errors: not_found, io.
  virtual Result<Mapping> map(RegionId region) = 0;
  // How long `region` is now, which may have to be asked for. Errors: not_found, io, unavailable.
  virtual Result<std::uint64_t> length_bytes(RegionId region) {
    auto mapping = map(region);
    if (!mapping) return std::unexpected(std::move(mapping.error()));
    return mapping->length_bytes;
  }
  // Starts a batch; `batch` and `done` live until completion.
  virtual void post(std::span<Operation> batch, base::Nanos deadline, Completion& done) = 0;
  // Makes progress; waits for at most `wait_ns` if there is none to make.
  virtual void poll(base::Nanos wait_ns) = 0;
  [[nodiscard]] virtual bool keeps_order() const { return false; }  // of batches, and takes `expect`
  // Why the host of a region is not reached that operations say is unreachable; for people.
  [[nodiscard]] virtual std::string why_unreachable(RegionId /*region*/) const { return {}; }
  [[nodiscard]] virtual OperationCost operation_cost() const { return OperationCost::little; }
  // Says that `region` will have to be at least so long before long: if its memory is elsewhere, it may be
  // made so there meanwhile, as by Fabric::extend. Nobody waits for that, and it may be lost.
  virtual void extend_soon(RegionId /*region*/, std::uint64_t /*length_bytes*/) {}

  // Breaks the session off, if it is elsewhere: what was posted ends with an error, nothing more is asked
  // for, and its hosts take it for dead.
  virtual void break_off() {}

  // The connections over RDMA that it goes by, if it does; each host is asked for what its end is. Errors:
  // unavailable, timed_out, corrupt (what the host says), io.
  virtual Result<std::vector<RdmaConnection>> rdma_connections() { return {}; }

  // Presence: a client number is held by one living session at most, and let go of when its process ends,
  // however it ends, and what it had under way with it, or when its host is taken for dead and nothing that
  // it posted can happen any more. What others do then relies on that: they give its memory away.
  // `claim_presence` is false if somebody alive holds it.
  virtual Result<bool> claim_presence(std::uint32_t client) = 0;
  virtual void release_presence(std::uint32_t client) = 0;
  // True also if nobody can be asked.
  [[nodiscard]] virtual bool present(std::uint32_t client) = 0;
};

// What a new store consists of. `fill` is called once all regions are there, before anybody else can see
// them.
struct Plan {
  struct Region {
    RegionId id = 0;
    std::uint64_t length_bytes = 0;
  };
  std::vector<Region> regions;
  std::function<void(std::span<const Mapping>)> fill;  // in the order of `regions`
  Atomics atomics = Atomics::processor;                // fixed; every way to the store goes by them
};

struct Access {
  std::string directory = "/dev/shm";
  std::uint32_t file_mode = 0600;
  std::string group{};
  bool huge_pages = true;
  // Only to lend it to others: also one whose words a device changes, or that is one host's part of a
  // cluster's store.
  bool lends = false;
  // One that is there: not if another user made it, but root or one whose group for it this user is in. What
  // is put there is that user's as well.
  bool not_of_others = false;
  // Whoever attaches would create a store that is not there. Of one on another host, an error says where.
  bool would_create = false;

  // To a store on another host.
  bool read_only = false;  // also if this client's key would let it change the store
  std::string source{};    // the address of this host to go from; empty: as the routes say
  std::string key_file{};  // has the key of that host; empty: it has none
  net::TlsFiles tls{};     // with an authority: inside TLS
};

struct ClusterMap;

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual std::unique_ptr<Port> connect() = 0;

  // Makes `region` at least `length_bytes` long (creating it if need be); all clients may do so at the same
  // time. New bytes are zero, and in huge pages where those can be had. Errors: no_space (names the path and
  // the free bytes), io.
  virtual Result<void> extend(RegionId region, std::uint64_t length_bytes) = 0;

  [[nodiscard]] virtual Atomics atomics() const = 0;

  // Whether this client may only read: its ports read, and change nothing but the few words that the store's
  // host gave to a session when it claimed its presence (readers.h); elsewhere they find a bad
  // address. `extend` is refused.
  [[nodiscard]] virtual bool read_only() const { return false; }

  // Of a store on several hosts; else null.
  [[nodiscard]] virtual const ClusterMap* cluster() const { return nullptr; }
  // How often a host that could not be reached has been found: what a new session may reach and others do
  // not.
  [[nodiscard]] virtual std::uint64_t hosts_found() const { return 0; }
  // Of a cluster, the latest epoch of its map that a host told of while some could not be reached: those may
  // be gone. 0: none.
  [[nodiscard]] virtual std::uint64_t newest_epoch() const { return 0; }

  // Whether this process takes part in barriers of all that do (base/barrier.h), and one of these: false if
  // there was none.
  [[nodiscard]] virtual bool takes_part_in_barriers() const { return false; }
  virtual bool barrier_for_all() { return false; }

  // Whether whoever attaches to the store's URL now finds this one.
  [[nodiscard]] virtual bool is_published() const = 0;

  // Whether all memory of the store that was mapped in this process is the store's still. To be asked before
  // what was read there is given out, or what was written there is said to be (bus_guard.h); once it is not,
  // it never is again. Errors: corrupt.
  [[nodiscard]] virtual Result<void> intact() const { return {}; }

  // Of a cluster, for its hosts: what they have to know of the session that has a client number, in 63 bytes
  // (empty: nobody has it), and what was noted, also by a host that ended since: all of it, or an error.
  // Errors: no_space, permission, incompatible, io.
  virtual Result<void> note_session(std::uint32_t /*client*/, const std::string& /*note*/) { return {}; }
  using NotedSessions = std::vector<std::pair<std::uint32_t, std::string>>;
  [[nodiscard]] virtual Result<NotedSessions> noted_sessions() { return NotedSessions{}; }

  // The number of this process, for people; never 0.
  [[nodiscard]] virtual std::uint64_t process_number() const {
    return static_cast<std::uint64_t>(::getpid());
  }
  // Where the store is, for people: "/dev/shm/loch.sessions".
  [[nodiscard]] virtual std::string location() const = 0;
  // Bytes that can still be had for `location`.
  [[nodiscard]] virtual std::uint64_t free_bytes() const = 0;
  // Bytes of this process's mappings that are in huge pages.
  [[nodiscard]] virtual std::uint64_t huge_page_bytes() const = 0;
  [[nodiscard]] virtual base::Clock clock() const { return {}; }
};

// "shm://name", "shm:///folder/name", "verbs://host:port/name" or "tcp://host:port/name" taken apart. Of a
// store of a cluster, hosts may be a list: "tcp://host:port,host:port/name". Errors: invalid_argument.
struct Url {
  std::string scheme;
  std::string directory;             // shm: empty unless the URL names one
  std::vector<net::HostPort> hosts;  // of the others: one at least
  std::string name;
};
Result<Url> parse_url(std::string_view url);
// 1 to 64 letters, digits, '.', '_' and '-', and no '.' first.
bool is_store_name(std::string_view name);
inline constexpr std::uint16_t default_port = 7457;

// The store at `url`, as its scheme says. Errors: not_found, permission, invalid_argument, incompatible (this
// is no way to a store with such atomics), unavailable, io.
Result<std::shared_ptr<Fabric>> attach(std::string_view url, const Access& access);
// Publishes a new store on this host: it is there whole, or not at all. Errors: exists, no_space, permission,
// invalid_argument (also for a URL of another host), io.
Result<std::shared_ptr<Fabric>> create(std::string_view url, const Access& access, const Plan& plan);
// Errors: not_found, permission, io.
Result<void> destroy(std::string_view url, const Access& access);
// Names of the stores that `attach` would find, sorted.
Result<std::vector<std::string>> list(const Access& access);

}  // namespace loch::fabric
