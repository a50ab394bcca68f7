#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace loch::base {

void check_failed(const char* condition, std::source_location where) {
  std::fprintf(stderr, "loch: %s:%u: %s: check failed: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), where.function_name(), condition);
  std::abort();
}

}  // namespace loch::base
