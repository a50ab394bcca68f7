#include "client/opening.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

#include "fabric/cluster_map.h"
#include "hash/table.h"
#include "net/socket.h"

namespace loch::client {
namespace {

// The node that is this host's, by the address that this client goes from if it says one.
std::optional<std::uint32_t> node_here(const Options& options, const fabric::ClusterMap& cluster,
                                       base::Nanos deadline) {
  std::vector<std::uint32_t> numbers;
  std::vector<net::HostPort> hosts;
  for (std::uint32_t node = 0; node < cluster.nodes.size(); ++node) {
    const fabric::ClusterMap::Node& each = cluster.nodes[node];
    if (each.state == fabric::ClusterMap::NodeState::gone) continue;
    numbers.push_back(node);
    hosts.push_back(each.at);
  }
  std::optional<std::size_t> here;
  if (options.source_address.empty()) {
    here = net::first_of_this_host(hosts, deadline);
  } else if (const auto at = std::ranges::find(hosts, options.source_address, &net::HostPort::host);
             at != hosts.end()) {
    here = static_cast<std::size_t>(at - hosts.begin());
  }
  if (!here) return std::nullopt;
  return numbers[*here];
}

Result<std::shared_ptr<fabric::Fabric>> attach_or_create(std::string_view url, const Options& options) {
  if (options.mode == Options::Mode::create) return create_store(url, options);
  if (options.read_only) return fabric::attach(url, access_of(options));
  fabric::Access access = access_of(options);
  access.would_create = options.mode == Options::Mode::attach_or_create;
  // Whoever would make one that is open to all does not mind whose it is.
  access.not_of_others = access.would_create && options.file_mode != 0666U;
  const auto parsed = fabric::parse_url(url);
  if (!parsed) return std::unexpected(parsed.error());
  const bool may_create = access.would_create && parsed->hosts.empty();
  constexpr int rounds_max = 16;  // others may create and remove the store meanwhile
  for (int round = 0;; ++round) {
    auto attached = fabric::attach(url, access);
    if (attached || attached.error().code != Errc::not_found || !may_create) return attached;
    auto created = create_store(url, options);
    if (created || created.error().code != Errc::exists || round == rounds_max) return created;
  }
}

}  // namespace

Result<memory::Placement> placement_of(const Options& options, const fabric::ClusterMap* cluster,
                                       base::Nanos deadline) {
  using Policy = memory::Placement::Policy;
  if (cluster == nullptr) return memory::Placement{};
  switch (options.placement) {
    case Placement::spread:
      return memory::Placement{.policy = Policy::spread};
    case Placement::by_key:
      return memory::Placement{.policy = Policy::by_key};
    case Placement::local:
      if (const auto here = node_here(options, *cluster, deadline))
        return memory::Placement{.policy = Policy::local, .node = *here};
      return memory::Placement{.policy = Policy::by_key};
    case Placement::node:
      break;
  }
  if (const auto named = cluster->find(options.placement_node))
    return memory::Placement{.policy = Policy::node, .node = *named};
  std::string names;
  for (const fabric::ClusterMap::Node& node : cluster->nodes) {
    if (node.state == fabric::ClusterMap::NodeState::gone) continue;
    names += (names.empty() ? "" : ", ") + node.name;
  }
  return fail(Errc::invalid_argument, "open",
              fmt::format("the cluster has no node '{}'; there are: {}", options.placement_node, names));
}

fabric::Access access_of(const Options& options) {
  return {.directory = options.directory,
          .file_mode = options.file_mode,
          .group = options.group,
          .huge_pages = options.huge_pages,
          .read_only = options.read_only,
          .source = options.source_address,
          .key_file = options.key_file,
          .tls = {.certificate = options.tls_certificate,
                  .key = options.tls_key,
                  .authority = options.tls_authority}};
}

Result<void> check_options(const Options& options, const char* operation) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  const auto wrong = [&](std::string what) {
    return fail(Errc::invalid_argument, operation, std::move(what));
  };
  if (options.directory.empty()) return wrong("directory is empty; /dev/shm is the usual one");
  if (options.candidates && (*options.candidates < 2 || *options.candidates > hash::candidates_max)) {
    return wrong(fmt::format("candidates is 2 to {}, not {}", hash::candidates_max, *options.candidates));
  }
  if (options.expiry && (*options.expiry < milliseconds(50) || *options.expiry > seconds(60))) {
    return wrong(fmt::format("expiry is 50 ms to 60 s, not {} ms", options.expiry->count()));
  }
  if (options.timeout < milliseconds(1) || options.timeout > hours(1)) {
    return wrong(fmt::format("timeout is 1 ms to 1 h, not {} ms", options.timeout.count()));
  }
  constexpr std::uint64_t max_bytes_min = 4 * memory::block_bytes;
  if (options.max_bytes && *options.max_bytes != 0 && *options.max_bytes < max_bytes_min) {
    return wrong(fmt::format("max_bytes is at least {}, not {}", max_bytes_min, *options.max_bytes));
  }
  if (options.placement == Placement::node && options.placement_node.empty())
    return wrong("placement_node is empty; with Placement::node it is the name of a node of the cluster");
  if (options.read_only && options.mode == Options::Mode::create)
    return wrong("a client that only reads creates no store");
  if (options.file_mode != 0600U && options.file_mode != 0660U && options.file_mode != 0666U) {
    return wrong(
        fmt::format("file_mode {:o} is no mode of a store's files; use 600, 660 or 666", options.file_mode));
  }
  return {};
}

Result<void> check_may_change(const Options& options, const char* operation) {
  if (!options.read_only) return {};
  return fail(Errc::permission, operation, "a client that only reads creates and removes no store");
}

Result<void> check_geometry(const Options& options, const memory::Geometry& geometry,
                            const std::string& location) {
  const auto differs = [&](const char* what, std::uint64_t has, std::uint64_t asked) {
    return fail(
        Errc::incompatible, "open",
        fmt::format("{} was created with {} {}, not {}; open it without that option, or remove it first",
                    location, what, has, asked));
  };
  if (options.candidates && *options.candidates != geometry.candidates) {
    return differs("candidates", geometry.candidates, *options.candidates);
  }
  if (options.expiry && nanos(*options.expiry) != geometry.expiry_ns) {
    return differs("an expiry in ms of", geometry.expiry_ns / base::millisecond_ns,
                   static_cast<std::uint64_t>(options.expiry->count()));
  }
  if (options.max_bytes && *options.max_bytes != geometry.max_bytes) {
    return differs("max_bytes", geometry.max_bytes, *options.max_bytes);
  }
  return {};
}

Result<std::shared_ptr<fabric::Fabric>> create_store(std::string_view url, const Options& options) {
  const memory::Geometry geometry{
      .candidates = options.candidates.value_or(3),
      .expiry_ns = nanos(options.expiry.value_or(std::chrono::milliseconds(1000))),
      .max_bytes = options.max_bytes.value_or(0),
      .hash_seed = base::system_seed()};
  const fabric::Plan plan{.regions = {{memory::control_region, memory::control_bytes},
                                      {memory::index_region, hash::Table::initial_index_bytes},
                                      {memory::first_data_region, 2 * memory::block_bytes}},
                          .fill =
                              [&](std::span<const fabric::Mapping> regions) {
                                memory::StoreMemory::initialize_control(regions[0].base, geometry);
                                hash::Table::initialize(regions[0].base + memory::index_root_offset,
                                                        regions[1]);
                              },
                          .atomics = options.atomics};
  return fabric::create(url, access_of(options), plan);
}

Result<Opened> open_memory(std::string_view url, const Options& options) {
  constexpr base::Nanos answer_max_ns = 5 * base::second_ns;  // as loch.h says of Store::open
  const base::Nanos deadline = base::Clock().now() + answer_max_ns;
  auto fabric = attach_or_create(url, options);
  if (!fabric) return std::unexpected(std::move(fabric.error()));
  const fabric::ClusterMap* cluster = (*fabric)->cluster();
  auto placement = placement_of(options, cluster, deadline);
  auto memory = memory::StoreMemory::attach(std::move(*fabric), cluster != nullptr
                                                                    ? memory::RegionMap::of_cluster(*cluster)
                                                                    : memory::RegionMap::of_one_host());
  if (!memory) return std::unexpected(std::move(memory.error()));
  return Opened{.memory = std::move(*memory), .placement = std::move(placement)};
}

}  // namespace loch::client
