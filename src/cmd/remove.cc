// loch remove: removes one key, all that begin alike, or all.
#include <algorithm>
#include <span>
#include <vector>

#include "cmd/command.h"
#include "cmd/json.h"
#include "cmd/selection.h"
#include "cmd/terminal.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

// Keys taken from one walk before they are removed: bounds the memory for them.
constexpr std::size_t keys_per_walk = 1 << 17;
// So many are removed together: an interrupt waits for those.
constexpr std::size_t keys_at_once = 64;

struct RemoveArguments {
  std::string store;
  std::optional<std::string> key;
  std::optional<Version> if_version;
  bool all = false;
  Selection selection;
  Encoding encoding;
};

Exit remove_one(Context& context, const RemoveArguments& arguments) {
  const auto key = arguments.encoding.key(*arguments.key);
  if (!key) return context.complain(Exit::usage, key.error());
  auto store = context.open(arguments.store, Work::point);
  if (!store) return store.error();
  const auto removed =
      arguments.if_version ? store->remove(*key, *arguments.if_version) : store->remove(*key);
  if (!removed) return context.report_of_key(arguments.store, *key, removed.error());
  if (context.globals.json) context.print_json(Json{{"removed", 1}});
  return Exit::ok;
}

struct Found {
  std::vector<std::string> keys;
  Walked walked;
};

Result<Found> some_keys(Store& store, const Selection& selection) {
  Found found;
  const auto walked = selection.for_each(store, [&found](const Entry& entry) {
    found.keys.emplace_back(entry.key);
    return found.keys.size() < keys_per_walk;
  });
  if (!walked) return std::unexpected(walked.error());
  found.walked = *walked;
  return found;
}

// Removes what is selected until a walk comes to its end. Others may go on inserting; `walks_max` bounds the
// race. How many items there were, and what a walk left out.
Result<Walked> remove_selected(Store& store, const Selection& selection, std::uint64_t walks_max,
                               Progress& progress) {
  Walked removed;
  for (std::uint64_t walk = 0; walk < walks_max && !interrupted(); ++walk) {
    const auto found = some_keys(store, selection);
    if (!found) return std::unexpected(found.error());
    removed.damaged = std::max(removed.damaged, found->walked.damaged);  // each may meet the same
    std::vector<Removal> removals;
    for (std::size_t first = 0; first < found->keys.size() && !interrupted(); first += keys_at_once) {
      const auto keys = std::span(found->keys).subspan(first);
      removals.clear();
      for (const std::string& key : keys.first(std::min(keys.size(), keys_at_once)))
        removals.push_back({.key = key});
      store.multi_remove(removals);
      for (const Removal& each : removals) {
        if (!each.result && each.result.error().code != Errc::not_found)
          return std::unexpected(each.result.error());
        if (each.result) ++removed.items;
      }
      progress.update(removed.items, removed.items);
    }
    if (found->keys.size() < keys_per_walk) break;
  }
  return removed;
}

Exit remove_several(Context& context, const RemoveArguments& arguments) {
  auto store = context.open(arguments.store, Work::walk);
  if (!store) return store.error();
  const auto counted = arguments.selection.count(*store);
  if (!counted) return context.report(counted.error());
  const std::uint64_t items = counted->items;
  const Exit answer = context.confirm(
      [&] { return fmt::format("Remove {}?", arguments.selection.described(items, arguments.store)); });
  if (answer != Exit::ok) return answer;
  watch_for_interrupts();
  Progress progress("remove", items, stderr_is_terminal() && !context.globals.quiet);
  const auto removed = remove_selected(*store, arguments.selection, items / keys_per_walk + 2, progress);
  progress.erase();
  if (!removed) return context.report(removed.error());
  if (context.globals.json) {
    context.print_json(Json{{"removed", removed->items}});
  } else {
    context.note(fmt::format("{} removed", how_many(removed->items, "item")));
  }
  return report_damage(context, *removed);
}

Exit run_remove(Context& context, const RemoveArguments& arguments) {
  const int given = int{arguments.key.has_value()} + int{arguments.all} + int{!arguments.selection.is_all()};
  if (given != 1) return context.complain(Exit::usage, "give one of KEY, --prefix and --all");
  return arguments.key ? remove_one(context, arguments) : remove_several(context, arguments);
}

}  // namespace

void add_remove(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<RemoveArguments>();
  CLI::App& command = add_command(app, context, "remove", "Remove a key, those that begin alike, or all",
                                  arguments, run_remove);
  add_store(command, arguments->store);
  add_optional_argument(command, "KEY", arguments->key, "The key");
  arguments->selection.add_to(command);
  add_flag(command, "--all", arguments->all,
           "Remove every item; asks first, as --prefix does, or needs --yes");
  add_version(command, "--if-version", arguments->if_version,
              "Remove only this version, as `loch get --json` gave it; fail (5) if it changed");
  let_exclude(command, "--if-version", "--all");
  let_exclude(command, "--if-version", "--prefix");
  arguments->encoding.add_to(command, false);
  let_exclude(command, "--prefix", "--hex-key");
  add_footer(command,
             "Exit code 4 if there is no such key.\n"
             "Examples:\n"
             "  loch remove sessions user:17\n"
             "  loch remove sessions --prefix user: --yes\n"
             "  loch remove sessions --all --yes\n"
             "To remove the store itself: loch rm sessions");
}

}  // namespace loch::cmd
