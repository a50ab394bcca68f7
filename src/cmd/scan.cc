// loch scan-all, loch dump, loch count: walk all items.
#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "cmd/command.h"
#include "cmd/json.h"
#include "cmd/record.h"
#include "cmd/terminal.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

struct ScanArguments {
  std::string store;
  std::string file = "-";
  std::optional<Format> format;
  std::optional<std::uint64_t> limit;
  bool keys_only = false;
};

struct Walked {
  std::uint64_t items = 0;
  std::uint64_t bytes = 0;
  std::uint64_t damaged = 0;  // that were left out
};

// Writes the items to `out` until the limit, a failed write or an interrupt.
Result<Walked> walk(Store& store, const ScanArguments& arguments, Format format, Output& out,
                    Progress& progress) {
  Walked walked;
  std::string line;
  if (arguments.limit == 0) return walked;
  const auto damaged_items = [&store] { return store.stats()[Counter::corrupt_items]; };
  const std::uint64_t damaged_before = damaged_items();
  const auto result = store.for_each([&](const Entry& entry) {
    line.clear();
    if (arguments.keys_only) {
      append_key(line, format, entry.key);
    } else {
      append_record(line, format, entry.key, entry.value, entry.time_to_live);
    }
    walked.items += 1;
    walked.bytes += line.size();
    progress.update(walked.items, walked.items);
    return out.write(line) && !interrupted() && (!arguments.limit || walked.items < *arguments.limit);
  });
  out.flush();
  if (!result) return std::unexpected(result.error());
  walked.damaged = damaged_items() - damaged_before;
  return walked;
}

// How a walk that came to its end ended.
Exit report_damage(const Context& context, const Walked& walked) {
  if (walked.damaged == 0) return Exit::ok;
  return context.complain(
      Exit::failed,
      fmt::format("{} damaged items were left out; `loch check` tells which", human_count(walked.damaged)));
}

Exit run_scan(Context& context, const ScanArguments& arguments) {
  auto store = context.open(arguments.store, Work::walk);
  if (!store) return store.error();
  const Format format = arguments.format.value_or(context.globals.json ? Format::jsonl : Format::tsv);
  watch_for_interrupts();
  Progress progress("scan", std::nullopt, false);
  const auto walked = walk(*store, arguments, format, context.out, progress);
  if (!walked) return context.report(walked.error());
  if (interrupted()) end_by_interrupt();
  return report_damage(context, *walked);
}

void print_summary(Context& context, const Walked& walked, bool to_stdout) {
  if (context.globals.json && !to_stdout) {
    context.print_json(Json{{"items", walked.items}, {"bytes", walked.bytes}});
  } else {
    context.note(fmt::format("{} items, {}", human_count(walked.items), human_bytes(walked.bytes)));
  }
}

Exit dump_to_file(Context& context, const ScanArguments& arguments, Store& store, Format format,
                  Progress& progress) {
  auto file = WholeFile::create(arguments.file);
  if (!file) return context.complain(Exit::failed, file.error());
  Output out(file->descriptor());
  const auto walked = walk(store, arguments, format, out, progress);
  progress.erase();
  if (!walked) return context.report(walked.error());
  if (!out.good()) {
    return context.complain(Exit::failed,
                            fmt::format("cannot write {}: {}", arguments.file, std::strerror(out.error())));
  }
  if (interrupted()) return Exit::failed;
  const auto published = file->publish();
  if (!published) return context.complain(Exit::failed, published.error());
  print_summary(context, *walked, false);
  return report_damage(context, *walked);
}

Exit run_dump(Context& context, const ScanArguments& arguments) {
  auto store = context.open(arguments.store, Work::walk);
  if (!store) return store.error();
  const bool to_stdout = arguments.file == "-";
  const Format by_name = to_stdout && context.globals.json ? Format::jsonl : format_of_file(arguments.file);
  const Format format = arguments.format.value_or(by_name);
  // On a terminal the items themselves show how far it is.
  const bool shown =
      stderr_is_terminal() && !context.globals.quiet && !(to_stdout && ::isatty(STDOUT_FILENO) == 1);
  std::optional<std::uint64_t> total;
  if (shown) {
    const auto count = store->count();
    if (count) total = *count;
  }
  watch_for_interrupts();
  Progress progress("dump", total, shown);
  Exit exit = Exit::ok;
  if (to_stdout) {
    const auto walked = walk(*store, arguments, format, context.out, progress);
    progress.erase();
    if (!walked) return context.report(walked.error());
    if (context.out.good()) print_summary(context, *walked, true);
    exit = report_damage(context, *walked);
  } else {
    exit = dump_to_file(context, arguments, *store, format, progress);
  }
  if (interrupted()) end_by_interrupt();
  return exit;
}

Exit run_count(Context& context, const std::string& store_name) {
  auto store = context.open(store_name, Work::walk);
  if (!store) return store.error();
  const auto count = store->count();
  if (!count) return context.report(count.error());
  if (context.globals.json) {
    context.print_json(Json{{"count", *count}});
  } else {
    context.out.write(fmt::format("{}\n", *count));
  }
  return Exit::ok;
}

}  // namespace

void add_scan_all(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ScanArguments>();
  CLI::App* command = app.add_subcommand("scan-all", "Print all items, in no order");
  add_store(*command, arguments->store);
  command->add_flag("-k,--keys", arguments->keys_only, "Print the keys only");
  command->add_option("-n,--limit", arguments->limit, "Stop after this many items")
      ->type_name("N")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 60));
  add_format(*command, arguments->format);
  command->footer(
      "A line an item: KEY<TAB>VALUE[<TAB>TTL_MS] with \\t \\n \\r \\\\ \\xHH for those bytes; with --json "
      "or\n"
      "--format jsonl {\"key\":...,\"value\":...,\"ttl_ms\":...}, where bytes that are not UTF-8 stand in\n"
      "key_base64 and value_base64. A key that others change meanwhile may appear more than once.\n"
      "Examples:\n"
      "  loch scan-all sessions | head\n"
      "  loch scan-all --keys --limit 100 sessions\n"
      "  loch --json scan-all sessions | jq -r .key");
  command->callback([arguments, &context] {
    context.run = [arguments, &context] { return run_scan(context, *arguments); };
  });
}

void add_dump(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ScanArguments>();
  CLI::App* command = app.add_subcommand("dump", "Write all items to a file, as load reads them");
  add_store(*command, arguments->store);
  command->add_option("FILE", arguments->file, "Where to; standard output unless told")->type_name("");
  add_format(*command, arguments->format);
  command->footer(
      "The format follows the file's name (.jsonl, .ndjson, .json: JSON Lines; else TSV) unless told.\n"
      "The file takes its name only when it is whole.\n"
      "Examples:\n"
      "  loch dump sessions sessions.tsv\n"
      "  loch dump sessions | zstd > sessions.tsv.zst\n"
      "  loch dump --format jsonl sessions | loch load --format jsonl copy");
  command->callback([arguments, &context] {
    context.run = [arguments, &context] { return run_dump(context, *arguments); };
  });
}

void add_count(CLI::App& app, Context& context) {
  auto store = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("count", "Print how many items there are");
  add_store(*command, *store);
  command->footer("Exact while nobody writes.\nExample:\n  loch count sessions");
  command->callback(
      [store, &context] { context.run = [store, &context] { return run_count(context, *store); }; });
}

}  // namespace loch::cmd
