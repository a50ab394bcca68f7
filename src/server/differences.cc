#include "server/differences.h"

#include <filesystem>
#include <fmt/format.h>
#include <system_error>

#include "memory/store_memory.h"

namespace loch::server {

void warn_of_differences(const Config::Store& wanted, const fabric::Access& here,
                         const memory::RegionMap& map,
                         const std::function<void(fabric::Host::Level, const std::string&)>& log,
                         std::optional<std::uint64_t> hash_seed) {
  if (!log) return;
  const auto warn_of_trouble = [&](const Error& why) {
    log(fabric::Host::Level::warning,
        fmt::format("store '{}' is there, but can not be lent: {}", wanted.name, why.message()));
  };
  const auto fabric = fabric::attach("shm://" + wanted.name, here);
  if (!fabric) return warn_of_trouble(fabric.error());
  const auto memory = memory::StoreMemory::attach(*fabric, map);
  if (!memory) return warn_of_trouble(memory.error());
  const memory::Geometry& has = (*memory)->geometry();
  const auto warn = [&](const char* what, const auto& is, const auto& said) {
    log(fabric::Host::Level::warning,
        fmt::format("store '{}' was made with {} {}, and stays so; the configuration says {}", wanted.name,
                    what, is, said));
  };
  const std::uint64_t expiry_ms = has.expiry_ns / base::millisecond_ns;
  if (wanted.candidates && *wanted.candidates != has.candidates)
    warn("candidates", has.candidates, *wanted.candidates);
  if (wanted.max_bytes && *wanted.max_bytes != has.max_bytes)
    warn("max_bytes", has.max_bytes, *wanted.max_bytes);
  if (wanted.expiry && static_cast<std::uint64_t>(wanted.expiry->count()) != expiry_ms)
    warn("expiry_ms", expiry_ms, wanted.expiry->count());
  if (hash_seed && *hash_seed != has.hash_seed)
    log(fabric::Host::Level::warning,
        fmt::format("store '{}' was made by another hash_seed or key_file of the cluster, and stays so: a "
                    "host that loses its memory will not fit the others; give all hosts the former one, or "
                    "dump the store, remove it on all of them, and start anew",
                    wanted.name));
  const auto name_of = [](Atomics atomics) { return atomics == Atomics::device ? "device" : "processor"; };
  std::error_code gone;
  const auto folder = std::filesystem::status((*fabric)->location(), gone).permissions();
  const auto mode = static_cast<std::uint32_t>(folder) & 0666U;
  if (wanted.mode && !gone && *wanted.mode != mode)
    warn("mode", fmt::format("{:o}", mode), fmt::format("{:o}", *wanted.mode));
  if (wanted.atomics != (*fabric)->atomics())
    warn("atomics", name_of((*fabric)->atomics()), name_of(wanted.atomics));
}

}  // namespace loch::server
