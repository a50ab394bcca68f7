// loch inspect: the geometry of a store, or what is known of one key.
#include "cmd/command.h"
#include "cmd/info.h"
#include "cmd/json.h"
#include "cmd/table.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

constexpr std::size_t preview_bytes_max = 64;

struct InspectArguments {
  std::string store;
  std::optional<std::string> key;
  Encoding encoding;
};

Exit inspect_store(Context& context, Store& store) {
  const auto info = store.info();
  if (!info) return context.report(info.error());
  if (context.globals.json) {
    Json json = info_json(*info);
    json.erase("totals");
    context.print_json(json);
  } else {
    context.out.write(geometry_text(*info));
  }
  return Exit::ok;
}

Exit inspect_key(Context& context, Store& store, const std::string& store_name, const std::string& key) {
  const auto item = store.read(key);
  if (!item) return context.report_of_key(store_name, key, item.error());
  const std::string_view preview = std::string_view(item->value).substr(0, preview_bytes_max);
  if (context.globals.json) {
    Json json;
    set_bytes(json, "key", key);
    json["key_bytes"] = key.size();
    json["value_bytes"] = item->value.size();
    json["value_is_utf8"] = is_utf8(item->value);
    if (item->time_to_live) json["ttl_ms"] = ttl_ms_left(*item->time_to_live);
    json["version"] = version_text(item->version);
    context.print_json(json);
    return Exit::ok;
  }
  Table table("ll");
  table.add({"key", fmt::format("{} B: {}", key.size(), escaped(key))});
  table.add({"value", fmt::format("{} B: {}{}", item->value.size(), escaped(preview),
                                  preview.size() < item->value.size() ? " ..." : "")});
  table.add({"time to live", item->time_to_live ? human_duration(*item->time_to_live) : "until removed"});
  table.add({"version", version_text(item->version)});
  context.out.write(table.text());
  return Exit::ok;
}

Exit run_inspect(Context& context, const InspectArguments& arguments) {
  std::optional<std::string> key;
  if (arguments.key) {
    auto decoded = arguments.encoding.key(*arguments.key);
    if (!decoded) return context.complain(Exit::usage, decoded.error());
    key = std::move(*decoded);
  }
  auto store = context.open(arguments.store, Work::point);
  if (!store) return store.error();
  return key ? inspect_key(context, *store, arguments.store, *key) : inspect_store(context, *store);
}

}  // namespace

void add_inspect(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App& command =
      add_command(app, context, "inspect", "Show a store's geometry, or one key's size, time and version",
                  arguments, run_inspect);
  add_store(command, arguments->store);
  add_optional_argument(command, "KEY", arguments->key, "The key");
  arguments->encoding.add_to(command, false);
  add_footer(command,
             "Examples:\n"
             "  loch inspect sessions\n"
             "  loch inspect sessions user:17\n"
             "  loch --json inspect sessions user:17 | jq .value_bytes");
}

}  // namespace loch::cmd
