// loch put: stores one value, from the command line, a file or standard input.
#include "cmd/command.h"
#include "cmd/input.h"
#include "cmd/json.h"

namespace loch::cmd {
namespace {

struct PutArguments {
  std::string store;
  std::string key;
  std::optional<std::string> value;
  std::optional<std::string> file;
  std::optional<std::chrono::milliseconds> ttl;
  std::optional<Version> if_version;
  bool if_absent = false;
  bool no_create = false;
  Encoding encoding;
};

// Hexadecimal may end in a newline, as `loch get --hex` prints it.
std::expected<std::string, Exit> value_of_file(Context& context, const PutArguments& arguments) {
  auto file = InputFile::open(arguments.file.value_or("-"));
  if (!file) return std::unexpected(context.complain(Exit::cannot_open, file.error()));
  const bool is_hex = arguments.encoding.value_is_hex();
  auto content = file->read_all(is_hex ? 2 * value_bytes_max + 1 : value_bytes_max);
  if (!content) return std::unexpected(context.complain(Exit::failed, content.error()));
  if (!*content) {
    return std::unexpected(context.complain(
        Exit::usage,
        fmt::format("{} is longer than {} bytes, the most a value may have", file->name(), value_bytes_max)));
  }
  if (!is_hex) return std::move(**content);
  std::string& text = **content;
  if (text.ends_with('\n')) text.pop_back();
  auto bytes = from_hex(text);
  if (!bytes) return std::unexpected(context.complain(Exit::usage, file->name() + ": " + bytes.error()));
  return std::move(*bytes);
}

// The value, or the exit code after saying why there is none.
std::expected<std::string, Exit> value_of(Context& context, const PutArguments& arguments) {
  if (arguments.value.has_value() == arguments.file.has_value()) {
    return std::unexpected(context.complain(
        Exit::usage, "give the value either as VALUE ('-' for standard input) or by --file"));
  }
  if (arguments.value && *arguments.value != "-") {
    auto decoded = arguments.encoding.value(*arguments.value);
    if (!decoded) return std::unexpected(context.complain(Exit::usage, decoded.error()));
    return std::move(*decoded);
  }
  return value_of_file(context, arguments);
}

Result<Version> store_value(Store& store, const PutArguments& arguments, std::string_view key,
                            std::string_view value) {
  const PutOptions options{.time_to_live = arguments.ttl};
  if (arguments.if_version) return store.replace(key, value, *arguments.if_version, options);
  return arguments.if_absent ? store.insert(key, value, options) : store.put(key, value, options);
}

Exit run_put(Context& context, const PutArguments& arguments) {
  const auto key = arguments.encoding.key_to_store(arguments.key);
  if (!key) return context.complain(Exit::usage, key.error());
  const auto value = value_of(context, arguments);
  if (!value) return value.error();
  auto store = arguments.no_create || arguments.if_version
                   ? context.open(arguments.store, Work::point)
                   : context.open_or_create(arguments.store, Work::point);
  if (!store) return store.error();
  const auto stored = store_value(*store, arguments, *key, *value);
  if (!stored) return context.report_of_key(arguments.store, *key, stored.error());
  if (context.globals.json) context.print_written(*key, {{"value_bytes", value->size()}}, *stored);
  return Exit::ok;
}

}  // namespace

void add_put(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<PutArguments>();
  CLI::App& command = add_command(app, context, "put", "Store a value under a key", arguments, run_put);
  add_store(command, arguments->store);
  add_argument(command, "KEY", arguments->key, "The key, 1 B to 4 KiB");
  add_optional_argument(command, "VALUE", arguments->value,
                        "The value, up to 128 MiB; '-' reads standard input");
  add_path(command, "-f,--file", arguments->file, "Read the value from this file, byte for byte unless --hex",
           "FILE");
  add_duration(command, "--ttl", arguments->ttl, "Time to live, such as 500ms, 30s, 5m, 2h, 7d");
  add_flag(command, "--if-absent", arguments->if_absent, "Fail (5) if the key is there already");
  add_version(command, "--if-version", arguments->if_version,
              "Replace only this version, as `loch get --json` gave it; fail (5) if it changed");
  let_exclude(command, "--if-version", "--if-absent");
  add_no_create(command, arguments->no_create);
  arguments->encoding.add_to(command, true);
  add_footer(command,
             "Examples:\n"
             "  loch put sessions user:17 ada\n"
             "  loch put sessions user:17 --ttl 30m --file session.bin\n"
             "  tar c src | loch put builds src.tar -\n"
             "  loch put --hex sessions 00ff 68656c6c6f\n"
             "A key or value that starts with '-' goes after '--':  loch put sessions -- -key -value\n"
             "The value '-' itself comes from standard input:  printf - | loch put sessions key -");
}

}  // namespace loch::cmd
