#include "sim/run/subject.h"

#include <fmt/format.h>

#include "sim/run/paper_subject.h"
#include "sim/run/store_subject.h"

namespace loch::sim {

std::vector<std::string> numbered_keys(std::string_view prefix, std::uint32_t count) {
  std::vector<std::string> keys;
  for (std::uint32_t i = 0; i < count; ++i) keys.push_back(fmt::format("{}{}", prefix, i));
  return keys;
}

std::unique_ptr<Subject> make_subject(const Setup& setup) {
  if (setup.paper) return std::make_unique<PaperSubject>(setup);
  return std::make_unique<StoreSubject>(setup);
}

}  // namespace loch::sim
