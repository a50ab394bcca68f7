// loch gc, loch check: clears up after dead clients, and accounts for everything in a store.
#include "cmd/command.h"
#include "cmd/json.h"
#include "cmd/table.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

Exit run_gc(Context& context, const std::string& store_name) {
  auto store = context.open(store_name, Work::walk);
  if (!store) return store.error();
  const auto collected = store->collect();
  if (!collected) return context.report(collected.error());
  if (context.globals.json) {
    context.print_json(Json{{"sessions_reaped", collected->sessions_reaped},
                            {"items_reclaimed", collected->items_reclaimed},
                            {"items_expired", collected->items_expired},
                            {"blocks_freed", collected->blocks_freed},
                            {"slots_repaired", collected->slots_repaired}});
    return Exit::ok;
  }
  Table table("lr");
  table.add({"sessions of dead clients", human_count(collected->sessions_reaped)});
  table.add({"items they left behind", human_count(collected->items_reclaimed)});
  table.add({"items whose time had passed", human_count(collected->items_expired)});
  table.add({"blocks freed", human_count(collected->blocks_freed)});
  table.add({"slots repaired", human_count(collected->slots_repaired)});
  context.out.write(table.text());
  return Exit::ok;
}

Json report_json(const Report& report, bool sound) {
  return Json{{"sound", sound},
              {"items", report.items},
              {"items_resting", report.items_resting},
              {"items_unaccounted", report.items_unaccounted},
              {"items_corrupt", report.items_corrupt},
              {"slots_used", report.slots_used},
              {"slots_pending", report.slots_pending},
              {"slots_corrupt", report.slots_corrupt},
              {"findings", report.findings},
              {"findings_left_out", report.findings_left_out}};
}

std::string report_text(const Report& report) {
  Table table("lr");
  table.add({"items", human_count(report.items)});
  table.add({"items resting", human_count(report.items_resting)});
  table.add({"items unaccounted for", human_count(report.items_unaccounted)});
  table.add({"items corrupt", human_count(report.items_corrupt)});
  table.add({"slots used", human_count(report.slots_used)});
  table.add({"slots pending", human_count(report.slots_pending)});
  table.add({"slots corrupt", human_count(report.slots_corrupt)});
  std::string text = table.text();
  for (const std::string& finding : report.findings) text += "! " + escaped(finding) + "\n";
  if (report.findings_left_out != 0)
    text += fmt::format("! and {} more\n", human_count(report.findings_left_out));
  return text;
}

// What dead clients left unaccounted or pending is no damage: gc gets it back.
Exit run_check(Context& context, const std::string& store_name) {
  auto store = context.open(store_name, Work::walk);
  if (!store) return store.error();
  const auto report = store->check();
  if (!report) return context.report(report.error());
  const bool sound = report->items_corrupt == 0 && report->slots_corrupt == 0;
  if (context.globals.json) {
    context.print_json(report_json(*report, sound));
  } else {
    context.out.write(report_text(*report));
  }
  if (!sound) return context.complain(Exit::failed, "the store is damaged; the keys concerned give errors");
  if (report->items_unaccounted > 0 || report->slots_pending > 0) {
    context.note(fmt::format("`loch gc {}` clears up what dead clients left", escaped(store_name)));
  }
  return Exit::ok;
}

}  // namespace

void add_gc(CLI::App& app, Context& context) {
  auto store = std::make_shared<std::string>();
  CLI::App& command =
      add_command(app, context, "gc", "Clear up after dead clients, drop expired items, free empty blocks",
                  store, run_gc);
  add_store(command, *store);
  add_footer(
      command,
      "Clients do this in small steps when memory runs out; this does it all now. Empty blocks become\n"
      "free for items of any size; the store's files keep their size until `loch rm`.\n"
      "Example:\n  loch gc sessions");
}

void add_check(CLI::App& app, Context& context) {
  auto store = std::make_shared<std::string>();
  CLI::App& command = add_command(
      app, context, "check", "Account for every item, block and slot; changes nothing", store, run_check);
  add_store(command, *store);
  add_footer(command,
             "Exit code 1 if anything is corrupt.\n"
             "Examples:\n  loch check sessions\n  loch --json check sessions");
}

}  // namespace loch::cmd
