// loch ls, loch rm: the stores of a directory.
#include "cmd/command.h"
#include "cmd/info.h"
#include "cmd/json.h"
#include "cmd/table.h"
#include "cmd/terminal.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

// The Info of a store that is in the list; it may have gone meanwhile, or not be ours to open.
Result<Info> info_of(const Context& context, const std::string& store_name) {
  Options options = context.options(Work::point);
  options.mode = Options::Mode::attach;
  auto store = Store::open(store_url(store_name), options);
  if (!store) return std::unexpected(store.error());
  return store->info();
}

void print_long(Context& context, const std::vector<std::string>& names) {
  Table table("lrrrl");
  table.add({"NAME", "MEMORY", "IN USE", "CLIENTS", ""});
  for (const std::string& each : names) {
    const auto info = info_of(context, each);
    if (!info) {
      table.add({each, "-", "-", "-", what_is_wrong(info.error())});
      continue;
    }
    const std::uint64_t blocks_used = info->blocks - std::min(info->blocks, info->blocks_free);
    table.add({each, human_bytes(info->data_bytes + info->index_bytes + info->control_bytes),
               human_bytes(blocks_used * info->block_bytes), human_count(other_clients(*info)), ""});
  }
  context.out.write(table.text());
}

Json long_json(const Context& context, const std::vector<std::string>& names) {
  Json all = Json::array();
  for (const std::string& each : names) {
    const auto info = info_of(context, each);
    if (info) {
      Json json = info_json(*info);
      json.erase("totals");
      all.push_back(std::move(json));
    } else {
      const Error& error = info.error();
      all.push_back(
          Json{{"name", each}, {"error", {{"code", name(error.code)}, {"text", what_is_wrong(error)}}}});
    }
  }
  return all;
}

Exit run_ls(Context& context, const bool& with_details) {
  if (const auto refused = context.refuse_far_options("ls lists those of this one")) return *refused;
  const auto names = Store::list(context.options(Work::point));
  if (!names) {
    return context.complain(
        Exit::cannot_open,
        fmt::format("cannot list {}: {}", context.globals.directory, what_is_wrong(names.error())),
        names.error().code);
  }
  if (context.globals.json) {
    context.print_json(with_details ? long_json(context, *names) : Json(*names));
  } else if (with_details && !names->empty()) {
    print_long(context, *names);
  } else {
    for (const std::string& each : *names) context.out.write(each + "\n");
  }
  if (names->empty() && stderr_is_terminal()) {
    context.note(fmt::format("no stores in {}", context.globals.directory));
  }
  return Exit::ok;
}

std::string rm_question(const std::string& store_name, const Result<Info>& info) {
  if (!info) return fmt::format("Destroy store '{}' and all its items?", escaped(store_name));
  return fmt::format("Destroy store '{}' in {} ({}, other clients: {}) and all its items?",
                     escaped(info->name), info->directory,
                     human_bytes(info->data_bytes + info->index_bytes + info->control_bytes),
                     other_clients(*info));
}

Exit complain_of_destroying(const Context& context, const std::string& store_name, const Error& error) {
  if (error.code == Errc::not_found)
    return context.complain(Exit::not_found, fmt::format("no such store '{}'", escaped(store_name)),
                            error.code);
  const bool is_forbidden = error.code == Errc::permission;
  // The error knows of the files, and not that it is their folder that was to be changed.
  const char* hint =
      is_forbidden
          ? " (who may write in the directory may destroy it; in a sticky one, as /dev/shm, its owner)"
          : "";
  return context.complain(
      is_forbidden ? Exit::cannot_open : exit_of(error.code),
      fmt::format("cannot destroy store '{}': {}{}", escaped(store_name), what_is_wrong(error), hint),
      error.code);
}

Exit run_rm(Context& context, const std::string& store_name) {
  if (context.globals.read_only)
    return context.complain(Exit::failed, "with --read-only nothing is destroyed");
  if (const auto refused = context.check_options(store_name)) return *refused;
  // One of another host is never destroyed, so there is nothing to ask.
  if (!context.globals.yes && is_of_this_host(store_name)) {
    const auto info = info_of(context, store_name);
    if (!info && (is_no_store(info.error()) || info.error().code == Errc::invalid_argument))
      return complain_of_destroying(context, store_name, info.error());
    const Exit answer = context.confirm([&] { return rm_question(store_name, info); });
    if (answer != Exit::ok) return answer;
  }
  const auto destroyed = Store::destroy(store_url(store_name), context.options(Work::point));
  if (!destroyed) return complain_of_destroying(context, store_name, destroyed.error());
  if (context.globals.json) context.print_json(Json{{"name", last_part(store_name)}, {"destroyed", true}});
  return Exit::ok;
}

}  // namespace

void add_ls(CLI::App& app, Context& context) {
  auto with_details = std::make_shared<bool>(false);
  CLI::App& command = add_command(app, context, "ls", "List the stores of a directory", with_details, run_ls);
  add_flag(command, "-l,--long", *with_details, "With their sizes and clients");
  add_footer(command,
             "Examples:\n"
             "  loch ls -l\n"
             "  loch --directory /mnt/huge ls\n"
             "  loch --json ls | jq -r '.[]'");
}

void add_rm(CLI::App& app, Context& context) {
  auto store = std::make_shared<std::string>();
  CLI::App& command = add_command(
      app, context, "rm", "Destroy a store and all its items; asks first, or needs --yes", store, run_rm);
  add_store(command, *store);
  add_footer(
      command,
      "Clients that have it open go on with the memory they mapped. Exit code 4 if there is no such store.\n"
      "Examples:\n"
      "  loch rm sessions\n"
      "  loch --yes rm sessions\n"
      "To remove one key: loch remove sessions KEY");
}

}  // namespace loch::cmd
