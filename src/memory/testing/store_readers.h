// For tests: what the host of a store in a MemoryStore does for sessions that may only read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "fabric/endpoint.h"
#include "fabric/testing/memory_store.h"
#include "memory/readers.h"
#include "memory/region_map.h"

namespace loch::memory::fake {

// `atomics`: whose those of the store's clients are.
inline fabric::Readers readers_of(RegionMap map = RegionMap::of_one_host(),
                                  Atomics atomics = Atomics::processor) {
  const auto with_control = [map = std::move(map)](fabric::Fabric& store, std::uint32_t client, auto what) {
    const std::shared_ptr<fabric::Fabric> here =
        static_cast<fabric::fake::MemoryFabric&>(store).store().attach();
    fabric::Endpoint endpoint(here, here->connect());
    Control control(endpoint, map.nodes.at(fabric::node_of_client(client)).control);
    return what(control, fabric::number_of_client(client));
  };
  return {
      .admit = [=](fabric::Fabric& store, std::uint32_t client) -> Result<std::optional<fabric::OwnWords>> {
        return with_control(store, client, [atomics](Control& control, std::uint32_t number) {
          return admit_reader(control, number, atomics);
        });
      },
      .dismiss =
          [=](fabric::Fabric& store, std::uint32_t client) {
            with_control(store, client,
                         [](Control& control, std::uint32_t number) { dismiss_reader(control, number); });
          }};
}

}  // namespace loch::memory::fake
