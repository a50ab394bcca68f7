// loch load: reads items from TSV or JSON Lines and stores them in batches.
//
// I1 Items are acknowledged in the order of their lines: a key that comes twice in one batch would lose that,
// so the
//    batch is stored before its second line is taken.
// I2 Every failure names the line that it is about. Of a batch at which the load ends, the first that failed
//    speaks for the others.
// I3 No store is made before a line of the file could be read, unless it has none.
#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cmd/command.h"
#include "cmd/input.h"
#include "cmd/json.h"
#include "cmd/record.h"
#include "cmd/terminal.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

constexpr std::size_t batch_items_max = 256;
constexpr std::size_t batch_bytes_max = std::size_t{4} << 20;
constexpr std::uint64_t complaints_max = 100;

struct LoadArguments {
  std::string store;
  std::string file = "-";
  std::optional<Format> format;
  std::optional<std::chrono::milliseconds> ttl;
  bool continue_on_error = false;
  bool no_create = false;
};

class Loader {
 public:
  Loader(Context& context, const LoadArguments& arguments, InputFile file, Format format)
      : context_(context),
        arguments_(arguments),
        file_(std::move(file)),
        format_(format),
        lines_(file_.descriptor(), record_line_bytes_max),
        progress_("load", file_.size_bytes(), stderr_is_terminal() && !context.globals.quiet) {}

  // Reads the first line, or the first that can be read if others are gone past, and keeps it for `run`. If
  // the load ends there, says why and gives the exit code.
  std::optional<Exit> try_first_line();
  Exit run(Store& store);

 private:
  using ReadLine = Parsed<std::optional<std::string_view>>;
  struct Line {
    Record record;
    std::uint64_t number;
  };

  ReadLine next_line();
  // Each returns whether to go on.
  bool take_line(std::string_view line);
  bool store_batch();
  bool count_results();
  // `code` is that of a line that could be read, and not stored.
  bool count_failure(std::uint64_t line_number, std::string_view text,
                     std::optional<Errc> code = std::nullopt);
  void complain_of_line(std::uint64_t line_number, std::string_view text, std::optional<Errc> code);
  void complain_of_end(std::size_t first, std::size_t failures);
  [[nodiscard]] bool ends_load(const Error& error) const;
  void fail_input(std::string_view text);
  Exit finish();

  Context& context_;
  const LoadArguments& arguments_;
  Store* store_ = nullptr;  // from `run` on
  InputFile file_;
  Format format_;
  LineReader lines_;
  std::optional<ReadLine> first_line_;  // not taken yet
  Progress progress_;
  std::vector<Line> batch_;
  std::unordered_set<std::string_view> batch_keys_;  // views into batch_
  std::size_t batch_bytes_ = 0;
  std::vector<Assignment> assignments_;
  std::uint64_t loaded_ = 0;
  std::uint64_t failed_ = 0;
  std::size_t without_room_ = 0;  // lines that failed so, in a row, in whole batches
  bool input_failed_ = false;
};

void Loader::complain_of_line(std::uint64_t line_number, std::string_view text, std::optional<Errc> code) {
  progress_.erase();
  context_.complain(Exit::failed, fmt::format("{}, line {}: {}", file_.name(), line_number, text), code);
}

bool Loader::count_failure(std::uint64_t line_number, std::string_view text, std::optional<Errc> code) {
  ++failed_;
  if (failed_ <= complaints_max) complain_of_line(line_number, text, code);
  if (failed_ == complaints_max && arguments_.continue_on_error) {
    context_.complain(Exit::failed, "further errors are only counted");
  }
  return arguments_.continue_on_error;
}

// Told to go on it does so, unless that is no fault of the line: every further batch would fail, or wait, as
// this one did.
bool Loader::ends_load(const Error& error) const {
  if (!arguments_.continue_on_error) return true;
  switch (error.code) {
    case Errc::unavailable:
    case Errc::permission:
      return true;
    case Errc::timed_out:
      return !is_of_this_host(arguments_.store);
    case Errc::no_space:  // a shorter value may find room where a long one did not
      return without_room_ >= batch_items_max;
    default:
      return false;
  }
}

// Of the batch, `failures` lines failed in a way that ends the load, the first of them at `first`.
void Loader::complain_of_end(std::size_t first, std::size_t failures) {
  const Error& error = assignments_[first].result.error();
  complain_of_line(batch_[first].number, what_is_wrong(error), error.code);
  if (failures > 1) {
    context_.complain(Exit::failed, fmt::format("with it {} up to line {} could not be stored",
                                                how_many(failures - 1, "item"), batch_.back().number));
  }
  if (arguments_.continue_on_error) {
    context_.complain(Exit::failed, fmt::format("the load ends at line {}, since this is no fault of a line",
                                                batch_.back().number));
  }
}

bool Loader::count_results() {
  const bool had_room = std::ranges::any_of(assignments_, [](const Assignment& each) {
    return each.result || each.result.error().code != Errc::no_space;
  });
  without_room_ = had_room ? 0 : without_room_ + batch_.size();
  std::optional<std::size_t> first;
  std::size_t failures = 0;
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    const auto& result = assignments_[i].result;
    if (result) {
      ++loaded_;
    } else if (!ends_load(result.error())) {
      count_failure(batch_[i].number, what_is_wrong(result.error()), result.error().code);
    } else {
      if (!first) first = i;
      ++failures;
    }
  }
  failed_ += failures;
  if (first) complain_of_end(*first, failures);
  return !first;
}

bool Loader::store_batch() {
  assignments_.clear();
  for (const Line& line : batch_) {
    const auto ttl = line.record.time_to_live ? line.record.time_to_live : arguments_.ttl;
    assignments_.push_back(
        {.key = line.record.key, .value = line.record.value, .options = {.time_to_live = ttl}});
  }
  store_->multi_put(assignments_);
  const bool go_on = count_results();
  batch_keys_.clear();
  batch_.clear();
  batch_bytes_ = 0;
  progress_.update(file_.size_bytes() ? lines_.bytes_taken() : loaded_, loaded_);
  return go_on;
}

bool Loader::take_line(std::string_view line) {
  if (line.empty()) return true;
  auto record = parse_record(format_, line);
  if (!record) {
    if (!store_batch()) return false;  // what stood before it is stored first
    return count_failure(lines_.line_number(), record.error());
  }
  if (batch_keys_.contains(record->key) && !store_batch()) return false;
  batch_bytes_ += record->key.size() + record->value.size();
  batch_.push_back({.record = std::move(*record), .number = lines_.line_number()});
  batch_keys_.insert(batch_.back().record.key);
  if (batch_.size() < batch_items_max && batch_bytes_ < batch_bytes_max) return true;
  return store_batch();
}

void Loader::fail_input(std::string_view text) {
  input_failed_ = true;
  progress_.erase();
  context_.complain(Exit::failed, fmt::format("{}: {}", file_.name(), text));
}

std::optional<Exit> Loader::try_first_line() {
  while (true) {
    first_line_ = lines_.next();
    const ReadLine& line = *first_line_;
    if (!line) {
      fail_input(line.error());
      return finish();
    }
    if (!*line) break;
    if ((*line)->empty()) continue;
    const auto record = parse_record(format_, **line);
    if (record) return std::nullopt;
    if (!count_failure(lines_.line_number(), record.error())) return finish();
  }
  if (failed_ > 0) return finish();
  return std::nullopt;  // an empty file, as a dump of an empty store is
}

Loader::ReadLine Loader::next_line() {
  if (!first_line_) return lines_.next();
  return *std::exchange(first_line_, std::nullopt);
}

Exit Loader::run(Store& store) {
  store_ = &store;
  batch_.reserve(batch_items_max);  // batch_keys_ views into it
  bool go_on = true;
  while (go_on && !interrupted()) {
    if (!lines_.line_ready() && !batch_.empty()) {  // the writer of a pipe may let us wait
      go_on = store_batch();
      continue;
    }
    const auto line = next_line();
    if (!line && interrupted()) break;
    if (!line) {
      fail_input(line.error());
      break;
    }
    if (!*line) break;
    go_on = take_line(**line);
  }
  if (go_on && !batch_.empty()) store_batch();
  return finish();
}

Exit Loader::finish() {
  progress_.erase();
  if (context_.globals.json) {
    context_.print_json(Json{{"loaded", loaded_}, {"failed", failed_}, {"lines", lines_.line_number()}});
  } else if (failed_ > 0 || input_failed_) {
    context_.note(fmt::format("{} loaded, {} failed, {} read", how_many(loaded_, "item"),
                              human_count(failed_), how_many(lines_.line_number(), "line")));
  } else {
    context_.note(fmt::format("{} loaded", how_many(loaded_, "item")));
  }
  return failed_ > 0 || input_failed_ ? Exit::failed : Exit::ok;
}

Exit run_load(Context& context, const LoadArguments& arguments) {
  auto file = InputFile::open(arguments.file);
  if (!file) return context.complain(Exit::cannot_open, file.error());
  const Format format = arguments.format.value_or(format_of_file(arguments.file));
  Loader loader(context, arguments, std::move(*file), format);
  auto store = arguments.no_create ? context.open(arguments.store, Work::batch)
                                   : context.open_or_create(arguments.store, Work::batch,
                                                            [&loader] { return loader.try_first_line(); });
  if (!store) return store.error();
  watch_for_interrupts();
  return loader.run(*store);
}

}  // namespace

void add_load(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<LoadArguments>();
  CLI::App& command =
      add_command(app, context, "load", "Store the items of a TSV or JSON Lines file", arguments, run_load);
  add_store(command, arguments->store);
  add_optional_path(command, "FILE", arguments->file, "Where from (default: standard input)");
  add_format(command, arguments->format);
  add_duration(command, "--ttl", arguments->ttl, "Time to live for items without one, such as 30s, 5m, 2h");
  add_flag(command, "--continue-on-error", arguments->continue_on_error,
           "Continue past lines that fail, unless all that follow would, too; still exits with 1");
  add_no_create(command, arguments->no_create);
  add_footer(
      command,
      "Without --format the file's name says it (.jsonl, .ndjson, .json: JSON Lines; else TSV).\n"
      "TSV: KEY<TAB>VALUE[<TAB>TTL_MS], with \\t \\n \\r \\\\ \\xHH for those bytes.\n"
      "JSON Lines: {\"key\":\"k\",\"value\":\"v\",\"ttl_ms\":5000}; key_base64 and value_base64 for other "
      "bytes.\n"
      "Empty lines are skipped. Without --continue-on-error it stops at the first error; what was stored "
      "stays.\n"
      "Lines are stored 256 at a time, so later lines may be stored although an earlier one failed.\n"
      "With it, it stops where no line could be stored any more: the host is unreachable, the store may "
      "only\n"
      "be read, or 256 lines in a row have found it full.\n"
      "Examples:\n"
      "  loch load sessions sessions.tsv\n"
      "  zstdcat sessions.jsonl.zst | loch load --format jsonl sessions\n"
      "  loch load --ttl 1h --continue-on-error sessions today.tsv");
}

}  // namespace loch::cmd
