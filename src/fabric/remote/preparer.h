// Preparer: a thread that puts new memory into huge pages for clients on other hosts (Fabric::prepare), and
// adds what they will need (Port::extend_soon), since that takes tens of milliseconds, and nobody is to wait
// so long for this host, nor for that.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "fabric/fabric.h"

namespace loch::fabric::remote {

class Preparer {
 public:
  Preparer();
  // What has not begun is left out.
  ~Preparer();
  Preparer(const Preparer&) = delete;
  Preparer& operator=(const Preparer&) = delete;

  // Any thread. What several clients ask for is done once; more than a few ask for together is left out.
  void prepare_soon(std::shared_ptr<Fabric> store, RegionId region, std::uint64_t from_bytes,
                    std::uint64_t to_bytes);
  // The region is `from_bytes` long.
  void extend_soon(std::shared_ptr<Fabric> store, RegionId region, std::uint64_t from_bytes,
                   std::uint64_t to_bytes);

 private:
  struct Wanted {
    std::shared_ptr<Fabric> store;
    RegionId region = 0;
    std::uint64_t from_bytes = 0;
    std::uint64_t to_bytes = 0;
    bool is_new = false;  // to be added first

    bool operator==(const Wanted&) const = default;
  };
  void add(Wanted wanted);
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Wanted> wanted_;  // the first of them is being done
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace loch::fabric::remote
