// What a host tells whoever runs it (Host::Options::log).
#pragma once

#include <fmt/format.h>
#include <string>

#include "base/clock.h"
#include "fabric/host.h"
#include "fabric/host/seldom.h"

namespace loch::fabric::host {

inline void log(const Host::Options& options, Host::Level level, const std::string& text) {
  if (options.log) options.log(level, text);
}

// Of what strangers can bring about at will. False if it was left out.
inline bool log_seldom(const Host::Options& options, Host::Level level, Seldom& seldom,
                       const std::string& text) {
  const auto left_out = seldom.tell(base::Clock().now());
  if (!left_out) return false;
  log(options, level, *left_out == 0 ? text : fmt::format("{} (and {} more before it)", text, *left_out));
  return true;
}
inline bool warn_seldom(const Host::Options& options, Seldom& seldom, const std::string& text) {
  return log_seldom(options, Host::Level::warning, seldom, text);
}

}  // namespace loch::fabric::host
