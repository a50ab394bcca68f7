// loch touch, loch incr: change an item that is there by what it is.
#include <charconv>
#include <cstdint>

#include "cmd/command.h"
#include "cmd/json.h"

namespace loch::cmd {
namespace {

using std::chrono::milliseconds;

struct TouchArguments {
  std::string store;
  std::string key;
  std::optional<milliseconds> ttl;
  bool persist = false;
  Encoding encoding;
};

Exit run_touch(Context& context, const TouchArguments& arguments) {
  if (arguments.ttl.has_value() == arguments.persist)
    return context.complain(Exit::usage, "give either --ttl or --persist");
  const auto key = arguments.encoding.key(arguments.key);
  if (!key) return context.complain(Exit::usage, key.error());
  auto store = context.open(arguments.store, Work::point);
  if (!store) return store.error();
  const auto touched = store->touch(*key, {.time_to_live = arguments.ttl});
  if (!touched) return context.report_of_key(arguments.store, *key, touched.error());
  if (context.globals.json) {
    Json fields = Json::object();
    if (arguments.ttl) fields["ttl_ms"] = arguments.ttl->count();
    context.print_written(*key, fields, *touched);
  }
  return Exit::ok;
}

struct IncrArguments {
  std::string store;
  std::string key;
  std::optional<std::int64_t> by;
  std::optional<milliseconds> ttl;
  bool no_create = false;
  Encoding encoding;
};

Parsed<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t number = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, number);
  if (error != std::errc{} || rest != end) {
    return std::unexpected(
        fmt::format("'{}' is no whole number of 64 bits with its sign, in decimal", escaped(text)));
  }
  return number;
}

// What a counter is that was `value`, or not there.
Parsed<std::int64_t> incremented(std::optional<std::string_view> value, std::int64_t by) {
  if (!value) return by;
  constexpr std::size_t shown = 32;
  if (value->size() > shown) return parse_integer(std::string(value->substr(0, shown)) + "...");
  const auto number = parse_integer(*value);
  if (!number) return number;
  std::int64_t sum = 0;
  if (__builtin_add_overflow(*number, by, &sum))
    return std::unexpected(fmt::format("{} and {} make more than 64 bits hold", *number, by));
  return sum;
}

struct Counted {
  Parsed<std::int64_t> number;  // or why it is none
  Version version;
};

Result<Counted> add(Store& store, std::string_view key, const IncrArguments& arguments) {
  Counted counter;
  const auto sum_of = [&](std::optional<std::string_view> value) -> std::optional<std::string> {
    counter.number = incremented(value, arguments.by.value_or(1));
    if (!counter.number) return std::nullopt;
    return std::to_string(*counter.number);
  };
  const auto stored = store.update(key, sum_of, {.time_to_live = arguments.ttl});
  if (!stored) return std::unexpected(stored.error());
  counter.version = *stored;
  return counter;
}

Exit run_incr(Context& context, const IncrArguments& arguments) {
  const auto key = arguments.encoding.key_to_store(arguments.key);
  if (!key) return context.complain(Exit::usage, key.error());
  auto store = arguments.no_create ? context.open(arguments.store, Work::point)
                                   : context.open_or_create(arguments.store, Work::point);
  if (!store) return store.error();
  const auto counter = add(*store, *key, arguments);
  if (!counter) return context.report(counter.error());
  if (!counter->number) return context.complain(Exit::failed, "the value: " + counter->number.error());
  if (context.globals.json) {
    context.print_written(*key, {{"value", std::to_string(*counter->number)}}, counter->version);
  } else {
    context.out.write(std::to_string(*counter->number) + "\n");
  }
  return Exit::ok;
}

}  // namespace

void add_touch(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<TouchArguments>();
  CLI::App& command = add_command(app, context, "touch", "Set how long an item lives", arguments, run_touch);
  add_store(command, arguments->store);
  add_key(command, arguments->key);
  add_duration(command, "--ttl", arguments->ttl, "Time to live from now on, such as 500ms, 30s, 5m, 2h, 7d");
  add_flag(command, "--persist", arguments->persist, "It lives until it is removed");
  arguments->encoding.add_to(command, false);
  add_footer(command,
             "The value stays as it is; the version changes. Exit code 4 if there is no such key.\n"
             "Examples:\n"
             "  loch touch sessions user:17 --ttl 30m\n"
             "  loch touch sessions user:17 --persist");
}

void add_incr(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<IncrArguments>();
  CLI::App& command =
      add_command(app, context, "incr", "Add to a counter, and print it", arguments, run_incr);
  add_store(command, arguments->store);
  add_key(command, arguments->key);
  add_parsed(command, "--by", arguments->by, "How much to add (default: 1)", "N", parse_integer);
  add_duration(command, "--ttl", arguments->ttl,
               "Time to live of a counter that begins; one that is there keeps its own");
  add_no_create(command, arguments->no_create);
  arguments->encoding.add_to(command, false);
  add_footer(command,
             "The value is a whole number in decimal; a key that is not there counts as 0. --json prints it\n"
             "as text, as get does: it may have more digits than a number of JSON keeps.\n"
             "Examples:\n"
             "  loch incr sessions visits\n"
             "  loch incr sessions stock:17 --by -3\n"
             "  loch incr limits user:17 --ttl 1m     (how often within a minute from the first time on)");
}

}  // namespace loch::cmd
