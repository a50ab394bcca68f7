// cmd/selection: which items a command over all of them is about, and the walk over those.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <loch/loch.h>

#include "cmd/command.h"

namespace loch::cmd {

// What a walk came by.
struct Walked {
  std::uint64_t items = 0;    // that were selected
  std::uint64_t damaged = 0;  // of any key, that were left out: they are, or the slots that name them
};

// How a walk that came to its end ended: it fails if anything was left out, and says so.
Exit report_damage(const Context& context, const Walked& walked);

class Selection {
 public:
  void add_to(CLI::App& command);

  [[nodiscard]] bool is_all() const { return !prefix_; }
  // "all 7 items of store 's'", "the 7 items of store 's' whose keys begin with 'user:'".
  [[nodiscard]] std::string described(std::uint64_t items, const std::string& store_name) const;

  // Visits the selected items until `visit` returns false, or an interrupt.
  Result<Walked> for_each(Store& store, const std::function<bool(const Entry&)>& visit) const;
  // How many there are; of all, the index and the items' headers say it, and damaged values are not seen.
  Result<Walked> count(Store& store) const;

 private:
  std::optional<std::string> prefix_;
};

}  // namespace loch::cmd
