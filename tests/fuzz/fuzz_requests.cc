// Messages of a client, of which anything was changed, to what carries out what is asked for over a link.
// Expect: each is answered; no region grows that is not here, or by more than one question may make it, or
// beyond what the store was created for, nor for who may only read; a session has the client numbers that it
// was given, until it gives them back or ends; and nobody has a say in the session of another link.
//
// The input says what the store is like and who asks; then what is asked for.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file_descriptor.h"
#include "fabric/cluster_map.h"
#include "fabric/fabric.h"
#include "fabric/host.h"
#include "fabric/host/requests.h"
#include "fabric/host/sessions.h"
#include "fabric/remote/protocol.h"
#include "fabric/testing/memory_store.h"
#include "net/message.h"
#include "net/stream.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/messages.h"

namespace loch::fabric::host {
namespace {

using fuzz::Input;
using net::Message;
using Id = Sessions::Id;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t limit_bytes = 100 * mebibyte;
constexpr const char* of_cluster = "of-a-cluster";

// The session that asks, and one of somebody else.
constexpr Id asking_link = 10;
constexpr Id asking = 1;
constexpr Id other_link = 20;
constexpr Id other = 2;
constexpr std::uint32_t other_client = 77;

const ClusterMap& map_of_two() {
  static const ClusterMap map = ClusterMap::spread({{.name = "a", .at = {.host = "10.0.0.1", .port = "1"}},
                                                    {.name = "b", .at = {.host = "10.0.0.2", .port = "1"}}},
                                                   2)
                                    .value();
  return map;
}

// What serves all inputs, as a host does with all its clients.
struct Served {
  int readers = 0;  // that were let in, and have not gone
  Host::Options options{
      .cluster_of = [](const std::string& store) -> Result<std::optional<Host::Options::Cluster>> {
        if (store != of_cluster) return std::nullopt;
        return Host::Options::Cluster{.map = map_of_two(), .node = 0};
      },
      .bytes_max = [](const Fabric& /*store*/) { return limit_bytes; },
      .readers = {.admit = [this](Fabric& /*store*/,
                                  std::uint32_t client) -> Result<std::optional<OwnWords>> {
                    if (client % 8 == 6) return fail(Errc::io, "fuzz", "it can not be let in");
                    if (client % 8 == 7) return std::nullopt;
                    ++readers;
                    return OwnWords{.first = {.at = {0, 64}, .length_bytes = 64}};
                  },
                  .dismiss = [this](Fabric& /*store*/, std::uint32_t /*client*/) { --readers; },
                  .numbers_max = 2}};
  Sessions sessions{options, nullptr, [] {}, nullptr};
  Requests requests{options, sessions, nullptr};
};

Message sound_request(Input& input) {
  static const std::array<Message, 12> requests = {
      Message{{"do", "length"}, {"region", 2U}},
      Message{{"do", "extend"}, {"region", 2U}, {"bytes", 3 * mebibyte}},
      Message{{"do", "extend_soon"}, {"region", 2U}, {"bytes", 3 * mebibyte}},
      Message{{"do", "free"}},
      Message{{"do", "membership"}},
      Message{{"do", "claim"}, {"port", asking}, {"client", 5U}, {"reached", 3U}},
      Message{{"do", "release"}, {"port", asking}, {"client", 5U}},
      Message{{"do", "present"}, {"client", 5U}},
      Message{{"do", "leave"}, {"port", asking}},
      Message{{"do", "queue_pair"}, {"port", asking}},
      Message{{"do", "key"}, {"port", asking}, {"region", 2U}, {"at", 0U}},
      Message{{"do", "connection"}, {"port", asking}}};
  return requests[input.take(1) % requests.size()];
}

class Client {
 public:
  Client(Served& served, std::uint64_t how)
      : served_(served), is_of_cluster_((how & 1) != 0), reads_only_((how & 2) != 0) {
    const RegionId control = is_of_cluster_ ? control_region_of(0) : RegionId{0};
    const RegionId index = is_of_cluster_ ? index_region_of(0) : RegionId{1};
    store_ = fake::MemoryStore::create(
        {.regions = {{control, 65'536}, {index, mebibyte}, {first_data_region, 2 * mebibyte}}, .fill = {}},
        {.free_bytes = 256 * mebibyte, .region_bytes = 128 * mebibyte});
    fabric_ = store_->attach();
    opened_ = std::make_shared<OpenedStore>(OpenedStore{.name = is_of_cluster_ ? of_cluster : "store",
                                                        .reads_only = reads_only_,
                                                        .by_read_key = reads_only_ && (how & 4) != 0,
                                                        .fabric = fabric_,
                                                        .way = fabric_->connect(),
                                                        .cluster = {}});
    if (is_of_cluster_) opened_->cluster = Host::Options::Cluster{.map = map_of_two(), .node = 0};
    begin(asking, asking_link);
    begin(other, other_link);
    LOCH_CHECK(served_.sessions.claim(other, other_client, all_nodes).value());
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void ask(const Message& asked) {
    const std::string what = net::text_of(asked, "do");
    const std::uint64_t region = net::number_of(asked, "region").value_or(region_count_max);
    const auto before = lengths();
    if (what == "extend_soon") {
      foresees_ = true;
      served_.requests.extend_soon(*opened_, region, net::number_of(asked, "bytes").value_or(0));
    } else {
      const Message answer = served_.requests.answer(asking_link, *opened_, asked);
      const bool is_error = answer.is_object() && answer.contains("error");
      LOCH_CHECK(answer.is_object() && answer.dump().size() <= net::Messages::bytes_max);
      LOCH_CHECK(!is_error || !net::error_of(answer, "fuzz")->detail.empty());
      if (what == "length" && !is_error && !foresees_)
        LOCH_CHECK(net::number_of(answer, "bytes") == before.at(region));
      if (!is_error) take_note(what, asked, answer);
    }
    check_lengths(before, what == "extend" ? region : region_count_max);
    check_presence();
  }

  // All that it had is free.
  void end() {
    served_.sessions.end(asking, Sessions::End::leaves);
    LOCH_CHECK(fabric_->present(other_client));
    served_.sessions.end(other, Sessions::End::leaves);
    claimed_ever_.insert(other_client);
    for (const std::uint32_t client : claimed_ever_) LOCH_CHECK(!fabric_->present(client));
    LOCH_CHECK(served_.readers == 0);
  }

 private:
  void begin(Id id, Id link) {
    std::array<int, 2> ends{};
    LOCH_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    far_ends_.emplace_back(ends[0]);
    served_.sessions.begin(id, link, opened_, is_of_cluster_ ? "session" : "",
                           std::make_unique<net::Stream>(base::FileDescriptor(ends[1])));
  }

  void take_note(const std::string& what, const Message& asked, const Message& answer) {
    const std::uint64_t number = net::number_of(asked, "client").value_or(0);
    LOCH_CHECK(number >> client_number_bits == 0);
    const auto client = static_cast<std::uint32_t>(number);
    const bool needs_session = what == "claim" || what == "release" || what == "leave";
    LOCH_CHECK(!needs_session || net::number_of(asked, "port") == asking);
    if (what == "claim" && net::flag_of(answer, "claimed")) {
      LOCH_CHECK(claimed_.insert(client).second);
      claimed_ever_.insert(client);
    }
    if (what == "release") claimed_.erase(client);
    if (what == "leave") claimed_.clear();
    if (what == "present") LOCH_CHECK(net::flag_of(answer, "present") == fabric_->present(client));
  }

  [[nodiscard]] std::array<std::uint64_t, region_count_max> lengths() const {
    std::array<std::uint64_t, region_count_max> all{};
    for (unsigned region = 0; region < region_count_max; ++region)
      all[region] = store_->length_bytes(static_cast<RegionId>(region));
    return all;
  }
  [[nodiscard]] bool is_here(RegionId region) const {
    return is_of_cluster_ ? map_of_two().node_of(region) == 0U : region < data_regions_end;
  }

  // `may_grow`: by what was asked last.
  void check_lengths(const std::array<std::uint64_t, region_count_max>& before,
                     std::uint64_t may_grow) const {
    const auto after = lengths();
    std::uint64_t used = 0;
    for (unsigned each = 0; each < region_count_max; ++each) {
      const auto region = static_cast<RegionId>(each);
      const bool has_grown = after[each] != before[each];
      LOCH_CHECK(!has_grown || (!reads_only_ && is_here(region)));
      // What was foreseen is added when its turn comes.
      LOCH_CHECK(!has_grown || foresees_ || each == may_grow);
      LOCH_CHECK(foresees_ || after[each] - before[each] <= remote::extension_bytes_max);
      const bool is_control = each == 0 || (each >= data_regions_end && each < index_region_of(0));
      if (!is_control) used += after[each];
    }
    LOCH_CHECK(used <= limit_bytes);
  }

  void check_presence() const {
    for (const std::uint32_t client : claimed_) LOCH_CHECK(fabric_->present(client));
    LOCH_CHECK(!reads_only_ || claimed_.size() <= 1);
    LOCH_CHECK(served_.sessions.has(other_link, other) && fabric_->present(other_client));
  }

  Served& served_;
  const bool is_of_cluster_;
  const bool reads_only_;
  std::shared_ptr<fake::MemoryStore> store_{};
  std::shared_ptr<fake::MemoryFabric> fabric_{};
  std::shared_ptr<OpenedStore> opened_{};
  std::vector<base::FileDescriptor> far_ends_{};
  bool foresees_ = false;
  std::set<std::uint32_t> claimed_{};
  std::set<std::uint32_t> claimed_ever_{};
};

void run(Input input) {
  static auto& served = *new Served;
  Client client(served, input.take(1));
  constexpr int requests_max = 32;
  for (int i = 0; i < requests_max && !input.empty(); ++i) {
    Message asked = sound_request(input);
    fuzz::change(asked, input);
    if (asked.is_object()) client.ask(asked);  // no other comes from a connection
  }
  client.end();
}

}  // namespace
}  // namespace loch::fabric::host

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  loch::fabric::host::run({data, size});
  return 0;
}
