// FileCoordinator: a cluster of a fixed list of hosts, in a TOML file that is the same on all of them:
//
//   shards = 16             # of the index; a power of two; unless told, some for each node
//   hash_seed = 8152763     # any number that others can not guess; unless told, from the hosts' key
//   [[node]]
//   name = "a"
//   address = "10.0.0.1:7457"
//
// Regions and shards go to the nodes in turn, in the order of the file: with other nodes or shards it is
// another cluster, whose hosts refuse what they have of the former one. Without a seed the key can not be
// changed while any host keeps its memory: another one that makes its part anew would not fit.
#pragma once

#include <string>
#include <utility>

#include "cluster/coordinator.h"

namespace loch::cluster {

class FileCoordinator final : public Coordinator {
 public:
  explicit FileCoordinator(std::string path) : path_(std::move(path)) {}
  Result<Versioned> read_map() override;
  [[nodiscard]] bool may_change() const override { return false; }
  Result<void> write_map(const fabric::ClusterMap& map, std::uint64_t version) override;
  Result<void> announce(const Present& /*self*/) override { return {}; }
  Result<std::vector<Present>> present() override { return std::vector<Present>{}; }
  void wait_for_change(std::uint64_t version, base::Nanos at_most_ns) override;

 private:
  const std::string path_;
};

}  // namespace loch::cluster
