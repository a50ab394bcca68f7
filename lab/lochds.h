// lab/lochds: real lochds as children.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <loch/error.h>

#include "lab/cluster_files.h"
#include "lab/hosts.h"
#include "lab/process.h"

namespace loch::lab {

// The program lochd: the one that was named by --lochd, or if that is empty the one that is installed.
// Errors: not_found.
Result<std::string> find_lochd(const std::string& named);

// Starts a lochd that has a log, and waits until it lends. Errors: those of Process::start_until.
Result<Process> start_lochd(const Command& command);

// Those of a cluster, one on each of its hosts.
class Lochds {
 public:
  // `program` is run on `hosts`, which outlives this; without them, in this process's network namespace.
  Lochds(std::string program, ClusterFiles files, const Hosts* hosts)
      : program_(std::move(program)), files_(std::move(files)), hosts_(hosts) {}

  // In the place of the one that was there; `environment` as of a Command. Errors: those of start_lochd and
  // ClusterFiles.
  [[nodiscard]] Result<void> start(std::size_t host, std::vector<std::string> environment = {});
  // One that was started.
  [[nodiscard]] Process& at(std::size_t host) { return running_.at(host); }
  [[nodiscard]] const std::map<std::size_t, Process>& all() const { return running_; }
  [[nodiscard]] const ClusterFiles& files() const { return files_; }

 private:
  std::string program_;
  ClusterFiles files_;
  const Hosts* hosts_;
  std::map<std::size_t, Process> running_;
};

}  // namespace loch::lab
