// loch remove: removes one key, or all of them.
#include <vector>

#include "cmd/command.h"
#include "cmd/json.h"
#include "cmd/terminal.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

// Keys taken from one walk before they are removed: bounds the memory for them.
constexpr std::size_t keys_per_walk = 1 << 17;

struct RemoveArguments {
  std::string store;
  std::optional<std::string> key;
  std::optional<Version> if_version;
  bool all = false;
  Encoding encoding;
};

Exit remove_one(Context& context, const RemoveArguments& arguments) {
  const auto key = arguments.encoding.key(*arguments.key);
  if (!key) return context.complain(Exit::usage, key.error());
  auto store = context.open(arguments.store, Work::point);
  if (!store) return store.error();
  const auto removed =
      arguments.if_version ? store->remove(*key, *arguments.if_version) : store->remove(*key);
  if (!removed) return context.report(removed.error());
  if (context.globals.json) context.print_json(Json{{"removed", 1}});
  return Exit::ok;
}

Result<std::vector<std::string>> some_keys(Store& store) {
  std::vector<std::string> keys;
  const auto walked = store.for_each([&](const Entry& entry) {
    keys.emplace_back(entry.key);
    return keys.size() < keys_per_walk;
  });
  if (!walked) return std::unexpected(walked.error());
  return keys;
}

// Removes what is there until a walk comes to its end. Others may go on inserting; `walks_max` bounds the
// race.
Result<std::uint64_t> remove_everything(Store& store, std::uint64_t walks_max, Progress& progress) {
  std::uint64_t removed = 0;
  for (std::uint64_t walk = 0; walk < walks_max && !interrupted(); ++walk) {
    const auto keys = some_keys(store);
    if (!keys) return std::unexpected(keys.error());
    for (const std::string& key : *keys) {
      const auto result = store.remove(key);
      if (!result && result.error().code != Errc::not_found) return std::unexpected(result.error());
      if (result) ++removed;
      progress.update(removed, removed);
      if (interrupted()) return removed;
    }
    if (keys->size() < keys_per_walk) break;
  }
  return removed;
}

Exit remove_all(Context& context, const RemoveArguments& arguments) {
  auto store = context.open(arguments.store, Work::walk);
  if (!store) return store.error();
  const auto count = store->count();
  if (!count) return context.report(count.error());
  const Exit answer = context.confirm([&] {
    return fmt::format("Remove all {} of store '{}'?", how_many(*count, "item"), escaped(arguments.store));
  });
  if (answer != Exit::ok) return answer;
  watch_for_interrupts();
  Progress progress("remove", *count, stderr_is_terminal() && !context.globals.quiet);
  const auto removed = remove_everything(*store, *count / keys_per_walk + 2, progress);
  progress.erase();
  if (!removed) return context.report(removed.error());
  if (context.globals.json) {
    context.print_json(Json{{"removed", *removed}});
  } else {
    context.note(fmt::format("{} removed", how_many(*removed, "item")));
  }
  return Exit::ok;
}

Exit run_remove(Context& context, const RemoveArguments& arguments) {
  if (arguments.all == arguments.key.has_value()) {
    return context.complain(Exit::usage, "give either a KEY or --all");
  }
  return arguments.all ? remove_all(context, arguments) : remove_one(context, arguments);
}

}  // namespace

void add_remove(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<RemoveArguments>();
  CLI::App& command = add_command(app, context, "remove", "Remove a key, or all keys", arguments, run_remove);
  add_store(command, arguments->store);
  add_optional_argument(command, "KEY", arguments->key, "The key");
  add_flag(command, "--all", arguments->all, "Remove every item; asks first, or needs --yes");
  add_version(command, "--if-version", arguments->if_version,
              "Remove only this version, as `loch get --json` gave it; fail (5) if it changed");
  let_exclude(command, "--if-version", "--all");
  arguments->encoding.add_to(command, false);
  add_footer(command,
             "Exit code 4 if there is no such key.\n"
             "Examples:\n"
             "  loch remove sessions user:17\n"
             "  loch remove sessions --all --yes\n"
             "To remove the store itself: loch rm sessions");
}

}  // namespace loch::cmd
