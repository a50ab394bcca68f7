#include "fabric/shm/fork_watch.h"

#include <algorithm>
#include <mutex>
#include <pthread.h>
#include <vector>

#include "base/check.h"

namespace loch::fabric::shm {
namespace {

struct Owners {
  std::mutex mutex;  // before those of the owners
  std::vector<ForkWatch::Owner*> all;

  // There for as long as the process: stores may be the last that it destroys.
  static Owners& of_process() {
    static Owners* const owners = begin();
    return *owners;
  }

 private:
  static Owners* begin() {
    const int error = ::pthread_atfork(
        [] {
          Owners& owners = of_process();
          owners.mutex.lock();
          for (ForkWatch::Owner* each : owners.all) each->before_fork();
        },
        [] { of_process().end_fork(false); }, [] { of_process().end_fork(true); });
    LOCH_CHECK(error == 0);
    return new Owners;
  }
  void end_fork(bool in_child) {
    for (ForkWatch::Owner* each : all) each->after_fork(in_child);
    mutex.unlock();
  }
};

}  // namespace

ForkWatch::ForkWatch(Owner* owner) : owner_(owner) {
  Owners& owners = Owners::of_process();
  const std::scoped_lock lock(owners.mutex);
  owners.all.push_back(owner_);
}

ForkWatch::~ForkWatch() {
  Owners& owners = Owners::of_process();
  const std::scoped_lock lock(owners.mutex);
  std::erase(owners.all, owner_);
}

}  // namespace loch::fabric::shm
