// Repeats: leaves out of the log what the same peer is told again and again, such as a host of the cluster
// with another key, which tries twice a second. One thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"

namespace loch::fabric::host {

class Repeats {
 public:
  static constexpr base::Nanos every_ns = 600 * base::second_ns;

  // Whether `peer`, "HOST:PORT", was said to be told so not long ago, from whatever port.
  [[nodiscard]] bool has(const std::string& peer, const std::string& what, base::Nanos now) const {
    const auto found = said_.find(key_of(peer, what));
    return found != said_.end() && now - found->second < every_ns;
  }
  void note(const std::string& peer, const std::string& what, base::Nanos now) {
    if (said_.size() == most) said_.clear();
    said_.insert_or_assign(key_of(peer, what), now);
  }

 private:
  static constexpr std::size_t most = 1'024;  // strangers come from as many addresses as they like
  using Key = std::pair<std::string, std::string>;
  static Key key_of(const std::string& peer, const std::string& what) {
    return {peer.substr(0, peer.rfind(':')), what};
  }

  std::map<Key, base::Nanos> said_;
};

}  // namespace loch::fabric::host
