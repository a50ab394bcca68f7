#include "cmd/selection.h"

#include <fmt/format.h>

#include "cmd/terminal.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

// How often this program has come by damage.
std::uint64_t damage_met(const Store& store) {
  const Stats stats = store.stats();
  return stats[Counter::corrupt_items] + stats[Counter::corrupt_slots];
}

}  // namespace

Exit report_damage(const Context& context, const Walked& walked) {
  if (walked.damaged == 0) return Exit::ok;
  return context.complain(Exit::failed, fmt::format("{} left out; `loch check` says which",
                                                    how_many(walked.damaged, "damaged item")));
}

void Selection::add_to(CLI::App& command) {
  const auto parse = [](const std::string& text) -> Parsed<std::string> {
    // Of a script's variable that has no value it would be every key.
    if (text.empty())
      return std::unexpected("the prefix is empty; leave it out for all keys (of remove: --all)");
    if (text.size() > key_bytes_max)
      return std::unexpected(fmt::format("a key has at most {} bytes, not {}", key_bytes_max, text.size()));
    return text;
  };
  add_parsed(command, "--prefix", prefix_, "Only items whose keys begin with these bytes", "PREFIX", parse);
}

std::string Selection::described(std::uint64_t items, const std::string& store_name) const {
  const std::string those = fmt::format("{} of store '{}'", how_many(items, "item"), escaped(store_name));
  if (is_all()) return "all " + those;
  return fmt::format("the {} whose {} with '{}'", those, items == 1 ? "key begins" : "keys begin",
                     escaped(*prefix_));
}

Result<Walked> Selection::for_each(Store& store, const std::function<bool(const Entry&)>& visit) const {
  Walked walked;
  const std::uint64_t met_before = damage_met(store);
  const auto result = store.for_each([&](const Entry& entry) {
    if (prefix_ && !entry.key.starts_with(*prefix_)) return !interrupted();
    walked.items += 1;
    return visit(entry) && !interrupted();
  });
  if (!result) return std::unexpected(result.error());
  walked.damaged = damage_met(store) - met_before;
  return walked;
}

Result<Walked> Selection::count(Store& store) const {
  if (!is_all()) return for_each(store, [](const Entry&) { return true; });
  const std::uint64_t met_before = damage_met(store);
  const auto items = store.count();
  if (!items) return std::unexpected(items.error());
  return Walked{.items = *items, .damaged = damage_met(store) - met_before};
}

}  // namespace loch::cmd
