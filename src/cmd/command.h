// cmd/command: what the commands of `loch` share: exit codes, global options, opening a store, and how each
// command joins the program.
//
// A command is a function `add_x(CLI::App&, Context&)`: it declares its options, and what is to be done once
// the command line has been read. Everything a person reads goes to standard error, everything a program
// reads to `context.out`. Threads: one.
//
// The templates of CLI11 take the compiler longer than all the rest: command.cc and main.cc alone include it.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <loch/loch.h>

#include "cmd/encode.h"
#include "cmd/output.h"
#include "cmd/record.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace loch::cmd {

// The documented exit codes.
enum class Exit : std::uint8_t {
  ok = 0,
  failed = 1,       // the operation failed: no space, timed out, corrupt, ...
  usage = 2,        // the command line, a key or a value is not as it must be
  cannot_open = 3,  // there is no such store or file, or it cannot be opened
  not_found = 4,    // no such key (for rm: no such store)
  refused = 5,      // the key exists (--if-absent), or it changed (--if-version)
};

struct Globals {
  std::string directory = "/dev/shm";
  std::string source_address;
  std::string placement;
  std::string key_file;
  bool read_only = false;
  std::string tls_authority;
  std::string tls_certificate;
  std::string tls_key;
  std::optional<std::chrono::milliseconds> timeout;
  bool json = false;
  bool yes = false;
  bool quiet = false;
};

// What a command does, which says how long one call may take unless --timeout does.
enum class Work : std::uint8_t {
  point,  // one key: 5 seconds
  batch,  // some hundred keys: 30 seconds
  walk,   // all items: an hour
};

class Context {
 public:
  Globals globals;
  Output out{1};
  std::string command;        // the one that was chosen: "put", "cluster add"
  std::function<Exit()> run;  // what it does

  [[nodiscard]] Options options(Work work) const;

  // Opens "name", "shm://name", "shm:///folder/name", "verbs://host:port/name", "tcp://host:port/name", or
  // "tcp://host,host/name" on a cluster. Says what was wrong before it returns an Exit.
  std::expected<Store, Exit> open(const std::string& store_name, Work work,
                                  Options::Mode mode = Options::Mode::attach) const;
  // The same; creates the store if there is none on this host, and says so. Before that, `may_create` is
  // asked: an Exit of its own says no.
  std::expected<Store, Exit> open_or_create(
      const std::string& store_name, Work work,
      const std::function<std::optional<Exit>()>& may_create = [] { return std::nullopt; }) const;

  // "loch: put: ..." on standard error, or under --json {"error":{...}} with the name of `code`; returns
  // `exit`.
  Exit complain(Exit exit, std::string_view text, std::optional<Errc> code = std::nullopt) const;
  // The same about a store that cannot be opened ...
  Exit complain_of_store(const std::string& store_name, const Error& error) const;
  // ... or an Error of a call, with the exit code of its Errc ...
  [[nodiscard]] Exit report(const Error& error) const;
  // ... or of one about a key. One that is not there is no complaint under --quiet.
  [[nodiscard]] Exit report_of_key(const std::string& store_name, std::string_view key,
                                   const Error& error) const;
  // A remark on standard error, under --json {"note":{...}}; not under --quiet.
  void note(std::string_view text) const;

  // Before something that cannot be undone. Asks on a terminal; without one, --yes must have been given.
  // Exit::ok to go on; everything else has been explained. `question` is called if it is to be asked.
  [[nodiscard]] Exit confirm(const std::function<std::string()>& question) const;

  // What has to be so before a store is opened or made, and is said in the words of the options; an Exit if
  // it is not ...
  [[nodiscard]] std::optional<Exit> check_options(const std::string& store_name) const;
  // ... and where no other host is asked for anything, which `why` says.
  [[nodiscard]] std::optional<Exit> refuse_far_options(std::string_view why) const;

  // Prints a JSON document and a newline.
  void print_json(const nlohmann::ordered_json& json);
  // The same of a key that was written: it, `fields`, and the version that it has now.
  void print_written(std::string_view key, const nlohmann::ordered_json& fields, Version version);
};

// "shm://name" of what a person may write for a store.
std::string store_url(std::string_view store_name);
bool is_of_this_host(std::string_view store_name);
// What comes after its last '/': "sessions".
std::string_view last_part(std::string_view store_name);

// Whether there is no store of that name, and not only no file of one.
bool is_no_store(const Error& error);

// What an Error says to people, who know neither the calls of the library nor hashes of keys.
std::string what_is_wrong(const Error& error);

// The exit code that stands for an error of an operation on an open store.
Exit exit_of(Errc code);

// A command of the program, or of one of its groups. `run` is called when the command line has been read.
CLI::App& add_command(CLI::App& app, Context& context, const char* name, const char* what,
                      std::function<Exit()> run);
// The same, of one whose options are read into `arguments`.
template <class A>
CLI::App& add_command(CLI::App& app, Context& context, const char* name, const char* what,
                      const std::shared_ptr<A>& arguments, Exit (*run)(Context&, const A&)) {
  return add_command(app, context, name, what,
                     [arguments, run, &context] { return run(context, *arguments); });
}
// One that hands all that follows it, --help too, to another program.
CLI::App& add_foreign_command(CLI::App& app, Context& context, const char* name, const char* what,
                              Exit (*run)(Context&, std::vector<std::string> arguments));
// Of which one of several commands has to follow.
CLI::App& add_group(CLI::App& app, const char* name, const char* what);
// What `--help` ends with, before where to read of the options of all commands.
void add_footer(CLI::App& command, std::string_view text);

// What stands on the command line by its place: one that has to be there ...
void add_argument(CLI::App& command, const char* name, std::string& into, const char* what);
void add_arguments(CLI::App& command, const char* name, std::vector<std::string>& into, const char* what);
// ... and one that may be left out.
void add_optional_argument(CLI::App& command, const char* name, std::string& into, const char* what);
void add_optional_argument(CLI::App& command, const char* name, std::optional<std::string>& into,
                           const char* what);
// The same, of a file.
void add_optional_path(CLI::App& command, const char* name, std::string& into, const char* what);

// Options. `flags` are its names, "-f,--file"; `type_name` is what --help calls its value.
void add_flag(CLI::App& command, const char* flags, bool& into, const char* what);
void add_text(CLI::App& command, const char* flags, std::optional<std::string>& into, const char* what,
              const char* type_name);
// `variable`: of the environment, where it may be set too.
void add_text(CLI::App& command, const char* flags, std::string& into, const char* what,
              const char* type_name, const char* variable = "");
// Of a file or folder, which an empty text names none of.
void add_path(CLI::App& command, const char* flags, std::optional<std::string>& into, const char* what,
              const char* type_name);
void add_path(CLI::App& command, const char* flags, std::string& into, const char* what,
              const char* type_name, const char* variable);
// Of std::uint32_t, std::uint64_t or double. CLI11 reads "-1" as the largest number: half of that is the
// most.
template <class Number>
void add_number(CLI::App& command, const char* flags, std::optional<Number>& into, const char* what,
                Number least = 0, Number most = std::numeric_limits<Number>::max() / 2,
                const char* type_name = "N");
// Whose value `parse` understands, or says what is wrong with it.
void add_parsed(CLI::App& command, const char* flags, const char* what, const char* type_name,
                std::function<Parsed<void>(const std::string&)> parse);
// The same: `parse` makes a Parsed<T> of it.
template <class T, class Parse>
void add_parsed(CLI::App& command, const char* flags, std::optional<T>& into, const char* what,
                const char* type_name, Parse parse) {
  add_parsed(command, flags, what, type_name, [&into, parse](const std::string& text) -> Parsed<void> {
    const Parsed<T> parsed = parse(text);
    if (!parsed) return std::unexpected(parsed.error());
    into = *parsed;
    return {};
  });
}
// Of two options of a command: the first only with the second, or never with it.
void let_need(CLI::App& command, const char* option, const char* other);
void let_exclude(CLI::App& command, const char* option, const char* other);

// Options that several commands declare.
void add_store(CLI::App& command, std::string& store_name);
void add_key(CLI::App& command, std::string& key);
void add_duration(CLI::App& command, const char* flags, std::optional<std::chrono::milliseconds>& into,
                  const char* what, std::chrono::milliseconds most = time_to_live_max);
void add_bytes(CLI::App& command, const char* flags, std::optional<std::uint64_t>& into, const char* what);
void add_format(CLI::App& command, std::optional<Format>& into);
void add_no_create(CLI::App& command, bool& into);
// As version_text (cmd/json.h) writes it.
void add_version(CLI::App& command, const char* flags, std::optional<Version>& into, const char* what);

// How keys and values of the command line and of the output are written: raw, or in hexadecimal.
struct Encoding {
  bool both_hex = false;
  bool key_hex = false;
  bool value_hex = false;

  void add_to(CLI::App& command, bool with_value);
  [[nodiscard]] Parsed<std::string> key(const std::string& argument) const;
  // The same where a store may be made for it, which is not done for one that no store can have.
  [[nodiscard]] Parsed<std::string> key_to_store(const std::string& argument) const;
  [[nodiscard]] Parsed<std::string> value(const std::string& argument) const;
  [[nodiscard]] bool value_is_hex() const { return both_hex || value_hex; }
};

// The commands, one function each; called once by main.
void add_put(CLI::App& app, Context& context);
void add_get(CLI::App& app, Context& context);
void add_remove(CLI::App& app, Context& context);
void add_touch(CLI::App& app, Context& context);
void add_incr(CLI::App& app, Context& context);
void add_exists(CLI::App& app, Context& context);
void add_scan_all(CLI::App& app, Context& context);
void add_count(CLI::App& app, Context& context);
void add_load(CLI::App& app, Context& context);
void add_dump(CLI::App& app, Context& context);
void add_create(CLI::App& app, Context& context);
void add_ls(CLI::App& app, Context& context);
void add_stat(CLI::App& app, Context& context);
void add_inspect(CLI::App& app, Context& context);
void add_rm(CLI::App& app, Context& context);
void add_gc(CLI::App& app, Context& context);
void add_check(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_cluster(CLI::App& app, Context& context);
void add_bench(CLI::App& app, Context& context);

}  // namespace loch::cmd
