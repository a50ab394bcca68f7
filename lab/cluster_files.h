// lab/cluster_files: what the lochds of a cluster are started with: the list of them, and for each
// a configuration and a folder of stores.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <loch/error.h>

#include "lab/hosts.h"

namespace loch::lab {

class ClusterFiles {
 public:
  struct Settings {
    std::string folder;     // that has all of it
    std::string store;      // its name
    std::size_t hosts = 3;  // that make up the cluster at first, the first ones of the network
    std::string (*address)(std::size_t host) = Hosts::address;
    std::string scheme = "tcp";   // of url()
    std::string coordinator;      // empty: a list of these hosts, in a file
    std::string more_of_lochd{};  // lines of lochd.toml
    std::string more_of_store{};  // and of its [[store]]
  };
  // Errors of all: io, naming the file.
  static Result<ClusterFiles> make(Settings settings);

  // What lochd is started with on a host, one of those that make up the cluster or another one.
  [[nodiscard]] Result<std::vector<std::string>> arguments(std::size_t host) const;
  // Where its stores are. Removing what is in there is how a host loses its memory.
  [[nodiscard]] std::string stores(std::size_t host) const;
  [[nodiscard]] Result<void> lose_memory(std::size_t host) const;
  // By which clients know the store.
  [[nodiscard]] std::string url() const;

 private:
  explicit ClusterFiles(Settings settings) : settings_(std::move(settings)) {}

  Settings settings_;
};

}  // namespace loch::lab
