// cmd/command: what the commands of `loch` share: exit codes, global options, opening a store, and how each
// command joins the program.
//
// A command is a function `add_x(CLI::App&, Context&)`: it declares its options and leaves in `context.run`
// what is to be done once the command line has been read. Everything a person reads goes to standard error,
// everything a program reads to `context.out`. Threads: one.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <expected>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include <loch/loch.h>

#include "cmd/encode.h"
#include "cmd/output.h"
#include "cmd/record.h"

namespace loch::cmd {

// The documented exit codes.
enum class Exit : std::uint8_t {
  ok = 0,
  failed = 1,       // the operation failed: no space, timed out, corrupt, exists, changed, ...
  usage = 2,        // the command line, a key or a value is not as it must be
  cannot_open = 3,  // there is no such store, or it can not be opened
  not_found = 4,    // no such key (for rm: no such store)
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
  std::string command;        // the name of the one that runs
  std::function<Exit()> run;  // set by the command that was chosen

  [[nodiscard]] Options options(Work work) const;

  // Opens "name", "shm://name", "shm:///folder/name", "verbs://host:port/name" or "tcp://host:port/name".
  // Says what was wrong before it returns an Exit.
  std::expected<Store, Exit> open(const std::string& store_name, Work work,
                                  Options::Mode mode = Options::Mode::attach) const;
  // The same; creates the store if there is none on this host, and says so.
  std::expected<Store, Exit> open_or_create(const std::string& store_name, Work work) const;

  // "loch: put: ..." on standard error; returns `exit`.
  Exit complain(Exit exit, std::string_view text) const;
  // The same about a store that can not be opened ...
  Exit complain_of_store(const std::string& store_name, const Error& error) const;
  // ... or an Error of a call, with the exit code of its Errc. A key that is not there is no complaint under
  // --quiet.
  [[nodiscard]] Exit report(const Error& error) const;
  // A remark for people; not under --quiet.
  void note(std::string_view text) const;

  // Before something that can not be undone. Asks on a terminal; without one, --yes must have been given.
  // Exit::ok to go on; everything else has been explained.
  [[nodiscard]] Exit confirm(std::string_view question) const;

  // Prints a JSON document and a newline.
  void print_json(const nlohmann::ordered_json& json);
};

// "shm://name" of what a person may write for a store.
std::string store_url(std::string_view store_name);

// The exit code that stands for an error of an operation on an open store.
Exit exit_of(Errc code);

// Adds an option whose argument `parse` (text to Parsed<T>) reads into `into`, while the command line is
// read.
template <class T, class Parse>
CLI::Option* add_parsed(CLI::App& command, const std::string& flags, std::optional<T>& into,
                        const std::string& help, const char* type_name, Parse parse) {
  CLI::Option* option = command.add_option(
      flags,
      [&into, flags, parse](const CLI::results_t& arguments) {
        const Parsed<T> parsed = parse(arguments.back());
        if (!parsed) throw CLI::ValidationError(flags, parsed.error());
        into = *parsed;
        return true;
      },
      help);
  return option->type_name(type_name);
}

// Options that several commands declare.
void add_store(CLI::App& command, std::string& store_name);
void add_duration(CLI::App& command, const std::string& flags, std::optional<std::chrono::milliseconds>& into,
                  const std::string& help);
void add_bytes(CLI::App& command, const std::string& flags, std::optional<std::uint64_t>& into,
               const std::string& help);
void add_format(CLI::App& command, std::optional<Format>& into);

// How keys and values of the command line and of the output are written: raw, or in hexadecimal.
struct Encoding {
  bool both_hex = false;
  bool key_hex = false;
  bool value_hex = false;

  void add_to(CLI::App& command, bool with_value);
  [[nodiscard]] Parsed<std::string> key(const std::string& argument) const;
  [[nodiscard]] Parsed<std::string> value(const std::string& argument) const;
  [[nodiscard]] bool prints_hex() const { return both_hex || value_hex; }
};

// The commands, one function each; called once by main.
void add_put(CLI::App& app, Context& context);
void add_get(CLI::App& app, Context& context);
void add_remove(CLI::App& app, Context& context);
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
