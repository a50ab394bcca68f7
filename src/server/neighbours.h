// Neighbours: sees whether another host of the cluster has lost its memory and come back without, and then
// has this host's part of a store forget what it knew of it.
//
// A host keeps which incarnation of each other one its words are about (memory::Attachment). When a host
// shows another, all sessions of the store end here, for they may be about to use what they saw of the former
// one; the slots that name items of its former memory are emptied; and from then on this host knows it as
// what it is. Clients have it again when all hosts do.
//
// One thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fabric/endpoint.h"
#include "fabric/host.h"
#include "server/member.h"

namespace loch::server {

class Neighbours {
 public:
  struct Options {
    fabric::Access here;    // where this host's parts are
    fabric::Access others;  // how to get to other hosts
    std::vector<std::string> stores{};
    std::function<void(const std::string&)> log{};  // what was lost, and what went wrong
  };
  // `member` and `host` outlive it.
  Neighbours(Options options, const Member& member, fabric::Host& host);
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

 private:
  // How one store is looked at.
  struct Watch {
    std::string store;
    std::shared_ptr<fabric::Fabric> fabric{};
    std::unique_ptr<fabric::Endpoint> endpoint{};
    std::uint64_t hosts_found = 0;
    std::string told{};  // the last error that was logged
  };
  void run(std::vector<std::string> stores);
  // Errors: why the others can not be looked at, or what was lost is not forgotten.
  Result<void> look(Watch& watch);
  Result<void> connect(Watch& watch, const Member::State& now) const;
  // What a node says of itself. Errors: those of the fabric.
  static Result<std::uint64_t> incarnation_of(Watch& watch, std::uint32_t node);
  // What this host's part says of the others, and forgets of one.
  struct Sight {
    std::uint64_t incarnation = 0;  // 0: it could not be asked, or is gone
    bool is_gone = false;           // what it had is nobody's any more
    bool was_drained = false;       // and nobody was about to name any of it
  };
  static bool names_items(fabric::Endpoint& endpoint, const Member::State& now, std::uint32_t node);
  Result<void> renew(const std::string& store, const Member::State& now, const std::vector<Sight>& seen);
  Result<void> forget(const std::string& store, const Member::State& now, std::uint32_t node,
                      std::uint64_t incarnation);

  const Options options_;
  const Member& member_;
  fabric::Host& host_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace loch::server
