// loch scan-all, loch dump, loch count: walk all items.
#include <cerrno>
#include <cstring>
#include <tuple>
#include <unistd.h>

#include "cmd/command.h"
#include "cmd/json.h"
#include "cmd/record.h"
#include "cmd/selection.h"
#include "cmd/terminal.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

struct ScanArguments {
  std::string store;
  Selection selection;
  std::string file = "-";
  std::optional<Format> format;
  std::optional<std::uint64_t> limit;
  bool keys_only = false;
};

struct Written {
  Walked walked;
  std::uint64_t bytes = 0;
};

// Writes the items to `out` until the limit, a failed write or an interrupt.
Result<Written> write_all(Store& store, const ScanArguments& arguments, Format format, Output& out,
                          Progress& progress) {
  std::uint64_t items = 0;
  std::uint64_t bytes = 0;
  std::string line;
  if (arguments.limit == 0) return Written{};
  // While the reader of the output lets us wait, another host is to hear of us: it would end the session, and
  // the walk with it (silence_s in lochd.toml).
  if (!is_of_this_host(arguments.store))
    out.set_meanwhile([&store] { std::ignore = store.exists("loch looks for no key"); });
  const auto walked = arguments.selection.for_each(store, [&](const Entry& entry) {
    line.clear();
    if (arguments.keys_only) {
      append_key(line, format, entry.key);
    } else {
      append_record(line, format, entry.key, entry.value, entry.time_to_live);
    }
    items += 1;
    bytes += line.size();
    progress.update(items, items);
    return out.write(line) && (!arguments.limit || items < *arguments.limit);
  });
  out.set_meanwhile(nullptr);
  out.flush();
  if (!walked) return std::unexpected(walked.error());
  return Written{.walked = *walked, .bytes = bytes};
}

// Writes the items to standard output, or to a file that takes its name when it is whole.
std::expected<Written, Exit> write_items(Context& context, Store& store, const ScanArguments& arguments,
                                         Format format, Progress& progress) {
  watch_for_interrupts();  // before there is a file, which is not to be left behind
  std::optional<WholeFile> file;
  if (arguments.file != "-") {
    auto created = WholeFile::create(arguments.file);
    if (!created && interrupted()) return std::unexpected(Exit::failed);  // it waited for a pipe's reader
    if (!created) return std::unexpected(context.complain(Exit::cannot_open, created.error()));
    file.emplace(std::move(*created));
  }
  Output file_out(file ? file->descriptor() : -1);
  Output& out = file ? file_out : context.out;
  const auto written = write_all(store, arguments, format, out, progress);
  progress.erase();
  if (!written) return std::unexpected(context.report(written.error()));
  if (interrupted()) return std::unexpected(Exit::failed);
  if (!file) return *written;
  if (!out.good()) {
    return std::unexpected(context.complain(
        Exit::failed, fmt::format("cannot write {}: {}", arguments.file, std::strerror(out.error()))));
  }
  const auto published = file->publish();
  if (!published) return std::unexpected(context.complain(Exit::failed, published.error()));
  return *written;
}

Exit run_scan(Context& context, const ScanArguments& arguments) {
  auto store = context.open(arguments.store, Work::walk);
  if (!store) return store.error();
  const Format format = arguments.format.value_or(context.globals.json ? Format::jsonl : Format::tsv);
  Progress progress("scan", std::nullopt, false);
  const auto written = write_items(context, *store, arguments, format, progress);
  return written ? report_damage(context, written->walked) : written.error();
}

Exit run_dump(Context& context, const ScanArguments& arguments) {
  auto store = context.open(arguments.store, Work::walk);
  if (!store) return store.error();
  const bool to_stdout = arguments.file == "-";
  const Format by_name = to_stdout && context.globals.json ? Format::jsonl : format_of_file(arguments.file);
  // On a terminal the items themselves show how far it is.
  const bool shown =
      stderr_is_terminal() && !context.globals.quiet && !(to_stdout && ::isatty(STDOUT_FILENO) == 1);
  std::optional<std::uint64_t> total;
  if (shown && arguments.selection.is_all()) {
    const auto count = store->count();
    if (count) total = *count;
  }
  Progress progress("dump", total, shown);
  const auto written = write_items(context, *store, arguments, arguments.format.value_or(by_name), progress);
  if (!written) return written.error();
  const auto& [walked, bytes] = *written;
  if (context.globals.json && !to_stdout) {
    context.print_json(Json{{"items", walked.items}, {"bytes", bytes}});
  } else if (context.out.good()) {
    context.note(fmt::format("{}, {}", how_many(walked.items, "item"), human_bytes(bytes)));
  }
  return report_damage(context, walked);
}

struct CountArguments {
  std::string store;
  Selection selection;
};

Exit run_count(Context& context, const CountArguments& arguments) {
  auto store = context.open(arguments.store, Work::walk);
  if (!store) return store.error();
  const auto counted = arguments.selection.count(*store);
  if (!counted) return context.report(counted.error());
  if (context.globals.json) {
    context.print_json(Json{{"count", counted->items}});
  } else {
    context.out.write(fmt::format("{}\n", counted->items));
  }
  return report_damage(context, *counted);
}

}  // namespace

void add_scan_all(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ScanArguments>();
  CLI::App& command =
      add_command(app, context, "scan-all", "Print all items, in no order", arguments, run_scan);
  add_store(command, arguments->store);
  arguments->selection.add_to(command);
  add_flag(command, "-k,--keys", arguments->keys_only, "Print the keys only");
  add_number(command, "-n,--limit", arguments->limit, "Stop after this many items");
  add_format(command, arguments->format);
  add_footer(
      command,
      "One item per line: KEY<TAB>VALUE[<TAB>TTL_MS] with \\t \\n \\r \\\\ \\xHH for those bytes; with\n"
      "--json or --format jsonl {\"key\":...,\"value\":...,\"ttl_ms\":...}, where bytes that are not UTF-8\n"
      "stand in key_base64 and value_base64. A key that others change meanwhile may appear more than once.\n"
      "Examples:\n"
      "  loch scan-all sessions | head\n"
      "  loch scan-all --keys --prefix user: --limit 100 sessions\n"
      "  loch --json scan-all sessions | jq -r .key");
}

void add_dump(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ScanArguments>();
  CLI::App& command =
      add_command(app, context, "dump", "Write all items to a file, as load reads them", arguments, run_dump);
  add_store(command, arguments->store);
  add_optional_path(command, "FILE", arguments->file, "Where to (default: standard output)");
  arguments->selection.add_to(command);
  add_format(command, arguments->format);
  add_footer(command,
             "Without --format the file's name says it (.jsonl, .ndjson, .json: JSON Lines; else TSV).\n"
             "The file takes its name only when it is whole. A new one is for its owner alone (mode 600).\n"
             "A pipe, a device, and what /dev/stdout or /dev/fd/N stands for, is written in place.\n"
             "Examples:\n"
             "  loch dump sessions sessions.tsv\n"
             "  loch dump sessions | zstd > sessions.tsv.zst\n"
             "  loch dump --format jsonl sessions | loch load --format jsonl copy");
}

void add_count(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<CountArguments>();
  CLI::App& command =
      add_command(app, context, "count", "Print how many items there are", arguments, run_count);
  add_store(command, arguments->store);
  arguments->selection.add_to(command);
  add_footer(
      command,
      "Exact while nobody writes. Damaged items, with --prefix of any key, are left out, and it fails; but\n"
      "without --prefix it does not look at the values.\n"
      "Examples:\n"
      "  loch count sessions\n"
      "  loch count --prefix user: sessions");
}

}  // namespace loch::cmd
