#include "cmd/command.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <utility>

#include "cmd/json.h"
#include "cmd/terminal.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

constexpr std::chrono::milliseconds point_timeout = std::chrono::seconds(5);
constexpr std::chrono::milliseconds batch_timeout = std::chrono::seconds(30);
constexpr std::chrono::milliseconds walk_timeout = std::chrono::hours(1);
constexpr std::chrono::milliseconds answer_timeout = std::chrono::minutes(2);

void print_stderr(std::string_view text) {
  Output out(STDERR_FILENO);
  out.write(text);
  out.write("\n");
  out.flush();
}

Parsed<Version> parse_version(std::string_view text) {
  Version version;
  const bool prefixed = text.starts_with("0x");
  const std::string_view digits = text.substr(prefixed ? 2 : 0);
  const char* const begin = digits.data();
  const char* const end = begin + digits.size();
  const auto [rest, error] = std::from_chars(begin, end, version.token, prefixed ? 16 : 10);
  if (error != std::errc{} || rest != end)
    return std::unexpected(fmt::format("'{}' is no version as `loch get --json` prints it", escaped(text)));
  return version;
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::chrono::milliseconds timeout_of(Work work) {
  switch (work) {
    case Work::point:
      return point_timeout;
    case Work::batch:
      return batch_timeout;
    case Work::walk:
      return walk_timeout;
  }
  return point_timeout;
}

// What helps whoever could not open the store; empty if nothing more is known.
const char* hint_about(const std::string& store_name, const Error& error) {
  if (error.code == Errc::not_found && is_of_this_host(store_name))
    return " (`loch ls` lists the stores, `loch create` makes one)";
  if (error.code == Errc::invalid_argument && error.detail.contains("the cluster has no node"))
    return " (and local, spread and by-key, which are no nodes)";
  return "";
}

// Whether the detail of an Error says what its code does.
bool is_said_by_detail(Errc code) {
  switch (code) {
    case Errc::not_found:
    case Errc::exists:
    case Errc::changed:
    case Errc::invalid_argument:
    case Errc::permission:
    case Errc::io:
      return true;
    default:
      return false;
  }
}

struct FarOption {
  const char* name;
  const char* variable;
  std::string Globals::* value;
};
// What is about other hosts alone.
constexpr std::array<FarOption, 6> far_options{
    {{"--from", "LOCH_FROM", &Globals::source_address},
     {"--placement", "LOCH_PLACEMENT", &Globals::placement},
     {"--key-file", "LOCH_KEY_FILE", &Globals::key_file},
     {"--tls-authority", "LOCH_TLS_AUTHORITY", &Globals::tls_authority},
     {"--tls-certificate", "LOCH_TLS_CERTIFICATE", &Globals::tls_certificate},
     {"--tls-key", "LOCH_TLS_KEY", &Globals::tls_key}}};

// For CLI11: what is wrong with a path, if anything.
std::string complaint_about_path(const std::string& path) { return path.empty() ? "the name is empty" : ""; }

}  // namespace

std::string store_url(std::string_view store_name) {
  if (store_name.find("://") != std::string_view::npos) return std::string(store_name);
  return "shm://" + std::string(store_name);
}

bool is_of_this_host(std::string_view store_name) { return store_url(store_name).starts_with("shm://"); }

std::string_view last_part(std::string_view store_name) {
  return store_name.substr(store_name.rfind('/') + 1);
}

bool is_no_store(const Error& error) {
  return error.code == Errc::not_found && error.detail.contains("there is no store");
}

std::string what_is_wrong(const Error& error) {
  if (error.detail.empty()) {  // what a condition of put makes of it speaks for itself
    switch (error.code) {
      case Errc::exists:
        return "the key is there already (without --if-absent it is replaced)";
      case Errc::changed:
        return "another version is stored now; read it again with `loch get --json` and retry";
      default:
        return std::string(name(error.code));
    }
  }
  return is_said_by_detail(error.code) ? error.detail : fmt::format("{}: {}", name(error.code), error.detail);
}

Exit exit_of(Errc code) {
  switch (code) {
    case Errc::not_found:
      return Exit::not_found;
    case Errc::invalid_argument:
      return Exit::usage;
    case Errc::exists:
    case Errc::changed:
      return Exit::refused;
    default:
      return Exit::failed;
  }
}

Options Context::options(Work work) const {
  Options options;
  options.directory = globals.directory;
  options.source_address = globals.source_address;
  options.key_file = globals.key_file;
  options.read_only = globals.read_only;
  options.tls_authority = globals.tls_authority;
  options.tls_certificate = globals.tls_certificate;
  options.tls_key = globals.tls_key;
  options.timeout = globals.timeout.value_or(timeout_of(work));
  if (globals.placement == "spread") {
    options.placement = Placement::spread;
  } else if (globals.placement == "by-key") {
    options.placement = Placement::by_key;
  } else if (!globals.placement.empty() && globals.placement != "local") {
    options.placement = Placement::node;
    options.placement_node = globals.placement;
  }
  return options;
}

// The environment is for all stores, so what stands there may be of no use here.
std::optional<Exit> Context::refuse_far_options(std::string_view why) const {
  for (const auto& [option, variable, member] : far_options) {
    const std::string& value = globals.*member;
    const char* inherited = std::getenv(variable);
    if (!value.empty() && (inherited == nullptr || value != inherited))
      return complain(Exit::usage, fmt::format("{} is for stores of other hosts, and {}", option, why));
  }
  return std::nullopt;
}

std::optional<Exit> Context::check_options(const std::string& store_name) const {
  if (is_of_this_host(store_name))
    return refuse_far_options(fmt::format("'{}' is on this one", escaped(store_name)));
  for (const auto& [option, variable, member] : far_options) {
    const std::string& value = globals.*member;
    const bool is_file = member != &Globals::source_address && member != &Globals::placement;
    if (!value.empty() && is_file && ::access(value.c_str(), R_OK) != 0) {
      return complain(Exit::cannot_open,
                      fmt::format("{}: cannot open {}: {}", option, escaped(value), std::strerror(errno)));
    }
  }
  return std::nullopt;
}

std::expected<Store, Exit> Context::open(const std::string& store_name, Work work, Options::Mode mode) const {
  if (const auto refused = check_options(store_name)) return std::unexpected(*refused);
  Options wanted = options(work);
  wanted.mode = mode;
  auto store = Store::open(store_url(store_name), wanted);
  if (store) return std::move(*store);
  return std::unexpected(complain_of_store(store_name, store.error()));
}

std::expected<Store, Exit> Context::open_or_create(
    const std::string& store_name, Work work, const std::function<std::optional<Exit>()>& may_create) const {
  if (const auto refused = check_options(store_name)) return std::unexpected(*refused);
  Options wanted = options(work);
  wanted.mode = Options::Mode::attach;
  std::optional<Error> why_not;
  {
    auto attached = Store::open(store_url(store_name), wanted);
    if (attached && !is_of_this_host(store_name)) return std::move(*attached);
    if (!attached) why_not = std::move(attached.error());
  }
  // Not every store that takes the place of one to be created.
  if (!why_not) return open(store_name, work, Options::Mode::attach_or_create);
  Error& error = *why_not;
  if (error.code != Errc::not_found || !is_of_this_host(store_name)) {
    if (is_no_store(error)) {
      error.detail += fmt::format("; on another host {} makes none: `loch create {}` there does", command,
                                  escaped(last_part(store_name)));
    }
    return std::unexpected(complain_of_store(store_name, error));
  }
  if (const auto refused = may_create()) return std::unexpected(*refused);
  auto created = open(store_name, work, Options::Mode::attach_or_create);
  if (created) note(fmt::format("created store '{}'", escaped(store_name)));
  return created;
}

Exit Context::complain_of_store(const std::string& store_name, const Error& error) const {
  const Exit exit = error.code == Errc::invalid_argument ? Exit::usage : Exit::cannot_open;
  return complain(exit,
                  fmt::format("cannot open store '{}': {}{}", escaped(store_name), what_is_wrong(error),
                              hint_about(store_name, error)),
                  error.code);
}

Exit Context::complain(Exit exit, std::string_view text, std::optional<Errc> code) const {
  if (globals.json) {
    Json error{{"command", command}, {"exit", static_cast<int>(exit)}};
    if (code) error["code"] = name(*code);
    error["text"] = text;
    print_stderr(text_of(Json{{"error", std::move(error)}}));
    return exit;
  }
  print_stderr(fmt::format("loch: {}{}{}", command, command.empty() ? "" : ": ", text));
  return exit;
}

Exit Context::report(const Error& error) const {
  return complain(exit_of(error.code), what_is_wrong(error), error.code);
}

Exit Context::report_of_key(const std::string& store_name, std::string_view key, const Error& error) const {
  // With a detail it is a file that is not there.
  if (error.code != Errc::not_found || !error.detail.empty()) return report(error);
  if (globals.quiet) return Exit::not_found;
  return complain(Exit::not_found,
                  fmt::format("no such key '{}' in store '{}'", escaped(key), escaped(store_name)),
                  error.code);
}

void Context::note(std::string_view text) const {
  if (globals.quiet) return;
  print_stderr(globals.json ? text_of(Json{{"note", {{"command", command}, {"text", text}}}})
                            : std::string(text));
}

Exit Context::confirm(const std::function<std::string()>& question) const {
  if (globals.yes) return Exit::ok;
  if (::isatty(STDIN_FILENO) != 1) {
    return complain(Exit::usage, "this cannot be undone; say --yes where there is no terminal to ask on");
  }
  const auto answer = ask(question(), answer_timeout);
  if (!answer) return complain(Exit::failed, answer.error() + "; nothing was changed");
  if (!*answer) return complain(Exit::failed, "nothing was changed");
  return Exit::ok;
}

void Context::print_json(const Json& json) {
  out.write(text_of(json));
  out.write("\n");
}

void Context::print_written(std::string_view key, const Json& fields, Version version) {
  Json json;
  set_bytes(json, "key", key);
  json.update(fields);
  json["version"] = version_text(version);
  print_json(json);
}

CLI::App& add_command(CLI::App& app, Context& context, const char* name, const char* what,
                      std::function<Exit()> run) {
  CLI::App& command = *app.add_subcommand(name, what);
  command.callback([run = std::move(run), &context] { context.run = run; });
  return command;
}

CLI::App& add_foreign_command(CLI::App& app, Context& context, const char* name, const char* what,
                              Exit (*run)(Context&, std::vector<std::string> arguments)) {
  CLI::App& command = *app.add_subcommand(name, what);
  command.fallthrough(false)->prefix_command()->set_help_flag();
  command.callback([&command, run, &context] {
    context.run = [&command, run, &context] { return run(context, command.remaining()); };
  });
  return command;
}

CLI::App& add_group(CLI::App& app, const char* name, const char* what) {
  return *app.add_subcommand(name, what)->require_subcommand(1);
}

void add_footer(CLI::App& command, std::string_view text) {
  command.footer(
      fmt::format("{}\nOptions of all commands (--json, --timeout, --key-file, ...): loch --help", text));
}

void add_argument(CLI::App& command, const char* name, std::string& into, const char* what) {
  command.add_option(name, into, what)->required()->type_name("");
}

void add_arguments(CLI::App& command, const char* name, std::vector<std::string>& into, const char* what) {
  command.add_option(name, into, what)->required()->type_name("");
}

void add_optional_argument(CLI::App& command, const char* name, std::string& into, const char* what) {
  command.add_option(name, into, what)->type_name("");
}

void add_optional_argument(CLI::App& command, const char* name, std::optional<std::string>& into,
                           const char* what) {
  command.add_option(name, into, what)->type_name("");
}

void add_optional_path(CLI::App& command, const char* name, std::string& into, const char* what) {
  command.add_option(name, into, what)->type_name("")->check(complaint_about_path);
}

void add_flag(CLI::App& command, const char* flags, bool& into, const char* what) {
  command.add_flag(flags, into, what);
}

void add_text(CLI::App& command, const char* flags, std::optional<std::string>& into, const char* what,
              const char* type_name) {
  command.add_option(flags, into, what)->type_name(type_name);
}

void add_text(CLI::App& command, const char* flags, std::string& into, const char* what,
              const char* type_name, const char* variable) {
  command.add_option(flags, into, what)->type_name(type_name)->envname(variable);
}

void add_path(CLI::App& command, const char* flags, std::optional<std::string>& into, const char* what,
              const char* type_name) {
  command.add_option(flags, into, what)->type_name(type_name)->check(complaint_about_path);
}

void add_path(CLI::App& command, const char* flags, std::string& into, const char* what,
              const char* type_name, const char* variable) {
  command.add_option(flags, into, what)->type_name(type_name)->envname(variable)->check(complaint_about_path);
}

template <class Number>
void add_number(CLI::App& command, const char* flags, std::optional<Number>& into, const char* what,
                Number least, Number most, const char* type_name) {
  // Without the description of its own, which would stand in --help among the names.
  command.add_option(flags, into, what)->type_name(type_name)->check(CLI::Range(least, most).description(""));
}
template void add_number(CLI::App&, const char*, std::optional<std::uint32_t>&, const char*, std::uint32_t,
                         std::uint32_t, const char*);
template void add_number(CLI::App&, const char*, std::optional<std::uint64_t>&, const char*, std::uint64_t,
                         std::uint64_t, const char*);
template void add_number(CLI::App&, const char*, std::optional<double>&, const char*, double, double,
                         const char*);

void add_parsed(CLI::App& command, const char* flags, const char* what, const char* type_name,
                std::function<Parsed<void>(const std::string&)> parse) {
  const auto read = [flags, parse = std::move(parse)](const CLI::results_t& arguments) {
    const Parsed<void> parsed = parse(arguments.back());
    if (!parsed) throw CLI::ValidationError(flags, parsed.error());
    return true;
  };
  command.add_option(flags, read, what)->type_name(type_name);
}

void let_need(CLI::App& command, const char* option, const char* other) {
  command.get_option(option)->needs(command.get_option(other));
}

void let_exclude(CLI::App& command, const char* option, const char* other) {
  command.get_option(option)->excludes(command.get_option(other));
}

void add_store(CLI::App& command, std::string& store_name) {
  add_argument(command, "STORE", store_name,
               "A name, or shm://, tcp:// or verbs:// and where it is; loch --help says more");
}

void add_key(CLI::App& command, std::string& key) { add_argument(command, "KEY", key, "The key"); }

void add_duration(CLI::App& command, const char* flags, std::optional<std::chrono::milliseconds>& into,
                  const char* what, std::chrono::milliseconds most) {
  const auto parse = [most](const std::string& text) -> Parsed<std::chrono::milliseconds> {
    auto duration = parse_duration(text);
    if (duration && duration->count() <= 0) return std::unexpected(fmt::format("'{}' is not above 0", text));
    if (duration && *duration > most)
      return std::unexpected(fmt::format("'{}' is longer than {}", text, human_duration(most)));
    return duration;
  };
  add_parsed(command, flags, into, what, "TIME", parse);
}

void add_bytes(CLI::App& command, const char* flags, std::optional<std::uint64_t>& into, const char* what) {
  add_parsed(command, flags, into, what, "BYTES", parse_bytes);
}

void add_format(CLI::App& command, std::optional<Format>& into) {
  add_parsed(command, "--format", into, "tsv or jsonl (JSON Lines)", "FORMAT", parse_format);
}

void add_no_create(CLI::App& command, bool& into) {
  add_flag(command, "--no-create", into,
           "Fail (3) if the store does not exist; also accept a store that another user made");
}

void add_version(CLI::App& command, const char* flags, std::optional<Version>& into, const char* what) {
  add_parsed(command, flags, into, what, "VERSION", parse_version);
}

void Encoding::add_to(CLI::App& command, bool with_value) {
  if (!with_value) {
    add_flag(command, "--hex,--hex-key", key_hex, "KEY is in hexadecimal");
    return;
  }
  add_flag(command, "--hex", both_hex, "KEY and value are in hexadecimal");
  add_flag(command, "--hex-key", key_hex, "KEY is in hexadecimal");
  add_flag(command, "--hex-value", value_hex, "The value is in hexadecimal");
}

Parsed<std::string> Encoding::key(const std::string& argument) const {
  if (!both_hex && !key_hex) return argument;
  auto bytes = from_hex(argument);
  if (!bytes) return std::unexpected("KEY: " + bytes.error());
  return bytes;
}

Parsed<std::string> Encoding::key_to_store(const std::string& argument) const {
  auto bytes = key(argument);
  if (bytes && (bytes->empty() || bytes->size() > key_bytes_max))
    return std::unexpected(fmt::format("a key has 1 to {} bytes, not {}", key_bytes_max, bytes->size()));
  return bytes;
}

Parsed<std::string> Encoding::value(const std::string& argument) const {
  if (!value_is_hex()) return argument;
  auto bytes = from_hex(argument);
  if (!bytes) return std::unexpected("VALUE: " + bytes.error());
  return bytes;
}

}  // namespace loch::cmd
