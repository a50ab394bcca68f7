#include "server/config.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <limits>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "cluster/changes.h"
#include "cluster/coordinator.h"
#include "cluster/toml_settings.h"
#include "net/stream.h"

namespace loch::server {
namespace {

using cluster::TomlSettings;

constexpr std::uint16_t default_metrics_port = 9'457;

void read_mode(TomlSettings& settings, Config::Store& store) {
  constexpr std::array<std::pair<std::string_view, std::uint32_t>, 3> modes{
      {{"600", 0600}, {"660", 0660}, {"666", 0666}}};
  std::string mode;
  settings.text("mode", mode);
  if (mode.empty()) return;
  const auto* const known =
      std::ranges::find(modes, mode, &std::pair<std::string_view, std::uint32_t>::first);
  if (known == modes.end())
    return settings.complain_of("mode", fmt::format(R"('mode' is "600", "660" or "666", not '{}')", mode));
  store.mode = known->second;
}

void read_store(TomlSettings& settings, Config& config) {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  Config::Store store;
  settings.text("name", store.name);
  if (store.name.empty()) settings.complain("a store needs a 'name'");
  settings.number("candidates", 2, 4, [&](auto n) { store.candidates = static_cast<std::uint32_t>(n); });
  settings.number("max_mib", 4, std::numeric_limits<std::int64_t>::max() / mib,
                  [&](auto n) { store.max_bytes = static_cast<std::uint64_t>(n * mib); });
  settings.number("expiry_ms", 50, 60'000, [&](auto n) { store.expiry = std::chrono::milliseconds(n); });
  std::string atomics = "processor";
  settings.text("atomics", atomics);
  if (const auto parsed = parse_atomics(atomics)) {
    store.atomics = *parsed;
  } else {
    settings.complain_of("atomics",
                         fmt::format(R"('atomics' is "processor" or "device", not '{}')", atomics));
  }
  read_mode(settings, store);
  settings.text("group", store.group);
  settings.flag("cluster", store.of_cluster);
  config.stores.push_back(std::move(store));
}

void read_log(TomlSettings& settings, Config& config) {
  constexpr std::array levels{"trace", "debug", "info", "warning", "error", "critical", "off"};
  settings.text("level", config.log_level);
  if (std::ranges::find(levels, config.log_level) == levels.end())
    settings.complain_of("level", fmt::format("there is no log level '{}'; there are: {}", config.log_level,
                                              fmt::join(levels, ", ")));
}

void read_all(TomlSettings& settings, Config& config) {
  std::vector<net::HostPort> listen;
  settings.addresses("listen", fabric::default_port, [&](const auto& address) { listen.push_back(address); });
  if (!listen.empty()) config.listen = std::move(listen);
  settings.text("directory", config.directory);
  settings.text("key_file", config.key_file);
  settings.text("other_key_file", config.other_key_file);
  settings.text("read_key_file", config.read_key_file);
  settings.flag("open_to_all", config.open_to_all);
  settings.number("silence_s", 1, 3'600, [&](auto n) { config.silence_max = std::chrono::seconds(n); });
  settings.number("connections_max", 2, 1'000'000,
                  [&](auto n) { config.connections_max = static_cast<std::size_t>(n); });
  settings.flag("verbs", config.verbs);
  settings.flag("huge_pages", config.huge_pages);
  settings.table("tls", [&](TomlSettings& tls) {
    tls.text("certificate", config.tls.certificate);
    tls.text("key", config.tls.key);
    tls.text("authority", config.tls.authority);
  });
  settings.table("log", [&](TomlSettings& log) { read_log(log, config); });
  settings.table("metrics", [&](TomlSettings& metrics) {
    metrics.address("listen", default_metrics_port, [&](const auto& address) { config.metrics = address; });
    if (!config.metrics) metrics.complain_of("listen", "[metrics] needs an address to listen at");
  });
  settings.table("cluster", [&](TomlSettings& cluster) {
    Config::Cluster& of = config.cluster.emplace();
    cluster.text("coordinator", of.coordinator);
    cluster.text("node", of.node);
  });
  settings.tables("store", [&](TomlSettings& store) { read_store(store, config); });
}

// A name of a host may begin with "127.", too.
bool is_loopback(const net::HostPort& address) {
  constexpr std::uint32_t first_byte_shift = 24;
  constexpr std::uint32_t loopback_net = 127;
  in_addr number{};
  const bool is_number = ::inet_aton(address.host.c_str(), &number) != 0;
  return (is_number && ntohl(number.s_addr) >> first_byte_shift == loopback_net) || address.host == "::1" ||
         address.host == "localhost";
}

// What the system says of a group. What can not be told now shows when the store is made.
enum class Group : std::uint8_t { unknown, is_none, has_this_user, has_others };

Group look_up_group(const std::string& name) {
  // One of many members takes much.
  constexpr std::size_t buffer_bytes_max = std::size_t{1} << 24;
  std::vector<char> buffer;
  struct group entry{};
  struct group* found = nullptr;
  int error = ERANGE;
  for (std::size_t bytes = 4'096; error == ERANGE && bytes <= buffer_bytes_max; bytes *= 2) {
    buffer.resize(bytes);
    error = ::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  }
  if (found == nullptr) return error == 0 ? Group::is_none : Group::unknown;
  const bool is_in_it = entry.gr_gid == ::getegid() || ::group_member(entry.gr_gid) != 0;
  return is_in_it ? Group::has_this_user : Group::has_others;
}

std::vector<Config::Store> stores_of_cluster(const Config& config) {
  std::vector<Config::Store> stores;
  std::ranges::copy_if(config.stores, std::back_inserter(stores), &Config::Store::of_cluster);
  return stores;
}

// The fixed list of hosts that is to be gone by, if there is one and it can be read.
std::optional<fabric::ClusterMap> fixed_list(const Config& config) {
  if (!config.cluster) return std::nullopt;
  const auto coordinator = cluster::Coordinator::open(config.cluster->coordinator);
  if (!coordinator || (*coordinator)->may_change()) return std::nullopt;
  auto map = (*coordinator)->read_map();
  if (!map) return std::nullopt;
  return std::move(map->map);
}

// Where a list says that this host is, if it listens elsewhere.
std::optional<net::HostPort> unserved_address(const Config& config, const fabric::ClusterMap& list) {
  const auto node = list.find(config.cluster->node);
  if (!node) return std::nullopt;
  const net::HostPort& at = list.nodes[*node].at;
  const auto serves = [&at](const net::HostPort& listens) { return cluster::may_be_at(listens, at); };
  return std::ranges::any_of(config.listen, serves) ? std::nullopt : std::optional(at);
}

bool has_password(const Config::Cluster& cluster) {
  return cluster.coordinator.starts_with("zookeeper://") && cluster.coordinator.contains('@');
}

bool is_readable_by_all(const std::string& path) {
  struct stat stat{};
  return ::stat(path.c_str(), &stat) == 0 && (stat.st_mode & S_IROTH) != 0;
}

}  // namespace

Config default_config() {
  Config config;
  config.listen = {{.host = "127.0.0.1", .port = std::to_string(fabric::default_port)}};
  return config;
}

bool has_cookie(const Config& config) {
  return config.key_file.empty() && config.tls.authority.empty() && !config.open_to_all;
}

Result<void> check_config(const Config& config, const std::string& path) {
  const auto wrong = [&path](std::string what) {
    return fail(Errc::invalid_argument, "configuration", path.empty() ? std::move(what) : path + ": " + what);
  };
  if (const auto whole = net::TlsContext::check(config.tls); !whole) return wrong(whole.error().detail);
  if (!config.tls.authority.empty() && config.tls.certificate.empty())
    return wrong("an authority says which clients to trust; it needs a certificate of this host, too");
  if (!config.other_key_file.empty() && config.key_file.empty())
    return wrong("other_key_file is for the time while a key is replaced; without a key_file there is none");
  if (!config.read_key_file.empty() && config.key_file.empty())
    return wrong("read_key_file is for those who may only read; without a key_file everybody may change all");
  if (config.cluster && !config.tls.certificate.empty() && config.tls.authority.empty())
    return wrong(
        "hosts of a cluster are clients of each other; with tls.certificate they need tls.authority, too: "
        "whose certificates they trust");
  if (config.cluster && (config.cluster->coordinator.empty() || config.cluster->node.empty()))
    return wrong("a cluster needs a 'coordinator' and the name that it has for this host, 'node'");
  if (config.cluster && !fabric::is_node_name(config.cluster->node))
    return wrong(
        fmt::format("the 'node' of a cluster has 1 to {} letters, digits, '.', '_' and '-', a letter or "
                    "digit first; '{}' has not",
                    fabric::node_name_bytes_max, config.cluster->node));
  if (config.cluster) {
    if (const auto coordinator = cluster::Coordinator::open(config.cluster->coordinator); !coordinator)
      return wrong("cluster.coordinator: " + coordinator.error().detail);
  }
  if (config.cluster && has_cookie(config))
    return wrong(
        "hosts of a cluster are clients of each other; set key_file (the same key on all), or tls.authority, "
        "or open_to_all = true if the network lets nobody else through");
  std::set<std::string> names;
  for (const Config::Store& store : config.stores) {
    if (!fabric::is_store_name(store.name))
      return wrong(
          fmt::format("the 'name' of a store has 1 to 64 letters, digits, '.', '_' and '-', and no "
                      "'.' first; '{}' has not",
                      store.name));
    if (!names.insert(store.name).second)
      return wrong(fmt::format("there are two stores with the 'name' '{}'", store.name));
    if (store.of_cluster && !config.cluster)
      return wrong(fmt::format("store '{}' is to be of a cluster, and there is no [cluster]", store.name));
    if (store.of_cluster && (store.mode || !store.group.empty()))
      return wrong(fmt::format(
          "store '{}' is of a cluster: programs of this host get in by lochd, whatever 'mode' and "
          "'group' its files have",
          store.name));
    if (store.of_cluster && store.atomics == Atomics::device)
      return wrong(fmt::format("store '{}' is of a cluster; its words are the processors'", store.name));
    if (!store.group.empty() && look_up_group(store.group) == Group::is_none)
      return wrong(fmt::format("store '{}': there is no group '{}'", store.name, store.group));
  }
  for (const net::HostPort& address : config.listen) {
    if (is_loopback(address) || !has_cookie(config)) continue;
    return wrong(
        fmt::format("{} is reached from other hosts, and everybody there could change every store; set "
                    "key_file (make one: head -c 32 /dev/urandom | base64 | install -g GROUP -m 640 "
                    "/dev/stdin FILE, with lochd's GROUP), or tls.authority, or open_to_all = true if the "
                    "network lets nobody else through",
                    address.text()));
  }
  return {};
}

std::vector<std::string> warnings_of(const Config& config, const std::string& path) {
  std::vector<std::string> warnings;
  if (config.cluster && std::ranges::all_of(config.listen, is_loopback)) {
    warnings.push_back(
        fmt::format("hosts of a cluster reach each other at `listen`; {} is this host alone: set listen = "
                    "[\"0.0.0.0:{}\"], unless all of them are on this host",
                    config.listen.front().host, fabric::default_port));
  }
  for (const Config::Store& store : config.stores) {
    const bool may_give_to_any = ::geteuid() == 0;
    if (may_give_to_any || store.group.empty() || look_up_group(store.group) != Group::has_others) continue;
    warnings.push_back(fmt::format(
        "store '{0}' is for group '{1}', which this user is not in: its files can not be given to "
        "the group unless lochd's user is in it (usermod -aG {1} USER)",
        store.name, store.group));
  }
  for (const Config::Store& store : config.stores) {
    if (store.atomics != Atomics::device || config.verbs) continue;
    warnings.push_back(fmt::format(
        "store '{}' has atomics = \"device\", and is opened as verbs:// alone: nobody can; set verbs = true",
        store.name));
  }
  if (config.verbs && !config.tls.certificate.empty()) {
    warnings.emplace_back(
        "verbs and tls.certificate are both set: RDMA is not encrypted, so keys and values of clients by "
        "verbs:// go over that network in plain; let nobody else on it, or set verbs = false");
  }
  const auto list = fixed_list(config);
  if (const auto at = list ? unserved_address(config, *list) : std::nullopt) {
    warnings.push_back(
        fmt::format("{} says that '{}' is at {}, and `listen` has no such address: others hardly find it "
                    "there",
                    config.cluster->coordinator, config.cluster->node, at->text()));
  }
  if (list && list->hash_seed == 0 && config.key_file.empty()) {
    warnings.push_back(fmt::format(
        "{} has no hash_seed, and there is no key_file to derive one from: everybody can tell which keys "
        "crowd the same slots; set hash_seed there, before the nodes and the same on all hosts, to a number "
        "that is not to be guessed, and make the stores anew",
        config.cluster->coordinator));
  }
  if (config.cluster && has_password(*config.cluster) && is_readable_by_all(path)) {
    warnings.push_back(
        fmt::format("{0} has ZooKeeper's password, and everybody here can read it: chmod o-r {0}, and change "
                    "the password",
                    path));
  }
  if (!config.tls.certificate.empty()) {
    const auto tls = net::TlsContext::server(config.tls);
    const auto flaw = tls ? tls->flaw_of_dates() : std::nullopt;
    if (flaw)
      warnings.push_back(fmt::format("{} {}: clients do not trust it", config.tls.certificate, *flaw));
  }
  return warnings;
}

std::vector<std::string> settings_for_a_restart(const Config& running, const Config& now) {
  const std::pair<const char*, bool> all[] = {
      {"listen", running.listen != now.listen},
      {"directory", running.directory != now.directory},
      {"key_file", running.key_file != now.key_file},
      {"other_key_file", running.other_key_file != now.other_key_file},
      {"read_key_file", running.read_key_file != now.read_key_file},
      {"open_to_all", running.open_to_all != now.open_to_all},
      {"silence_s", running.silence_max != now.silence_max},
      {"connections_max", running.connections_max != now.connections_max},
      {"verbs", running.verbs != now.verbs},
      {"huge_pages", running.huge_pages != now.huge_pages},
      {"tls.certificate", running.tls.certificate != now.tls.certificate},
      {"tls.key", running.tls.key != now.tls.key},
      {"tls.authority", running.tls.authority != now.tls.authority},
      {"metrics.listen", running.metrics != now.metrics},
      {"cluster", running.cluster != now.cluster || stores_of_cluster(running) != stores_of_cluster(now)},
  };
  std::vector<std::string> differ;
  for (const auto& [name, differs] : all) {
    if (differs) differ.emplace_back(name);
  }
  return differ;
}

Result<Config> read_config(const std::string& path) {
  Config config = default_config();
  const auto read =
      TomlSettings::read(path, "configuration", [&](TomlSettings& settings) { read_all(settings, config); });
  if (!read) return std::unexpected(read.error());
  return config;
}

}  // namespace loch::server
