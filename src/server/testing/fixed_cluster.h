// FixedCluster: several hosts in one process, each with its own folder, whose map is a fixed list, and
// clients by sockets.
#pragma once

#include <cstddef>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "lab/temp_folder.h"
#include "server/testing/cluster_node.h"

namespace loch::server::fake {

class FixedCluster : public testing::Test {
 public:
  FixedCluster(const FixedCluster&) = delete;
  FixedCluster& operator=(const FixedCluster&) = delete;
  ~FixedCluster() override {
    if (HasFailure()) fmt::print("the store could not be opened at last: {}\n", why_not_);
  }

 protected:
  FixedCluster() = default;
  [[nodiscard]] std::string cluster_file() const { return folder_ + "/cluster.toml"; }

  void add_nodes(std::size_t count) {
    std::ofstream file(cluster_file());
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      nodes_.push_back(std::make_unique<Node>(name, folder_ + "/" + name, "file:" + cluster_file()));
      file << fmt::format("[[node]]\nname = \"{}\"\naddress = \"{}\"\n", name, nodes_[i]->address().text());
    }
  }
  void start_all() {
    for (const auto& node : nodes_) ASSERT_NO_FATAL_FAILURE(node->start());
  }
  [[nodiscard]] std::string url() const {
    std::string hosts;
    for (const auto& node : nodes_) hosts += (hosts.empty() ? "" : ",") + node->address().text();
    return fmt::format("tcp://{}/{}", hosts, store_name);
  }
  Result<Store> open(Options options = {}) const {
    options.mode = Options::Mode::attach;
    auto store = Store::open(url(), options);
    if (!store) why_not_ = store.error().message();
    return store;
  }
  static Options put_at(Placement placement, const std::string& node = {}) {
    Options options;
    options.placement = placement;
    options.placement_node = node;
    return options;
  }
  static std::string key(int i) { return fmt::format("key{}", i); }
  static std::string value(int i) { return fmt::format("value {} {}", i, std::string(i % 500, 'x')); }
  static void fill(Store& store, int count) {
    for (int i = 0; i < count; ++i) {
      const auto put = store.put(key(i), value(i));
      ASSERT_TRUE(put.has_value()) << put.error().message();
    }
  }

  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  const std::string folder_ = temp_.path();
  mutable std::string why_not_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace loch::server::fake
