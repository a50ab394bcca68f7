// loch get, loch exists: read one key.
#include <unistd.h>

#include "cmd/command.h"
#include "cmd/json.h"

namespace loch::cmd {
namespace {

struct GetArguments {
  std::string store;
  std::string key;
  Encoding encoding;
};

void print_item(Context& context, std::string_view key, const Item& item) {
  Json json;
  set_bytes(json, "key", key);
  set_bytes(json, "value", item.value);
  if (item.time_to_live) json["ttl_ms"] = ttl_ms_left(*item.time_to_live);
  json["version"] = version_text(item.version);
  context.print_json(json);
}

Exit run_get(Context& context, const GetArguments& arguments) {
  const auto key = arguments.encoding.key(arguments.key);
  if (!key) return context.complain(Exit::usage, key.error());
  auto store = context.open(arguments.store, Work::point);
  if (!store) return store.error();
  const auto item = store->read(*key);
  if (!item) return context.report_of_key(arguments.store, *key, item.error());
  if (context.globals.json) {
    print_item(context, *key, *item);
  } else if (arguments.encoding.value_is_hex()) {
    context.out.write(to_hex(item->value));
    context.out.write("\n");
  } else {
    context.out.write(item->value);
    if (::isatty(STDOUT_FILENO) == 1) context.out.write("\n");
  }
  return Exit::ok;
}

Exit run_exists(Context& context, const GetArguments& arguments) {
  const auto key = arguments.encoding.key(arguments.key);
  if (!key) return context.complain(Exit::usage, key.error());
  auto store = context.open(arguments.store, Work::point);
  if (!store) return store.error();
  const auto found = store->exists(*key);
  if (!found) return context.report(found.error());
  if (context.globals.json) {
    context.print_json(Json{{"exists", *found}});
  } else if (!context.globals.quiet) {
    context.out.write(*found ? "yes\n" : "no\n");
  }
  return *found ? Exit::ok : Exit::not_found;
}

}  // namespace

void add_get(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<GetArguments>();
  CLI::App& command = add_command(app, context, "get", "Print the value of a key", arguments, run_get);
  add_store(command, arguments->store);
  add_key(command, arguments->key);
  arguments->encoding.add_to(command, true);
  add_footer(command,
             "The value goes to standard output byte for byte; a newline follows on a terminal only.\n"
             "--json prints key, value (value_base64 if it is not UTF-8), ttl_ms and version.\n"
             "Examples:\n"
             "  loch get sessions user:17\n"
             "  loch get builds src.tar | tar t\n"
             "  loch get --json sessions user:17");
}

void add_exists(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<GetArguments>();
  CLI::App& command = add_command(app, context, "exists", "Say whether a key is there (exit code 0 or 4)",
                                  arguments, run_exists);
  add_store(command, arguments->store);
  add_key(command, arguments->key);
  arguments->encoding.add_to(command, false);
  add_footer(command,
             "Examples:\n"
             "  loch exists sessions user:17\n"
             "  if loch -q exists sessions user:17; then ...; fi");
}

}  // namespace loch::cmd
