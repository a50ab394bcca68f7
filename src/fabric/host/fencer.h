// Fencer: has the other hosts of a cluster end the sessions that this one takes for dead. A host that does
// not answer is asked again and again: until it has, or is known to have nothing of the session, what the
// session held is not given away. One that has just failed is left alone for a while, for all sessions, so
// that these do not wait for it one after the other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fabric/host.h"
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
  // not be asked any more. The fencer's thread calls both, and the log of the options, which outlive it.
  Fencer(const Host::Options& options, std::function<void(Id)> fenced,
         std::function<std::optional<remote::Target>(const Other&)> find)
      : options_(options), fenced_(std::move(fenced)), find_(std::move(find)), thread_([this] { run(); }) {}
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
  // A node that has failed, and not answered since.
  struct Failing {
    base::Nanos not_before = 0;  // it is asked again
    std::set<Errc> told{};       // to the log
  };
  void run();
  void ask_others(Job& job);
  // False if the node has to be asked again.
  bool ask(const Other& other, const std::string& session);
  void note_failure(const Other& other, const remote::Target& at, const Error& error);

  const Host::Options& options_;
  const std::function<void(Id)> fenced_;
  const std::function<std::optional<remote::Target>(const Other&)> find_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::atomic<bool> stop_ = false;
  std::map<std::string, Failing> failing_;  // by name; of the thread
  std::thread thread_;
};

}  // namespace loch::fabric::host
