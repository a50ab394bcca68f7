// Fencer: has the other hosts of a cluster end the sessions that this one takes for dead. A host that does
// not answer is asked again and again: until it has, or is known to have nothing of the session, what the
// session held is not given away.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fabric/remote/link.h"

namespace loch::fabric::host {

class Fencer {
 public:
  using Id = std::uint64_t;

  // Another host of a cluster: which node of it, and where that was last.
  struct Other {
    std::uint32_t node = 0;
    std::string name;
    remote::Target at;
  };

  // `fenced` is told of each that has ended everywhere; `find` says where a node is now: nowhere, if it need
  // not be asked any more. The fencer's thread calls both.
  Fencer(std::function<void(Id)> fenced, std::function<std::optional<remote::Target>(const Other&)> find)
      : fenced_(std::move(fenced)), find_(std::move(find)), thread_([this] { run(); }) {}
  ~Fencer();
  Fencer(const Fencer&) = delete;
  Fencer& operator=(const Fencer&) = delete;

  // Any thread.
  void fence(Id id, std::string session, std::vector<Other> others);

 private:
  struct Job {
    Id id = 0;
    std::string session;
    std::vector<Other> others;  // that have not answered yet
    base::Nanos again_at = 0;
  };
  void run();
  void ask_others(Job& job) const;

  const std::function<void(Id)> fenced_;
  const std::function<std::optional<remote::Target>(const Other&)> find_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace loch::fabric::host
