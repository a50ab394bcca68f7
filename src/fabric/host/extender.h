// Extender: a thread that adds the memory that clients on other hosts will need (Port::extend_soon), since
// that takes milliseconds, and nobody is to wait so long for this host, nor for that.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "fabric/fabric.h"

namespace loch::fabric::host {

class Extender {
 public:
  Extender();
  // What has not begun is left out.
  ~Extender();
  Extender(const Extender&) = delete;
  Extender& operator=(const Extender&) = delete;

  // Any thread. What several clients ask for is done once; more than a few ask for together is left out.
  void extend_soon(std::shared_ptr<Fabric> store, RegionId region, std::uint64_t length_bytes);
  // How long regions of the store are to become that are not yet. Any thread.
  [[nodiscard]] std::map<RegionId, std::uint64_t> wanted_of(const Fabric& store);

 private:
  struct Wanted {
    std::shared_ptr<Fabric> store;
    RegionId region = 0;
    std::uint64_t length_bytes = 0;

    bool operator==(const Wanted&) const = default;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Wanted> wanted_;  // the first of them is being done
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace loch::fabric::host
