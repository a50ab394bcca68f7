#include "base/random.h"

#include <random>

namespace loch::base {

std::uint64_t system_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace loch::base
