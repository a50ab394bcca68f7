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
using cluster::Versioned;
using NodeState = ClusterMap::NodeState;

constexpr int tries_max = 10;  // while others change the map too
constexpr std::chrono::milliseconds usual_wait = std::chrono::hours(1);

struct Arguments {
  std::string coordinator;
  // add
  std::vector<std::string> hosts;
  std::optional<std::uint32_t> regions;
  std::optional<std::uint32_t> shards;
  // drain, remove
  std::string name;
  bool wait = false;
  std::optional<std::chrono::milliseconds> at_most;
  bool lost = false;
};

// What went wrong before there was a map to work on.
Exit can_not_open(const Context& context, const Error& error) {
  return context.complain(error.code == Errc::invalid_argument ? Exit::usage : Exit::cannot_open,
                          error.detail);
}

// A command that is in order, and can not be done as the cluster is now.
Exit refused(const Context& context, const Error& error) {
  return context.complain(error.code == Errc::not_found ? Exit::not_found : Exit::failed, error.detail);
}

std::expected<std::unique_ptr<Coordinator>, Exit> open(const Context& context, const Arguments& arguments) {
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
  auto coordinator = open(context, arguments);
  if (!coordinator || (*coordinator)->may_change()) return coordinator;
  return std::unexpected(refused(context, (*coordinator)->write_map({}, 0).error()));
}

// Changes the map, on the newest one, and says what it is then. Nothing is written if nothing is to change.
Result<Versioned> change(Coordinator& coordinator,
                         const std::function<Result<ClusterMap>(const ClusterMap&)>& how) {
  for (int tries = 1;; ++tries) {
    auto read = coordinator.read_map();
    if (!read) return read;
    auto changed = how(read->map);
    if (!changed) return std::unexpected(std::move(changed.error()));
    if (*changed == read->map) return read;
    const auto written = coordinator.write_map(*changed, read->version);
    if (written) return Versioned{.map = std::move(*changed), .version = read->version + 1};
    if (written.error().code != Errc::changed || tries == tries_max) return std::unexpected(written.error());
  }
}

std::string how_many(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
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
  if (!cluster::is_wildcard(found->at)) return found->at == node.at ? "present" : "at " + found->at.text();
  return found->at.port == node.at.port ? "present" : "at port " + found->at.port;
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
    if (coordinator.may_change()) json["present"] = is_among(present, node.name);
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
      return std::unexpected(fmt::format("'{}' is no NAME=ADDRESS, such as a=10.0.0.1:7457", escaped(each)));
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
Result<Versioned> add(Coordinator& coordinator, const std::vector<cluster::NewNode>& hosts,
                      const Arguments& arguments) {
  const auto read = coordinator.read_map();
  if (!read && read.error().code == Errc::not_found) {
    auto map = cluster::first_map(hosts, arguments.shards.value_or(fabric::shard_count_max));
    if (!map) return std::unexpected(std::move(map.error()));
    const auto written = coordinator.write_map(*map, 0);
    if (written) return Versioned{.map = std::move(*map), .version = 1};
    if (written.error().code != Errc::changed) return std::unexpected(written.error());
  }
  return change(coordinator, [&](const ClusterMap& map) -> Result<ClusterMap> {
    if (arguments.shards) {
      return fail(Errc::invalid_argument, "cluster",
                  fmt::format("the cluster is there, with {}; --shards is for the first hosts alone",
                              how_many(map.shards.size(), "shard")));
    }
    return with_all(map, hosts);
  });
}

Exit run_add(Context& context, const Arguments& arguments) {
  const auto hosts = hosts_of(arguments);
  if (!hosts) return context.complain(Exit::usage, hosts.error());
  const auto coordinator = open_to_change(context, arguments);
  if (!coordinator) return coordinator.error();
  const auto added = add(**coordinator, *hosts, arguments);
  if (!added) {
    const Errc code = added.error().code;
    const bool is_refusal = code == Errc::exists || code == Errc::no_space || code == Errc::changed;
    return is_refusal ? refused(context, added.error()) : can_not_open(context, added.error());
  }
  if (context.globals.json) context.print_json({{"epoch", added->map.epoch}});
  const auto present = (*coordinator)->present();
  for (const cluster::NewNode& host : *hosts) {
    if (present && !is_among(*present, host.name))
      context.note(fmt::format("node '{}' is expected at {}: start lochd there, with node = \"{}\"",
                               host.name, host.at.text(), host.name));
  }
  return Exit::ok;
}

// ---- drain

// Errors of a change to a node that is named: not_found is about the node, or about the whole cluster.
Exit explain(const Context& context, Coordinator& coordinator, const Error& error) {
  const auto about_the_node = error.code == Errc::not_found && coordinator.read_map().has_value();
  const bool is_refusal =
      about_the_node || error.code == Errc::invalid_argument || error.code == Errc::changed;
  return is_refusal ? refused(context, error) : can_not_open(context, error);
}

Exit wait_until_drained(Context& context, Coordinator& coordinator, const Arguments& arguments,
                        Versioned seen) {
  watch_for_interrupts();
  constexpr std::chrono::milliseconds look_at_signals{500};
  const auto at_most = arguments.at_most.value_or(usual_wait);
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  std::optional<std::size_t> told;
  while (true) {
    const auto node = seen.map.find(arguments.name);
    if (!node) return Exit::ok;  // somebody has removed it since
    const NodeState state = seen.map.nodes[*node].state;
    if (state == NodeState::drained) return Exit::ok;
    if (state == NodeState::serves)
      return context.complain(Exit::failed,
                              fmt::format("node '{}' serves again: somebody has added it", arguments.name));
    const std::size_t left = shards_of(seen.map, *node).here;
    if (told != left) context.note(fmt::format("{}: {} left", arguments.name, how_many(left, "shard")));
    told = left;
    if (interrupted()) end_by_interrupt();
    if (std::chrono::steady_clock::now() >= deadline)
      return context.complain(
          Exit::failed, fmt::format("node '{}' is not drained after {}, and goes on: {} left", arguments.name,
                                    human_duration(at_most), how_many(left, "shard")));
    const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(look_at_signals).count();
    coordinator.wait_for_change(seen.version, static_cast<base::Nanos>(nanos));
    auto read = coordinator.read_map();
    // A coordinator that is away for a while may be back in time.
    if (!read && read.error().code != Errc::unavailable) return can_not_open(context, read.error());
    if (read) seen = std::move(*read);
  }
}

Exit run_drain(Context& context, const Arguments& arguments) {
  const auto coordinator = open_to_change(context, arguments);
  if (!coordinator) return coordinator.error();
  auto changed =
      change(**coordinator, [&](const ClusterMap& map) { return cluster::draining(map, arguments.name); });
  if (!changed) return explain(context, **coordinator, changed.error());
  if (arguments.wait) {
    const Exit exit = wait_until_drained(context, **coordinator, arguments, std::move(*changed));
    if (exit != Exit::ok) return exit;
  }
  if (context.globals.json) context.print_json({{"node", arguments.name}, {"drained", arguments.wait}});
  return Exit::ok;
}

// ---- remove

std::string question_about(const Versioned& read, std::uint32_t number,
                           const Result<std::vector<Present>>& present) {
  const ClusterMap::Node& node = read.map.nodes[number];
  const bool runs = present && is_among(*present, node.name);
  return fmt::format(
      "Give up node '{}' at {}{}: all items there, and the keys of {} of {}, which begin anew, empty?",
      node.name, node.at.text(), runs ? ", whose lochd runs" : "", shards_of(read.map, number).here,
      how_many(read.map.shards.size(), "shard"));
}

Exit run_remove(Context& context, const Arguments& arguments) {
  const auto coordinator = open_to_change(context, arguments);
  if (!coordinator) return coordinator.error();
  if (arguments.lost) {
    const auto read = (*coordinator)->read_map();
    if (!read) return can_not_open(context, read.error());
    const auto node = read->map.find(arguments.name);
    if (node && read->map.nodes[*node].state != NodeState::drained) {
      const Exit answer = context.confirm(question_about(*read, *node, (*coordinator)->present()));
      if (answer != Exit::ok) return answer;
    }
  }
  const auto changed = change(**coordinator, [&](const ClusterMap& map) {
    return cluster::without_node(map, arguments.name, arguments.lost);
  });
  if (!changed) return explain(context, **coordinator, changed.error());
  if (context.globals.json) context.print_json({{"epoch", changed->map.epoch}});
  return Exit::ok;
}

// ---- the command line

using Run = Exit (*)(Context&, const Arguments&);

CLI::App* add_subcommand(CLI::App& cluster, Context& context, const std::shared_ptr<Arguments>& arguments,
                         const std::string& name, const std::string& what, Run run) {
  CLI::App* command = cluster.add_subcommand(name, what);
  command->callback([arguments, run, name, &context] {
    context.run = [arguments, run, name, &context] {
      context.command = "cluster " + name;
      return run(context, *arguments);
    };
  });
  return command;
}

void add_node(CLI::App& command, Arguments& arguments) {
  command.add_option("NAME", arguments.name, "The node")->required()->type_name("");
}

}  // namespace

void add_cluster(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* cluster =
      app.add_subcommand("cluster", "Show which hosts a cluster has, add some, drain and remove one");
  cluster->require_subcommand(1);
  cluster
      ->add_option(
          "--coordinator", arguments->coordinator,
          "Who keeps the list of hosts: zookeeper://[USER:PASSWORD@]HOST:PORT,.../PATH, or file:PATH")
      ->type_name("WHERE")
      ->envname("LOCH_COORDINATOR");
  cluster->footer(
      "A password is better in LOCH_COORDINATOR: others see a command line.\n"
      "Examples:\n"
      "  export LOCH_COORDINATOR=zookeeper://zk1,zk2,zk3/loch\n"
      "  loch cluster add a=10.0.0.1 b=10.0.0.2 c=10.0.0.3\n"
      "  loch cluster status\n"
      "  loch cluster drain b --wait && loch cluster remove b");

  add_subcommand(*cluster, context, arguments, "status", "Show the nodes, and hosts that wait to become one",
                 run_status)
      ->footer(
          "LOCHD says whether a node's lochd is there. SHARDS are parts of the index, COMING and GOING those "
          "on\n"
          "their way; REGIONS are what it may keep items in, of 64 GiB each.\n"
          "Examples:\n"
          "  loch cluster status\n"
          "  loch --json cluster status | jq '.nodes[] | select(.present == false).name'");

  CLI::App* add = add_subcommand(*cluster, context, arguments, "add",
                                 "Add hosts to the cluster, or make it of them if there is none", run_add);
  add->add_option("HOSTS", arguments->hosts,
                  "NAME=ADDRESS, the name in its lochd.toml and where its lochd listens")
      ->required()
      ->type_name("");
  add->add_option("--regions", arguments->regions,
                  "How much each may hold, in regions of 64 GiB (2 unless told)")
      ->type_name("N")
      ->check(CLI::Range(1U, fabric::data_regions_end - fabric::first_data_region));
  add->add_option(
         "--shards", arguments->shards,
         "Into how many parts the index is cut, 1, 2, 4 ... 32 (32 unless told); for the first hosts")
      ->type_name("N");
  add->footer(
      "One that leaves or is drained stays instead.\n"
      "Examples:\n"
      "  loch cluster add a=10.0.0.1:7457 b=10.0.0.2:7457\n"
      "  loch cluster add d=10.0.0.4 --regions 4");

  CLI::App* drain = add_subcommand(*cluster, context, arguments, "drain",
                                   "Have a node give all that it has to the others", run_drain);
  add_node(*drain, *arguments);
  CLI::Option* wait = drain->add_flag("--wait", arguments->wait, "Return when it has nothing any more");
  add_duration(*drain, "--at-most", arguments->at_most, "With --wait: for so long (1h unless told)");
  drain->get_option("--at-most")->needs(wait);
  drain->footer(
      "It goes on without --wait, and after it. `loch cluster add` has it stay.\n"
      "Examples:\n"
      "  loch cluster drain b --wait --at-most 10m");

  CLI::App* remove = add_subcommand(*cluster, context, arguments, "remove",
                                    "Remove a node that is drained, or lost", run_remove);
  add_node(*remove, *arguments);
  remove->add_flag(
      "--lost", arguments->lost,
      "It is not drained, and will not come back: give up what it has; asks first, or needs --yes");
  remove->footer(
      "Examples:\n"
      "  loch cluster remove b\n"
      "  loch cluster remove b --lost");
}

}  // namespace loch::cmd
