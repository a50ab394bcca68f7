// loch cluster: which hosts a cluster has, as its coordinator keeps it. What the hosts do about it is theirs.
#include <algorithm>
#include <chrono>
#include <functional>

#include "cluster/changes.h"
#include "cluster/coordinator.h"
#include "cmd/command.h"
#include "cmd/json.h"
#include "cmd/table.h"
#include "cmd/terminal.h"
#include "cmd/units.h"
#include "fabric/map_message.h"

namespace loch::cmd {
namespace {

using cluster::ClusterMap;
using cluster::Coordinator;
using cluster::Present;
using NodeState = ClusterMap::NodeState;

constexpr std::chrono::milliseconds usual_wait = std::chrono::hours(1);

struct Arguments {
  std::string coordinator;
  // add
  std::vector<std::string> hosts;
  std::optional<std::uint32_t> regions;
  std::optional<std::uint32_t> shards;
  // drain, remove
  std::string node;
  bool wait = false;
  std::optional<std::chrono::milliseconds> at_most;
  bool lost = false;
};

// What went wrong before there was a map to work on.
Exit can_not_open(const Context& context, const Error& error) {
  return context.complain(error.code == Errc::invalid_argument ? Exit::usage : Exit::cannot_open,
                          error.detail, error.code);
}

// A command that is in order, and cannot be done as the cluster is now.
Exit refused(const Context& context, const Error& error) {
  return context.complain(error.code == Errc::not_found ? Exit::not_found : Exit::failed, error.detail,
                          error.code);
}

std::expected<std::unique_ptr<Coordinator>, Exit> open(const Context& context, const Arguments& arguments) {
  if (context.globals.timeout) {
    return std::unexpected(context.complain(
        Exit::usage,
        "--timeout is not for clusters: their coordinator is waited for up to 5 s; drain has --at-most"));
  }
  if (arguments.coordinator.empty()) {
    return std::unexpected(context.complain(
        Exit::usage, "which cluster? Say --coordinator zookeeper://HOST:PORT/PATH, or set LOCH_COORDINATOR"));
  }
  auto coordinator = Coordinator::open(arguments.coordinator);
  if (!coordinator) return std::unexpected(can_not_open(context, coordinator.error()));
  return std::move(*coordinator);
}

// The same, of one whose map may change.
std::expected<std::unique_ptr<Coordinator>, Exit> open_to_change(const Context& context,
                                                                 const Arguments& arguments) {
  if (context.globals.read_only)
    return std::unexpected(context.complain(Exit::failed, "with --read-only no cluster is changed"));
  auto coordinator = open(context, arguments);
  if (!coordinator || (*coordinator)->may_change()) return coordinator;
  return std::unexpected(context.complain(
      Exit::failed,
      fmt::format("the list of hosts in {} is fixed; a cluster that changes is kept by ZooKeeper",
                  arguments.coordinator)));
}

// Changes the map, or says why not.
std::expected<ClusterMap, Exit> change(const Context& context, Coordinator& coordinator,
                                       const std::function<Result<ClusterMap>(const ClusterMap&)>& how) {
  bool map_forbids = false;
  auto changed = cluster::change_map(coordinator, [&](const ClusterMap& map) {
    auto result = how(map);
    map_forbids = !result;
    return result;
  });
  if (changed) return std::move(changed->map);
  const bool is_refusal = map_forbids || changed.error().code == Errc::changed;
  return std::unexpected(is_refusal ? refused(context, changed.error())
                                    : can_not_open(context, changed.error()));
}

bool is_among(const std::vector<Present>& present, std::string_view name) {
  return std::ranges::find(present, name, &Present::name) != present.end();
}

// ---- status

struct Shards {
  std::size_t here = 0;
  std::size_t coming = 0;
  std::size_t going = 0;
};
Shards shards_of(const ClusterMap& map, std::uint32_t node) {
  Shards shards;
  for (const ClusterMap::Shard& shard : map.shards) {
    const bool is_here = shard.home.node == node;
    shards.here += is_here ? 1 : 0;
    shards.going += is_here && shard.next ? 1 : 0;
    shards.coming += shard.next && shard.next->node == node ? 1 : 0;
  }
  return shards;
}

// One that listens at all its addresses does not say at which one others find it.
std::string add_command(const Present& host) {
  const net::HostPort at{.host = cluster::is_wildcard(host.at) ? "ADDRESS" : host.at.host,
                         .port = host.at.port};
  return fmt::format("loch cluster add {}={}", host.name, at.text());
}

// Whether its lochd says that it is there; of a fixed list, nobody does.
std::string presence(const Coordinator& coordinator, const ClusterMap::Node& node,
                     const std::vector<Present>& present) {
  if (!coordinator.may_change()) return "-";
  const auto found = std::ranges::find(present, node.name, &Present::name);
  if (found == present.end()) return "absent";
  if (cluster::may_be_at(found->at, node.at)) return "present";
  return cluster::is_wildcard(found->at) ? "at port " + found->at.port : "at " + found->at.text();
}

void print_status(Context& context, const Coordinator& coordinator, const ClusterMap& map,
                  const std::vector<Present>& present, const std::vector<Present>& waiting) {
  Table table("llllrrrr");
  table.add({"NAME", "ADDRESS", "STATE", "LOCHD", "SHARDS", "COMING", "GOING", "REGIONS"});
  std::size_t gone = 0;
  for (std::uint32_t number = 0; number < map.nodes.size(); ++number) {
    const ClusterMap::Node& node = map.nodes[number];
    if (node.state == NodeState::gone) {
      ++gone;
      continue;
    }
    const Shards shards = shards_of(map, number);
    table.add({node.name, node.at.text(), std::string(fabric::cluster::name_of(node.state)),
               presence(coordinator, node, present), std::to_string(shards.here),
               std::to_string(shards.coming), std::to_string(shards.going),
               std::to_string(node.data.size())});
  }
  context.out.write(table.text());
  context.out.write(fmt::format("epoch {}, {}{}{}\n", map.epoch, how_many(map.shards.size(), "shard"),
                                gone > 0 ? fmt::format(", {} gone", how_many(gone, "node")) : "",
                                coordinator.may_change() ? "" : ", a fixed list"));
  for (const Present& host : waiting) context.out.write(fmt::format("waits: {}\n", add_command(host)));
}

void print_status_json(Context& context, const Coordinator& coordinator, const ClusterMap& map,
                       const std::vector<Present>& present, const std::vector<Present>& waiting) {
  Json nodes = Json::array();
  for (std::uint32_t number = 0; number < map.nodes.size(); ++number) {
    const ClusterMap::Node& node = map.nodes[number];
    if (node.state == NodeState::gone) continue;
    const Shards shards = shards_of(map, number);
    Json json{{"name", node.name},
              {"number", number},
              {"address", node.at.text()},
              {"state", fabric::cluster::name_of(node.state)},
              {"present", nullptr},
              {"shards", shards.here},
              {"shards_coming", shards.coming},
              {"shards_going", shards.going},
              {"regions", node.data.size()}};
    if (coordinator.may_change()) {
      const auto found = std::ranges::find(present, node.name, &Present::name);
      json["present"] = found != present.end();
      if (found != present.end()) json["present_at"] = found->at.text();
    }
    nodes.push_back(std::move(json));
  }
  Json waits = Json::array();
  for (const Present& host : waiting) waits.push_back({{"name", host.name}, {"address", host.at.text()}});
  context.print_json({{"epoch", map.epoch},
                      {"shards", map.shards.size()},
                      {"may_change", coordinator.may_change()},
                      {"nodes", nodes},
                      {"waiting", waits}});
}

Exit run_status(Context& context, const Arguments& arguments) {
  const auto coordinator = open(context, arguments);
  if (!coordinator) return coordinator.error();
  const auto read = (*coordinator)->read_map();
  if (!read && read.error().code != Errc::not_found) return can_not_open(context, read.error());
  const auto present = (*coordinator)->present();
  if (!present) return can_not_open(context, present.error());
  if (!read) {
    const Exit exit = can_not_open(context, read.error());
    for (const Present& host : *present) context.note(fmt::format("waits: {}", add_command(host)));
    return exit;
  }
  std::vector<Present> waiting;
  std::ranges::copy_if(*present, std::back_inserter(waiting),
                       [&](const Present& host) { return !read->map.find(host.name); });
  const auto print = context.globals.json ? print_status_json : print_status;
  print(context, **coordinator, read->map, *present, waiting);
  return Exit::ok;
}

// ---- add

Parsed<std::vector<cluster::NewNode>> hosts_of(const Arguments& arguments) {
  std::vector<cluster::NewNode> hosts;
  for (const std::string& each : arguments.hosts) {
    const std::size_t equals = each.find('=');
    if (equals == std::string::npos)
      return std::unexpected(fmt::format("'{}' is no NODE=ADDRESS, such as a=10.0.0.1:7457", escaped(each)));
    auto at = net::parse_host_port(std::string_view(each).substr(equals + 1), fabric::default_port);
    if (!at) return std::unexpected(at.error().detail);
    hosts.push_back({.name = each.substr(0, equals),
                     .at = std::move(*at),
                     .regions = arguments.regions.value_or(cluster::usual_regions)});
  }
  return hosts;
}

Result<ClusterMap> with_all(ClusterMap map, const std::vector<cluster::NewNode>& hosts) {
  for (const cluster::NewNode& host : hosts) {
    auto with = cluster::with_node(map, host.name, host.at, host.regions);
    if (!with) return with;
    map = std::move(*with);
  }
  return map;
}

// Makes the cluster, or adds to one that another process has made meanwhile.
Result<ClusterMap> add(Coordinator& coordinator, const std::vector<cluster::NewNode>& hosts,
                       const Arguments& arguments) {
  const auto read = coordinator.read_map();
  if (!read && read.error().code == Errc::not_found) {
    auto map = cluster::first_map(hosts, arguments.shards.value_or(fabric::shard_count_max));
    if (!map) return std::unexpected(std::move(map.error()));
    const auto written = coordinator.write_map(*map, 0);
    if (written) return map;
    if (written.error().code != Errc::changed) return std::unexpected(written.error());
  }
  auto changed = cluster::change_map(coordinator, [&](const ClusterMap& map) -> Result<ClusterMap> {
    if (arguments.shards) {
      return fail(Errc::invalid_argument, "cluster",
                  fmt::format("the cluster is there, with {}; --shards is for the first hosts alone",
                              how_many(map.shards.size(), "shard")));
    }
    return with_all(map, hosts);
  });
  if (!changed) return std::unexpected(std::move(changed.error()));
  return std::move(changed->map);
}

// Where a host listens that is there by its name, if others hardly find it where it is to be added.
std::optional<net::HostPort> seen_elsewhere(const cluster::NewNode& host,
                                            const std::vector<Present>& present) {
  const auto found = std::ranges::find(present, host.name, &Present::name);
  if (found == present.end() || cluster::may_be_at(found->at, host.at)) return std::nullopt;
  return found->at;
}

Exit run_add(Context& context, const Arguments& arguments) {
  const auto hosts = hosts_of(arguments);
  if (!hosts) return context.complain(Exit::usage, hosts.error());
  const auto coordinator = open_to_change(context, arguments);
  if (!coordinator) return coordinator.error();
  const auto present = (*coordinator)->present();
  for (const cluster::NewNode& host : *hosts) {
    const auto elsewhere = present ? seen_elsewhere(host, *present) : std::nullopt;
    if (!elsewhere || context.globals.yes) continue;
    return context.complain(
        Exit::usage,
        fmt::format("the lochd of '{}' listens at {}, not at {}; if others find it there nonetheless, say "
                    "--yes",
                    host.name, elsewhere->text(), host.at.text()));
  }
  const auto added = add(**coordinator, *hosts, arguments);
  if (!added) {
    const Errc code = added.error().code;
    const bool is_refusal = code == Errc::exists || code == Errc::no_space || code == Errc::changed;
    return is_refusal ? refused(context, added.error()) : can_not_open(context, added.error());
  }
  if (context.globals.json) {
    Json names = Json::array();
    for (const cluster::NewNode& host : *hosts) names.push_back(host.name);
    context.print_json({{"epoch", added->epoch}, {"nodes", names}});
  }
  for (const cluster::NewNode& host : *hosts) {
    const auto node = added->find(host.name);
    if (arguments.regions && node && added->nodes[*node].data.size() != *arguments.regions)
      context.note(fmt::format("node '{}' has {}, those that its place in the cluster had before", host.name,
                               how_many(added->nodes[*node].data.size(), "region")));
    if (present && !is_among(*present, host.name))
      context.note(fmt::format("node '{}' is expected at {}: start lochd there, with node = \"{}\"",
                               host.name, host.at.text(), host.name));
  }
  return Exit::ok;
}

// ---- drain

// The items follow when all shards have gone.
std::string what_is_left(const Shards& shards) {
  if (shards.here > 0) return how_many(shards.here, "shard") + " left";
  if (shards.coming > 0) return how_many(shards.coming, "shard") + " on the way there";
  return "no shards left, items move";
}

// A node drains itself.
std::string what_it_waits_for(Coordinator& coordinator, const std::string& node) {
  const auto present = coordinator.present();
  if (!present || is_among(*present, node)) return "its lochd's log says what it waits for";
  return fmt::format("its lochd is not there; if it is not to come back: loch cluster remove {} --lost",
                     node);
}

// The epoch in which it was seen to be, or the exit code after saying why it is not.
std::expected<std::uint64_t, Exit> wait_until_drained(Context& context, Coordinator& coordinator,
                                                      const Arguments& arguments) {
  watch_for_interrupts();
  constexpr std::chrono::milliseconds look_at_signals{500};
  const auto at_most = arguments.at_most.value_or(usual_wait);
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  std::optional<Shards> left;
  std::uint64_t version = 0;
  while (true) {
    const auto read = coordinator.read_map();
    // A coordinator that is away for a while may be back in time.
    if (!read && read.error().code != Errc::unavailable)
      return std::unexpected(can_not_open(context, read.error()));
    if (read) {
      const auto node = read->map.find(arguments.node);
      if (!node) return read->map.epoch;  // somebody has removed it since
      const NodeState state = read->map.nodes[*node].state;
      if (state == NodeState::drained) return read->map.epoch;
      if (state == NodeState::serves)
        return std::unexpected(context.complain(
            Exit::failed, fmt::format("node '{}' serves again: somebody has added it", arguments.node)));
      const Shards now = shards_of(read->map, *node);
      const bool says_more = !left || what_is_left(now) != what_is_left(*left);
      if (says_more) context.note(fmt::format("{}: {}", arguments.node, what_is_left(now)));
      left = now;
      version = read->version;
    }
    if (interrupted()) return std::unexpected(Exit::failed);
    if (std::chrono::steady_clock::now() >= deadline)
      return std::unexpected(context.complain(
          Exit::failed, fmt::format("node '{}' is not drained after {}, and goes on{}; {}", arguments.node,
                                    human_duration(at_most), left ? ": " + what_is_left(*left) : "",
                                    what_it_waits_for(coordinator, arguments.node))));
    const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(look_at_signals).count();
    coordinator.wait_for_change(version, static_cast<base::Nanos>(nanos));
  }
}

bool is_drained(const ClusterMap& map, std::string_view name) {
  const auto node = map.find(name);
  return node && map.nodes[*node].state == NodeState::drained;
}

Exit run_drain(Context& context, const Arguments& arguments) {
  const auto coordinator = open_to_change(context, arguments);
  if (!coordinator) return coordinator.error();
  const auto changed = change(context, **coordinator,
                              [&](const ClusterMap& map) { return cluster::draining(map, arguments.node); });
  if (!changed) return changed.error();
  std::uint64_t epoch = changed->epoch;
  bool drained = is_drained(*changed, arguments.node);
  if (arguments.wait && !drained) {
    const auto drained_in = wait_until_drained(context, **coordinator, arguments);
    if (!drained_in) return drained_in.error();
    epoch = *drained_in;
    drained = true;
  }
  if (context.globals.json)
    context.print_json({{"epoch", epoch}, {"node", arguments.node}, {"drained", drained}});
  return Exit::ok;
}

// ---- remove

std::string question_about(const ClusterMap& map, std::uint32_t number,
                           const Result<std::vector<Present>>& present) {
  const ClusterMap::Node& node = map.nodes[number];
  const bool runs = present && is_among(*present, node.name);
  return fmt::format(
      "Abandon node '{}' at {}{}: all items there, and the keys of {} of {}, which begin anew, empty?",
      node.name, node.at.text(), runs ? ", whose lochd runs" : "", shards_of(map, number).here,
      how_many(map.shards.size(), "shard"));
}

Exit run_remove(Context& context, const Arguments& arguments) {
  const auto coordinator = open_to_change(context, arguments);
  if (!coordinator) return coordinator.error();
  bool abandons = false;  // what somebody has said yes to
  if (arguments.lost) {
    const auto read = (*coordinator)->read_map();
    if (!read) return can_not_open(context, read.error());
    const auto node = read->map.find(arguments.node);
    if (node && !cluster::without_node(read->map, arguments.node, false)) {
      const Exit answer =
          context.confirm([&] { return question_about(read->map, *node, (*coordinator)->present()); });
      if (answer != Exit::ok) return answer;
      abandons = true;
    }
  }
  const auto changed = change(context, **coordinator, [&](const ClusterMap& map) {
    return cluster::without_node(map, arguments.node, abandons);
  });
  if (!changed) return changed.error();
  if (context.globals.json) context.print_json({{"epoch", changed->epoch}, {"node", arguments.node}});
  return Exit::ok;
}

// ---- the command line

void add_node(CLI::App& command, Arguments& arguments) {
  add_argument(command, "NODE", arguments.node, "The node's name");
}

void add_cluster_footer(CLI::App& command, std::string_view text) {
  add_footer(
      command,
      fmt::format("{}\nWhich cluster, say --coordinator WHERE or LOCH_COORDINATOR: loch cluster --help",
                  text));
}

}  // namespace

void add_cluster(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& group =
      add_group(app, "cluster", "Show which hosts a cluster has, add some, drain and remove one");
  add_text(group, "--coordinator", arguments->coordinator,
           "Who keeps the list of hosts: zookeeper://[USER:PASSWORD@]HOST:PORT,.../PATH, or file:PATH",
           "WHERE", "LOCH_COORDINATOR");
  add_footer(group,
             "A password is better in LOCH_COORDINATOR: others see a command line.\n"
             "Examples:\n"
             "  export LOCH_COORDINATOR=zookeeper://zk1,zk2,zk3/loch\n"
             "  loch cluster add a=10.0.0.1 b=10.0.0.2 c=10.0.0.3\n"
             "  loch cluster status\n"
             "  loch cluster drain b --wait && loch cluster remove b");

  CLI::App& status = add_command(group, context, "status",
                                 "Show the nodes, and hosts that wait to become one", arguments, run_status);
  add_cluster_footer(
      status,
      "LOCHD says whether a node's lochd is there, and where it listens if that is not the node's ADDRESS:\n"
      "loch cluster add NODE=ADDRESS corrects that as long as it has no shards. SHARDS are parts of the\n"
      "index, COMING and GOING those on their way; where they do not move, the lochds' logs say why.\n"
      "REGIONS are what it may keep items in, of 64 GiB each.\n"
      "Examples:\n"
      "  loch cluster status\n"
      "  loch --json cluster status | jq '.nodes[] | select(.present == false).name'");

  CLI::App& add =
      add_command(group, context, "add", "Add hosts, or create the cluster from them", arguments, run_add);
  add_arguments(add, "HOSTS", arguments->hosts,
                "NODE=ADDRESS, the name in its lochd.toml and where its lochd listens");
  add_number(add, "--regions", arguments->regions,
             "How much each may hold, in regions of 64 GiB (default: 2)", 1U,
             fabric::data_regions_end - fabric::first_data_region);
  add_number(add, "--shards", arguments->shards,
             "Number of index shards: 1, 2, 4 ... 32 (default 32); only when the cluster is created");
  add_cluster_footer(
      add,
      "Adding a node that is being drained cancels the drain; adding one again that has no shards yet\n"
      "corrects its address. Where its lochd runs, ADDRESS is to be the first of its `listen`, unless --yes\n"
      "says that others find it elsewhere. One that takes the place of a node that has gone has the\n"
      "regions of that one, whatever --regions says.\n"
      "Examples:\n"
      "  loch cluster add a=10.0.0.1:7457 b=10.0.0.2:7457\n"
      "  loch cluster add d=10.0.0.4 --regions 4");

  CLI::App& drain = add_command(group, context, "drain", "Move everything off a node", arguments, run_drain);
  add_node(drain, *arguments);
  add_flag(drain, "--wait", arguments->wait, "Return once it is empty");
  add_duration(drain, "--at-most", arguments->at_most, "With --wait: give up after TIME (default 1h)");
  let_need(drain, "--at-most", "--wait");
  add_cluster_footer(
      drain,
      "The drain continues without --wait and after a timeout; `loch cluster add` cancels it.\n"
      "Examples:\n"
      "  loch cluster drain b --wait --at-most 10m");

  CLI::App& remove =
      add_command(group, context, "remove", "Remove a node that is drained, or lost", arguments, run_remove);
  add_node(remove, *arguments);
  add_flag(remove, "--lost", arguments->lost,
           "The node is not drained and will not return: abandon its data; asks first, or needs --yes");
  add_cluster_footer(remove,
                     "Examples:\n"
                     "  loch cluster remove b\n"
                     "  loch cluster remove b --lost");
}

}  // namespace loch::cmd
