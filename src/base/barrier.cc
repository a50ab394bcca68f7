#include "base/barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace loch::base {
namespace {

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool take_part_in_barriers() {
  static const bool takes_part = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
  return takes_part;
}

bool barrier_for_all() { return membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED); }

}  // namespace loch::base
