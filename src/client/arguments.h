// What a caller may ask for.
#pragma once

#include <string_view>

#include <loch/loch.h>

#include "base/clock.h"

namespace loch::client {

inline bool key_fits(std::string_view key) { return !key.empty() && key.size() <= key_bytes_max; }
inline bool value_fits(std::string_view value) { return value.size() <= value_bytes_max; }
inline bool time_to_live_fits(const PutOptions& options) {
  const auto& time = options.time_to_live;
  return !time || (time->count() > 0 && *time <= time_to_live_max);
}
// All of a put.
inline bool is_valid(const Assignment& assignment) {
  return key_fits(assignment.key) && value_fits(assignment.value) && time_to_live_fits(assignment.options);
}

// When what is put now expires; 0: never.
inline base::Nanos expiry_of(const PutOptions& options, base::Nanos now) {
  if (!options.time_to_live) return 0;
  return now + static_cast<base::Nanos>(options.time_to_live->count()) * base::millisecond_ns;
}

}  // namespace loch::client
