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
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "fabric/endpoint.h"
#include "fabric/host.h"
#include "memory/session.h"
#include "server/member.h"

namespace loch::server {

class Neighbours {
 public:
  // `others`: how to get to other hosts. `member` and `host` outlive it.
  Neighbours(fabric::Access others, const Member& member, fabric::Host& host);
  ~Neighbours() = default;
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
  void run(const std::stop_token& stop);
  // Errors: why the others can not be looked at, or what was lost is not forgotten.
  Result<void> look(Watch& watch);
  Result<void> connect(Watch& watch, const Member::State& now) const;
  Result<void> forget_the_lost(Watch& watch, const Member::State& now);
  // `own`: of this process, with this host's part of the store.
  Result<void> forget(const std::string& store, memory::Session& own, const Member::State& now,
                      std::uint32_t node);

  const fabric::Access others_;
  const Member& member_;
  fabric::Host& host_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

}  // namespace loch::server
