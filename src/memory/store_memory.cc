#include "memory/store_memory.h"

#include <array>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <optional>

#include "base/hash.h"
#include "fabric/cluster_map.h"
#include "fabric/endpoint.h"

namespace loch::memory {
namespace {

std::array<std::uint64_t, 2> boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return {base::hash_bytes(text.data(), text.size(), 1), base::hash_bytes(text.data(), text.size(), 2)};
}

coro::Task<Result<void>> read_superblock(fabric::Endpoint* endpoint, fabric::RegionId control,
                                         Superblock* into) {
  const auto bytes = co_await endpoint->fetch({control, 0}, sizeof *into);
  if (!bytes) co_return std::unexpected(bytes.error());
  std::memcpy(into, bytes->data(), sizeof *into);
  co_return Result<void>{};
}

std::uint64_t checksum_of(const Superblock& superblock) {
  return base::hash_bytes(&superblock, offsetof(Superblock, checksum), magic);
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
  fabric::Endpoint endpoint(fabric, fabric->connect());
  std::optional<Geometry> geometry;
  std::optional<Error> unreached;
  for (const RegionMap::Node& node : map.nodes) {
    auto found = look_at_node(endpoint, node.control);
    if (!found && found.error().code == Errc::moved) found.error().code = Errc::unavailable;  // no way there
    if (!found && map.nodes.size() > 1 && found.error().code == Errc::unavailable) {
      unreached = std::move(found.error());
      continue;
    }
    if (!found) return std::unexpected(std::move(found.error()));
    if (geometry && *found != *geometry)
      return fail(Errc::corrupt, "open",
                  fmt::format("{}: its nodes were not made for one store", fabric->location()));
    geometry = *found;
  }
  if (!geometry) return std::unexpected(std::move(*unreached));
  return std::shared_ptr<StoreMemory>(new StoreMemory(std::move(fabric), std::move(map), *geometry));
}

Result<Geometry> StoreMemory::look_at_node(fabric::Endpoint& endpoint, fabric::RegionId control) {
  const std::string location = endpoint.fabric().location();
  const auto length = endpoint.port().length_bytes(control);
  if (!length && length.error().code != Errc::not_found) return std::unexpected(length.error());
  if (length.value_or(0) < control_bytes) {
    return fail(Errc::corrupt, "open",
                fmt::format("{}: its control region is not {} bytes long; it is no store of this version",
                            location, control_bytes));
  }
  Superblock superblock;
  if (auto read = endpoint.run(read_superblock(&endpoint, control, &superblock)); !read)
    return std::unexpected(std::move(read.error()));
  if (superblock.magic != magic)
    return fail(Errc::corrupt, "open", fmt::format("{}: no store is there", location));
  if (superblock.version != format_version) {
    return fail(Errc::incompatible, "open",
                fmt::format("{} has format {}, this program {}; use the version that made it, or remove it",
                            location, superblock.version, format_version));
  }
  if (superblock.checksum != checksum_of(superblock) || superblock.candidates < 2 ||
      superblock.candidates > 4 || superblock.expiry_ns == 0) {
    return fail(Errc::corrupt, "open",
                fmt::format("{}: its superblock is damaged; remove the store", location));
  }
  const auto boot = boot_id();
  const bool of_this_host = endpoint.mapped({control, 0}, control_bytes) != nullptr;
  if (of_this_host && (superblock.boot_id[0] != boot[0] || superblock.boot_id[1] != boot[1])) {
    return fail(
        Errc::incompatible, "open",
        fmt::format("{} was left by an earlier boot of the machine and its times mean nothing now; remove it "
                    "(`loch rm`)",
                    location));
  }
  return Geometry{.candidates = superblock.candidates,
                  .expiry_ns = superblock.expiry_ns,
                  .max_bytes = superblock.max_bytes,
                  .hash_seed = superblock.hash_seed};
}

std::string StoreMemory::name_of_node(std::uint32_t node) const {
  const fabric::ClusterMap* cluster = fabric_->cluster();
  if (cluster == nullptr || node >= cluster->nodes.size()) return fmt::format("node {} of the store", node);
  return fmt::format("host {} ({})", cluster->nodes[node].name, cluster->nodes[node].at.text());
}

}  // namespace loch::memory
