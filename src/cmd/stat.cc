// loch stat: what a store is and what its clients did, once or again and again.
#include <algorithm>
#include <chrono>
#include <unistd.h>

#include "cmd/command.h"
#include "cmd/info.h"
#include "cmd/json.h"
#include "cmd/table.h"
#include "cmd/terminal.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

struct StatArguments {
  std::string store;
  std::optional<std::chrono::milliseconds> watch;
  std::optional<std::uint64_t> times;
};

// The counters that are not 0, with their change since `before` where there is one.
std::string counters_text(const Stats& now, const Stats* before, double seconds) {
  Table table(before ? "lrr" : "lr");
  for (std::size_t i = 0; i < counter_count; ++i) {
    if (now.values[i] == 0) continue;
    std::vector<std::string> row{std::string(name(static_cast<Counter>(i))), human_count(now.values[i])};
    if (before) {
      // What is counted of a session that ends may be seen twice, or not at all, for a moment.
      const std::uint64_t more = now.values[i] - std::min(now.values[i], before->values[i]);
      row.push_back(human_rate(static_cast<double>(more) / seconds));
    }
    table.add(std::move(row));
  }
  return table.text();
}

void print_once(Context& context, const Info& info, const Stats* before, double seconds) {
  if (context.globals.json) {
    context.print_json(info_json(info));
  } else {
    context.out.write(info_text(info));
    const std::string counters = counters_text(info.totals, before, seconds);
    if (!counters.empty()) context.out.write("\n" + counters);
  }
  context.out.flush();
}

Exit run_stat(Context& context, const StatArguments& arguments) {
  auto store = context.open(arguments.store, Work::point);
  if (!store) return store.error();
  watch_for_interrupts();
  const bool redraw = arguments.watch && !context.globals.json && ::isatty(STDOUT_FILENO) == 1;
  std::optional<Stats> before;
  std::chrono::steady_clock::time_point before_time;
  for (std::uint64_t round = 1;; ++round) {
    const auto info = store->info();
    if (!info) return context.report(info.error());
    const auto now = std::chrono::steady_clock::now();
    if (redraw) context.out.write("\x1b[H\x1b[2J");
    if (round > 1 && !redraw && !context.globals.json) context.out.write("\n");
    print_once(context, *info, before ? &*before : nullptr,
               std::chrono::duration<double>(now - before_time).count());
    const bool last = !arguments.watch || (arguments.times && round >= *arguments.times);
    if (last || !context.out.good()) return Exit::ok;
    if (!wait_unless_interrupted(*arguments.watch)) return Exit::ok;
    before = info->totals;
    before_time = now;
  }
}

}  // namespace

void add_stat(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<StatArguments>();
  CLI::App& command =
      add_command(app, context, "stat", "Show a store's size, use and counters", arguments, run_stat);
  add_store(command, arguments->store);
  add_duration(command, "-w,--watch", arguments->watch, "Repeat every TIME", std::chrono::days(1));
  add_number(command, "--times", arguments->times, "With --watch: stop after N", std::uint64_t{1});
  let_need(command, "--times", "--watch");
  add_footer(command,
             "Counters are those of all clients since the store was created; with --watch also their rates.\n"
             "--json prints one object a line.\n"
             "Examples:\n"
             "  loch stat sessions\n"
             "  loch stat --watch 2s sessions\n"
             "  loch --json stat sessions | jq .totals.get_hit");
}

}  // namespace loch::cmd
