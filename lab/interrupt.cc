#include "lab/interrupt.h"

#include <atomic>
#include <csignal>

namespace loch::lab {
namespace {

std::atomic<bool> caught = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler stores it

}  // namespace

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = [](int) { caught.store(true, std::memory_order_relaxed); };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

bool interrupted() { return caught.load(std::memory_order_relaxed); }

}  // namespace loch::lab
