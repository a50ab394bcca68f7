// LastPuts: of the puts of a batch that change the same key, only the last is carried out. Those before it
// count as done right before it: nobody could tell, and nobody is to wait for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hash/index.h"

namespace loch::client {

class LastPuts {
 public:
  static constexpr std::size_t puts_max = 64;

  // One of no key stands for itself.
  explicit LastPuts(std::span<const hash::Key> keys) {
    // Places that a key's hash names, and those behind it if others have taken it: so many that few do.
    constexpr std::size_t places = 4 * puts_max;
    std::array<std::uint8_t, places> last_at;
    last_at.fill(nobody);
    for (std::size_t put = keys.size(); put-- > 0;) {
      last_[put] = static_cast<std::uint8_t>(put);
      const hash::Key& key = keys[put];
      if (key.bytes.empty()) continue;
      std::size_t place = key.hash % places;
      while (last_at[place] != nobody && keys[last_at[place]].bytes != key.bytes)
        place = (place + 1) % places;
      if (last_at[place] == nobody) last_at[place] = last_[put];
      last_[put] = last_at[place];
    }
  }

  // The one that is carried out for it.
  [[nodiscard]] std::size_t of(std::size_t put) const { return last_[put]; }
  [[nodiscard]] bool is_last(std::size_t put) const { return last_[put] == put; }

 private:
  static constexpr std::uint8_t nobody = 0xff;
  std::array<std::uint8_t, puts_max> last_;
};

}  // namespace loch::client
