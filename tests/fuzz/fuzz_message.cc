// Messages of peers, of which anything was changed, and any bytes as messages, to all that takes them apart.
// Expect: what is taken is what was said, and can be; what is not is an error that people can be shown; and
// nobody gets in, or is believed, who does not prove that he knows the key for it.
//
// The first byte of the input says what is tried.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <vector>

#include "base/check.h"
#include "fabric/cluster_map.h"
#include "fabric/fabric.h"
#include "fabric/host/gate.h"
#include "fabric/map_message.h"
#include "fabric/remote/protocol.h"
#include "fabric/verbs/connection_end.h"
#include "fabric/verbs/keys.h"
#include "fabric/verbs/rdma.h"
#include "net/message.h"
#include "net/proof.h"
#include "tests/fuzz/connection.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/messages.h"

namespace loch::fuzz {
namespace {

using fabric::ClusterMap;
using fabric::RegionId;
using fabric::host::Gate;
using net::Message;

// An error of what a peer said: anybody may be shown it.
void check_refused(const Error& error, Errc code) {
  LOCH_CHECK(error.code == code && !error.detail.empty() && is_plain(error.detail));
}

// ---- how messages come

// Bytes of a connection, in pieces. Whatever is read of them is an object, and is read again when it is said.
void read_messages(Input& input) {
  const std::uint64_t cut = input.take(1);
  const bool falters = (cut & 1) != 0;
  Connection from({.bytes_max = 1 + cut / 2, .falters = falters});
  while (!input.empty()) {
    const std::uint64_t how = input.take(1);
    std::string text = input.take_bytes(how & 63);
    if ((how & 128) != 0) {  // some of it many times, so that it is long
      const std::string repeated = input.take_bytes(1 + input.take(1) % 4);
      for (std::uint64_t i = input.take(1) * 40; i != 0; --i) text += repeated;
      text += input.take_bytes(input.take(1) & 7);
    }
    from.tell((how & 64) != 0 ? text : framed(text));
  }
  from.close();
  net::Messages messages(from.other_end());
  for (;;) {
    const auto message = messages.next();
    if (!message) {
      const Errc code = message.error().code;
      LOCH_CHECK(code == Errc::corrupt || code == Errc::unavailable);
      return check_refused(message.error(), code);
    }
    if (!*message) {
      LOCH_CHECK(falters);
      continue;
    }
    const Message& said = **message;
    LOCH_CHECK(said.is_object());
    if (said.dump().size() > net::Messages::bytes_max) continue;  // with numbers that were written shorter
    Connection again({});
    net::Messages there(again.other_end());
    LOCH_CHECK(there.say(said).has_value() && !there.has_unsent());
    again.tell(again.take_heard());
    const auto read = there.next();
    LOCH_CHECK(read && *read && **read == said);
  }
}

void read_error(Input& input) {
  Message message = net::error_message({.code = Errc::no_space, .detail = "the store is full"});
  message["error"]["detail"] = value_of(input);
  change(message, input);
  const auto error = net::error_of(message, "fuzz");
  LOCH_CHECK(error.has_value() == message.contains("error"));
  if (!error) return;
  constexpr std::size_t shown_bytes_max = 1'040;
  LOCH_CHECK(is_plain(error->detail) && error->detail.size() <= shown_bytes_max);
  LOCH_CHECK(error->code >= Errc::not_found && error->code <= Errc::io);
  const auto again = net::error_of(net::error_message(*error), "fuzz");
  LOCH_CHECK(again.has_value() && again->code == error->code && again->detail == error->detail);
}

// ---- what they say

// Two nodes with few regions, so that each of its places is often changed.
ClusterMap small_map() {
  ClusterMap map = ClusterMap::spread({{.name = "a", .at = {.host = "10.0.0.1", .port = "7457"}},
                                       {.name = "b", .at = {.host = "::1", .port = "7457"}}},
                                      2)
                       .value();
  map.nodes[0].data = {2, 4};
  map.nodes[1].data = {3, 5, 127};
  map.nodes[1].since = map.epoch;
  map.shards[1].next = {.node = 0, .index = fabric::index_region_of(1, 1)};
  map.hash_seed = 7;
  return map;
}

void read_map(Input& input) {
  Message message = fabric::cluster::to_message(small_map());
  change(message, input);
  change(message, input);
  const auto map = fabric::cluster::map_of(message);
  if (!map) return check_refused(map.error(), Errc::corrupt);
  LOCH_CHECK(!map->flaw());
  const Message told = fabric::cluster::to_message(*map);
  LOCH_CHECK(fabric::cluster::map_of(told).value() == *map);
  LOCH_CHECK(fabric::cluster::map_of(Message::parse(told.dump())).value() == *map);
  for (unsigned region = 0; region < fabric::region_count_max; ++region) {
    const auto node = map->node_of(static_cast<RegionId>(region));
    LOCH_CHECK(!node || *node < map->nodes.size());
  }
  for (std::uint32_t node = 0; node < map->nodes.size(); ++node) {
    const ClusterMap::Node& each = map->nodes[node];
    LOCH_CHECK(is_plain(each.name) && is_plain(each.at.text()));
    LOCH_CHECK(each.state == ClusterMap::NodeState::gone || map->find(each.name) == node);
    for (const RegionId region : each.data) LOCH_CHECK(map->node_of(region) == node);
  }
}

void read_connection_end(Input& input) {
  Message message = fabric::verbs::to_message({.device = "mlx5_0",
                                               .port = 1,
                                               .mtu_bytes = 1'024,
                                               .atomicity = RdmaDevice::Atomicity::device,
                                               .lockable_bytes = 65'536});
  change(message, input);
  const auto end = fabric::verbs::connection_end_of(message);
  if (!end) return check_refused(end.error(), Errc::corrupt);
  LOCH_CHECK(is_plain(end->device));
  LOCH_CHECK(fabric::verbs::connection_end_of(fabric::verbs::to_message(*end)).value() == *end);
}

// What a host says of the memory that its device lets a session at: of every place it is known once, or not.
void learn_keys(Input& input) {
  fabric::verbs::Keys keys;
  std::vector<fabric::verbs::Keys::Key> taken;
  const auto number = [&input] { return input.take((input.take(1) & 7) == 7 ? 8 : 1); };
  constexpr RegionId region = 2;
  while (!input.empty()) {
    const std::uint64_t at = number();
    const fabric::verbs::Keys::Key key{
        .from_bytes = number(), .length_bytes = number(), .address = number(), .key = 1};
    const auto lies_over = [&key](const auto& other) {
      return other.from_bytes < key.end_bytes() && key.from_bytes < other.end_bytes();
    };
    const bool can_be = key.from_bytes <= fabric::region_bytes_max &&
                        key.length_bytes <= fabric::region_bytes_max && key.has(at) &&
                        std::ranges::none_of(taken, lies_over);
    LOCH_CHECK(keys.add(region, at, key) == can_be);
    if (can_be) taken.push_back(key);
    for (const std::uint64_t place : {at, key.from_bytes, key.from_bytes + key.length_bytes}) {
      const auto its = std::ranges::find_if(taken, [place](const auto& each) { return each.has(place); });
      const auto* const found = keys.find(region, place);
      LOCH_CHECK((found != nullptr) == (its != taken.end()));
      LOCH_CHECK(found == nullptr || (found->has(place) && found->from_bytes == its->from_bytes));
    }
  }
}

void foresee(Input& input) {
  const auto said = static_cast<std::uint32_t>(input.take(4));
  const auto foreseen = fabric::verbs::ExtendSoon::decode(said);
  LOCH_CHECK(foreseen.encode() == said);
}

// ---- who gets in

// A gate with each kind of key.
struct Keys {
  net::Secret change{};
  net::Secret other{};
  net::Secret read{};
  std::unique_ptr<Gate> gate{};

  Keys() {
    std::string folder = std::filesystem::temp_directory_path() / "loch-fuzz.XXXXXX";
    LOCH_CHECK(::mkdtemp(folder.data()) != nullptr);
    const auto make = [&folder](const char* name, net::Secret* key) {
      const std::string path = folder + "/" + name;
      std::ofstream(path) << "a key of sixteen bytes: " << name;
      LOCH_CHECK(::chmod(path.c_str(), 0600) == 0);
      *key = net::read_key_file(path).value();
      return path;
    };
    gate =
        Gate::open(
            {.key = make("change", &change), .other = make("other", &other), .read = make("read", &read)}, {})
            .value();
    std::filesystem::remove_all(folder);
  }
};

void let_in(Input& input) {
  static const Keys& keys = *new Keys;
  Message hello{{"protocol", fabric::remote::protocol_version},
                {"nonce", std::string(2 * fabric::remote::nonce_bytes, 'c')}};
  change(hello, input);
  Gate::Greeting greeting{.came_to = "192.0.2.7:7457"};
  const auto told = keys.gate->greet(hello, greeting);
  if (!told) return check_refused(told.error(), Errc::incompatible);
  LOCH_CHECK(hello.contains("protocol") && hello["protocol"] == fabric::remote::protocol_version);
  greeting.mine = std::string(2 * fabric::remote::nonce_bytes, 'h');  // else no input could be run again

  const auto& [came_to, mine, theirs] = greeting;
  const net::Secret link_secret = net::digest(keys.change, {"link", mine, theirs});
  const std::array<net::Secret, 5> known = {keys.change, keys.other, keys.read, link_secret, net::no_key()};
  const net::Secret& shown = known[input.take(1) % known.size()];
  const bool read_only = (input.take(1) & 1) != 0;
  const auto access = fabric::remote::access_text(read_only);
  Message opening{{"open", "store"},
                  {"read_only", read_only},
                  {"proof", net::proof(shown, {"open", mine, theirs, "store", access})}};
  change(opening, input);
  const auto opens_by = [&](const net::Secret& key) {
    return net::text_of(opening, "proof") ==
           net::proof(key, {"open", mine, theirs, net::text_of(opening, "open"),
                            fabric::remote::access_text(net::flag_of(opening, "read_only"))});
  };
  const auto client = keys.gate->let_open(opening, greeting);
  const bool reads = opens_by(keys.read);
  LOCH_CHECK(client.has_value() == (reads || opens_by(keys.change) || opens_by(keys.other)));
  if (!client) check_refused(client.error(), Errc::permission);
  if (client) {
    LOCH_CHECK(client->by_read_key == reads);
    LOCH_CHECK(client->reads_only == (reads || net::flag_of(opening, "read_only")));
  }

  Message fencing{{"fence", "session"},
                  {"store", "store"},
                  {"node", "a"},
                  {"proof", net::proof(shown, {"fence", mine, theirs, "session", "store", "a"})}};
  change(fencing, input);
  const auto fences_by = [&](const net::Secret& key) {
    return net::text_of(fencing, "proof") ==
           net::proof(key, {"fence", mine, theirs, net::text_of(fencing, "fence"),
                            net::text_of(fencing, "store"), net::text_of(fencing, "node")});
  };
  LOCH_CHECK(keys.gate->let_fence(fencing, greeting).has_value() ==
             (fences_by(keys.change) || fences_by(keys.other)));

  Message joining{{"session", ""}, {"proof", net::proof(shown, {"join", mine, theirs, ""})}};
  change(joining, input);
  const bool joins = net::text_of(joining, "proof") ==
                     net::proof(link_secret, {"join", mine, theirs, net::text_of(joining, "session")});
  LOCH_CHECK(Gate::let_join(joining, greeting, link_secret).has_value() == joins);
}

void run(Input input) {
  constexpr std::array tried = {read_messages,       read_error, read_map, read_map,
                                read_connection_end, learn_keys, foresee,  let_in};
  tried[input.take(1) % tried.size()](input);
}

}  // namespace
}  // namespace loch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  loch::fuzz::run({data, size});
  return 0;
}
