// loch: the command line of Loch. Reads the arguments, runs one command, and turns what happened into an exit
// code.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <unistd.h>

#include <loch/truncation.h>

#include "cmd/command.h"
#include "cmd/terminal.h"

namespace loch::cmd {
namespace {

// As Options::timeout says.
constexpr std::chrono::milliseconds timeout_max = std::chrono::hours(1);

constexpr const char* description =
    "Loch: a key-value store in memory that any number of processes share, without a server.";

constexpr const char* footer =
    "NAME is a store: 'sessions' or 'shm://sessions' in the directory, 'shm:///folder/sessions' elsewhere,\n"
    "'verbs://host/sessions' (RDMA) or 'tcp://host:port/sessions' on another host, where lochd runs,\n"
    "'tcp://host,host/sessions' on the hosts of a cluster, of which the first that answers knows the "
    "others.\n"
    "Exit codes:\n"
    "  0  ok\n"
    "  1  failed: no space, timed out, corrupt, the key exists (--if-absent), it changed (--if-version), "
    "...\n"
    "  2  usage: the command line, a key or a value is not as it must be; --yes is missing\n"
    "  3  cannot open: no such store or cluster, no permission, another format\n"
    "  4  not found: no such key (for rm: no such store; for cluster: no such node)\n"
    "Examples:\n"
    "  loch put sessions user:17 ada\n"
    "  loch get sessions user:17\n"
    "  loch load sessions sessions.tsv && loch stat sessions\n"
    "  loch COMMAND --help\n"
    "Results go to standard output, remarks and errors to standard error.";

// A store's file must never become descriptor 0, 1 or 2: what is printed would be written into it.
void occupy_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1) continue;
    // Opened the wrong way round, so that using it is an error as before.
    const int flags = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", flags) < 0) ::_exit(static_cast<int>(Exit::failed));
  }
}

void add_globals(CLI::App& app, Globals& globals) {
  add_path(app, "-d,--directory", globals.directory, "Where the stores are (/dev/shm unless told)", "DIR",
           "LOCH_DIRECTORY");
  add_text(app, "--from", globals.source_address,
           "The address of this host to go to another from, which chooses the network device", "ADDRESS",
           "LOCH_FROM");
  add_text(app, "--placement", globals.placement,
           "In a cluster, where new items are put: local (unless told), spread, by-key, or a node's name",
           "WHERE", "LOCH_PLACEMENT");
  add_path(app, "--key-file", globals.key_file, "The key of the other host's lochd", "FILE", "LOCH_KEY_FILE");
  app.add_flag("--read-only", globals.read_only,
               "Change nothing; of a store on another host, lochd sees to it")
      ->envname("LOCH_READ_ONLY");
  add_path(app, "--tls-authority", globals.tls_authority,
           "Speak TLS with the other host, and trust whom this certificate vouches for", "FILE",
           "LOCH_TLS_AUTHORITY");
  add_path(app, "--tls-certificate", globals.tls_certificate, "Ours, if the other host wants one", "FILE",
           "LOCH_TLS_CERTIFICATE");
  add_path(app, "--tls-key", globals.tls_key, "The key of that certificate", "FILE", "LOCH_TLS_KEY");
  let_need(app, "--tls-certificate", "--tls-key");
  let_need(app, "--tls-key", "--tls-certificate");
  add_duration(
      app, "--timeout", globals.timeout,
      "How long one call may take, 1ms to 1h (unless told: 5s for one key, 30s for a batch, 1h for a walk); "
      "to open a store of another host takes up to 5s besides",
      timeout_max);
  add_flag(app, "-j,--json", globals.json, "Print JSON, for programs");
  add_flag(app, "-y,--yes", globals.yes, "Do not ask before something that can not be undone");
  add_flag(app, "-q,--quiet", globals.quiet, "No progress, no remarks, nothing about a missing key");
  app.set_version_flag("-V,--version", "loch " LOCH_VERSION, "Print the version");
}

void add_commands(CLI::App& app, Context& context) {
  const auto group = [&](const char* title, std::initializer_list<void (*)(CLI::App&, Context&)> commands) {
    for (const auto add : commands) {
      add(app, context);
      app.get_subcommands({}).back()->group(title);
    }
  };
  group("One key", {add_put, add_get, add_remove, add_exists});
  group("All items", {add_scan_all, add_count, add_load, add_dump});
  group("Stores", {add_create, add_ls, add_stat, add_inspect, add_rm});
  group("Clusters", {add_cluster});
  group("Upkeep", {add_gc, add_check, add_doctor, add_bench});
}

// What CLI11 says, with a hint where it says too little.
std::string complaint_about(const CLI::App& app, const CLI::ParseError& error) {
  const bool has_command = !app.get_subcommands().empty();
  for (const std::string& extra : app.remaining(true)) {
    if (!has_command) return fmt::format("unknown command or option '{}'", escaped(extra));
    if (extra.starts_with('-') && extra != "--") {
      return fmt::format("unknown option '{}' (a key or value that starts with '-' goes after '--')",
                         escaped(extra));
    }
  }
  return error.what();
}

// The words that name the command: "put", "cluster add"; empty if there was none.
std::string chosen_command(const CLI::App& app) {
  std::string words;
  for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = chosen.front()->get_subcommands()) {
    words += (words.empty() ? "" : " ") + chosen.front()->get_name();
  }
  return words;
}

// What is left after the command line is read: an exit code if that was all.
std::optional<Exit> parse(CLI::App& app, Context& context, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    context.out.write(app.help());
    return Exit::ok;
  } catch (const CLI::CallForVersion& version) {
    context.out.write(std::string(version.what()) + "\n");
    return Exit::ok;
  } catch (const CLI::ParseError& error) {
    context.command = chosen_command(app);
    const std::string of = context.command.empty() ? "" : " " + context.command;
    return context.complain(Exit::usage,
                            fmt::format("{}\nSee: loch{} --help", complaint_about(app, error), of));
  }
  context.command = chosen_command(app);
  return std::nullopt;
}

Exit run_command(Context& context) {
  try {
    return context.run();
  } catch (const std::bad_alloc&) {
    return context.complain(Exit::failed, "out of memory");
  } catch (const std::exception& error) {
    return context.complain(Exit::failed, error.what());
  }
}

// The command's own code, unless its output could not be written. A reader that has had enough is no failure.
Exit finish(Context& context, Exit exit) {
  context.out.flush();
  if (context.out.good() || context.out.reader_gone() || exit != Exit::ok) return exit;
  return context.complain(
      Exit::failed, fmt::format("cannot write standard output: {}", std::strerror(context.out.error())));
}

int run(int argc, char** argv) {
  occupy_standard_descriptors();
  ::signal(SIGPIPE, SIG_IGN);
  // Without it a truncated store ends the command by a signal, as it would any program.
  [[maybe_unused]] const auto survives = survive_truncation();
  Context context;
  CLI::App app(description, "loch");
  app.footer(footer);
  app.get_formatter()->column_width(36);
  app.require_subcommand(1);
  app.fallthrough();
  add_globals(app, context.globals);
  add_commands(app, context);
  const auto early = parse(app, context, argc, argv);
  const Exit exit = finish(context, early ? *early : run_command(context));
  if (interrupted()) end_by_interrupt();
  return static_cast<int>(exit);
}

}  // namespace
}  // namespace loch::cmd

int main(int argc, char** argv) { return loch::cmd::run(argc, argv); }
