#include "memory/store_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "fabric/cluster_map.h"
#include "fabric/endpoint.h"

namespace loch::memory {
namespace {

using fabric::Endpoint;

std::array<std::uint64_t, 2> boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return {base::hash_bytes(text.data(), text.size(), 1), base::hash_bytes(text.data(), text.size(), 2)};
}

std::string name_of(const fabric::Fabric& fabric, std::uint32_t node) {
  const fabric::ClusterMap* cluster = fabric.cluster();
  if (cluster == nullptr || node >= cluster->nodes.size()) return fmt::format("node {} of the store", node);
  return fmt::format("host {} ({})", cluster->nodes[node].name, cluster->nodes[node].at.text());
}

coro::Task<Result<void>> read_superblock(Endpoint* endpoint, fabric::RegionId control, Superblock* into) {
  const auto bytes = co_await endpoint->fetch({control, 0}, sizeof *into);
  if (!bytes) co_return std::unexpected(bytes.error());
  std::memcpy(into, bytes->data(), sizeof *into);
  co_return Result<void>{};
}

std::uint64_t checksum_of(const Superblock& superblock) {
  return base::hash_bytes(&superblock, offsetof(Superblock, checksum), magic);
}

Geometry geometry_of(const Superblock& superblock) {
  return {.candidates = superblock.candidates,
          .expiry_ns = superblock.expiry_ns,
          .max_bytes = superblock.max_bytes,
          .hash_seed = superblock.hash_seed};
}

bool are_of_one_store(const Geometry& a, const Geometry& b) {
  return a.candidates == b.candidates && a.expiry_ns == b.expiry_ns && a.hash_seed == b.hash_seed;
}

bool is_sound(const Superblock& superblock) {
  return superblock.checksum == checksum_of(superblock) && superblock.candidates >= 2 &&
         superblock.candidates <= 4 && superblock.expiry_ns != 0;
}

bool is_of_this_boot(const Superblock& superblock) {
  const auto boot = boot_id();
  return superblock.boot_id[0] == boot[0] && superblock.boot_id[1] == boot[1];
}

// How one part is to be made anew, and not the whole store.
std::string remedy(const fabric::Fabric& fabric) {
  if (fabric.cluster() == nullptr) return "remove it (`loch rm`)";
  const std::string location = fabric.location();
  return fmt::format("end lochd there, remove the part (`loch rm {}`), and start lochd again",
                     location.substr(location.rfind('/') + 1));
}

// Whether it is a sound one. Errors do not say whose it is.
Result<void> check(const fabric::Fabric& fabric, const Superblock& superblock, bool of_this_host) {
  const auto wrong = [](Errc code, std::string what) { return fail(code, "open", std::move(what)); };
  if (superblock.magic != magic) return wrong(Errc::corrupt, "no store is there");
  if (superblock.version != format_version) {
    return wrong(Errc::incompatible,
                 fmt::format("it has format {}, this program {}; use the version that made it, or {}",
                             superblock.version, format_version, remedy(fabric)));
  }
  if (!is_sound(superblock))
    return wrong(Errc::corrupt, fmt::format("its superblock is damaged; {}", remedy(fabric)));
  if (of_this_host && !is_of_this_boot(superblock)) {
    return wrong(
        Errc::incompatible,
        fmt::format("it was left by an earlier boot of the machine and its times mean nothing now; {}",
                    remedy(fabric)));
  }
  return {};
}

// `where` is for errors.
Result<Geometry> look_at_node(Endpoint& endpoint, fabric::RegionId control, const std::string& where) {
  const auto length = endpoint.port().length_bytes(control);
  if (!length && length.error().code != Errc::not_found) return std::unexpected(length.error());
  if (length.value_or(0) < control_bytes) {
    return fail(Errc::corrupt, "open",
                fmt::format("{}: its control region is not {} bytes long; it is no store of this version",
                            where, control_bytes));
  }
  Superblock superblock;
  if (auto read = endpoint.run(read_superblock(&endpoint, control, &superblock)); !read)
    return std::unexpected(std::move(read.error()));
  const bool of_this_host = endpoint.mapped({control, 0}, control_bytes) != nullptr;
  if (auto sound = check(endpoint.fabric(), superblock, of_this_host); !sound)
    return fail(sound.error().code, "open", fmt::format("{}: {}", where, sound.error().detail));
  return geometry_of(superblock);
}

// That of most nodes: one host whose part was made by another configuration is the odd one out.
Geometry geometry_of_most(const std::vector<Geometry>& all) {
  Geometry most = all.front();
  std::ptrdiff_t most_count = 0;
  for (const Geometry& each : all) {
    const auto count =
        std::ranges::count_if(all, [&](const Geometry& other) { return are_of_one_store(each, other); });
    if (count <= most_count) continue;
    most = each;
    most_count = count;
  }
  for (const Geometry& each : all) {
    if (!are_of_one_store(most, each)) continue;
    const bool is_limited = most.max_bytes != 0 && each.max_bytes != 0;
    most.max_bytes = is_limited ? std::max(most.max_bytes, each.max_bytes) : 0;
  }
  return most;
}

}  // namespace

void StoreMemory::initialize_control(std::byte* control, const Geometry& geometry) {
  const auto boot = boot_id();
  Superblock superblock{.magic = magic,
                        .version = format_version,
                        .candidates = geometry.candidates,
                        .expiry_ns = geometry.expiry_ns,
                        .max_bytes = geometry.max_bytes,
                        .hash_seed = geometry.hash_seed,
                        .boot_id = {boot[0], boot[1]},
                        .checksum = 0};
  superblock.checksum = checksum_of(superblock);
  std::memcpy(control, &superblock, sizeof superblock);
}

void StoreMemory::initialize_node(std::byte* control, const Geometry& geometry, std::uint32_t node,
                                  std::uint64_t incarnation) {
  initialize_control(control, geometry);
  std::memcpy(control + incarnation_at(node, node).offset_bytes, &incarnation, sizeof incarnation);
}

Result<std::shared_ptr<StoreMemory>> StoreMemory::attach(std::shared_ptr<fabric::Fabric> fabric,
                                                         RegionMap map) {
  Endpoint endpoint(fabric, fabric->connect());
  const bool is_one = map.nodes.size() == 1;
  std::vector<Geometry> found;
  std::optional<Error> why;  // what is wrong with the first that is reached, or else with the first
  for (std::uint32_t node = 0; node < map.nodes.size(); ++node) {
    // A host by itself may be one that has left.
    if (map.nodes[node].is_gone && !is_one) continue;
    auto looked =
        look_at_node(endpoint, map.nodes[node].control, is_one ? fabric->location() : name_of(*fabric, node));
    if (looked) {
      found.push_back(*looked);
      continue;
    }
    Error& error = looked.error();
    if (error.code == Errc::moved) error.code = Errc::unavailable;  // no way there
    if (why && (why->code != Errc::unavailable || error.code == Errc::unavailable)) continue;
    why = std::move(error);
  }
  if (found.empty() && !why)
    return fail(Errc::unavailable, "open",
                fmt::format("{}: all hosts that are known of have left the cluster; name one that is in it",
                            fabric->location()));
  if (found.empty()) return std::unexpected(std::move(*why));
  const Geometry geometry = geometry_of_most(found);
  return std::shared_ptr<StoreMemory>(new StoreMemory(std::move(fabric), std::move(map), geometry));
}

Result<void> StoreMemory::check_part(const Superblock& superblock) const {
  if (auto sound = check(*fabric_, superblock, false); !sound) return sound;
  const Geometry has = geometry_of(superblock);
  if (are_of_one_store(has, geometry_)) return {};
  const auto differs = [&](const std::string& what) {
    return fail(
        Errc::incompatible, "open",
        fmt::format("its part of the store was made with {}; give all hosts one configuration; then {}", what,
                    remedy(*fabric_)));
  };
  if (has.candidates != geometry_.candidates)
    return differs(fmt::format("candidates {}, and others with {}", has.candidates, geometry_.candidates));
  if (has.expiry_ns != geometry_.expiry_ns) {
    return differs(fmt::format("expiry_ms {}, and others with {}", has.expiry_ns / base::millisecond_ns,
                               geometry_.expiry_ns / base::millisecond_ns));
  }
  return differs("another hash seed than others: by another key_file, or hash_seed");
}

bool StoreMemory::is_of_earlier_boot(const std::shared_ptr<fabric::Fabric>& fabric,
                                     fabric::RegionId control) {
  Endpoint endpoint(fabric, fabric->connect());
  const std::byte* begin = endpoint.mapped({control, 0}, control_bytes);
  if (begin == nullptr) return false;
  Superblock superblock;
  std::memcpy(&superblock, begin, sizeof superblock);
  return superblock.magic == magic && superblock.version == format_version && is_sound(superblock) &&
         !is_of_this_boot(superblock);
}

std::string StoreMemory::name_of_node(std::uint32_t node) const { return name_of(*fabric_, node); }

}  // namespace loch::memory
