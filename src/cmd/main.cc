// loch: the command line of Loch. Reads the arguments, runs one command, and turns what happened into an exit
// code.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <loch/truncation.h>
#include <loch/version.h>

#include "cmd/command.h"
#include "cmd/terminal.h"

namespace loch::cmd {
namespace {

// As Options::timeout says.
constexpr std::chrono::milliseconds timeout_max = std::chrono::hours(1);

constexpr const char* description =
    "Loch: a key-value store in memory that any number of processes share, without a server.";

constexpr const char* footer =
    "STORE is 'sessions' or 'shm://sessions' in the directory, 'shm:///folder/sessions' elsewhere,\n"
    "'verbs://host/sessions' (RDMA) or 'tcp://host:port/sessions' on another host, where lochd runs,\n"
    "'tcp://h1,h2/sessions' in a cluster (any one host is enough to find the rest).\n"
    "Exit codes:\n"
    "  0  ok\n"
    "  1  failed: no space, timed out, corrupt, ...\n"
    "  2  usage: bad command line, key or value, or --yes missing\n"
    "  3  cannot open: no such store, cluster or file, no permission, another format\n"
    "  4  not found: no such key (for rm: no such store; for cluster: no such node)\n"
    "  5  refused: the key exists (--if-absent), or it changed (--if-version)\n"
    "Examples:\n"
    "  loch put sessions user:17 ada\n"
    "  loch get sessions user:17\n"
    "  loch load sessions sessions.tsv && loch stat sessions\n"
    "  loch COMMAND --help\n"
    "Results go to standard output, notes and errors to standard error.";

// What other stores call it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> synonyms{{{"set", "put"},
                                                                                  {"insert", "put"},
                                                                                  {"del", "remove"},
                                                                                  {"delete", "remove"},
                                                                                  {"expire", "touch"},
                                                                                  {"incrby", "incr"},
                                                                                  {"decr", "incr --by -1"},
                                                                                  {"keys", "scan-all"},
                                                                                  {"scan", "scan-all"},
                                                                                  {"list", "ls"},
                                                                                  {"info", "stat"}}};

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
  add_path(app, "-d,--directory", globals.directory, "Where the stores are (default: /dev/shm)", "DIR",
           "LOCH_DIRECTORY");
  add_text(app, "--from", globals.source_address, "Local address to connect from; selects the network device",
           "ADDRESS", "LOCH_FROM");
  add_text(app, "--placement", globals.placement,
           "In a cluster, where new items go: local (default), spread, by-key or a node's name", "WHERE",
           "LOCH_PLACEMENT");
  add_path(app, "--key-file", globals.key_file, "Key shared with the other host's lochd", "FILE",
           "LOCH_KEY_FILE");
  app.add_flag("--read-only", globals.read_only, "Refuse every change; on another host lochd enforces it")
      ->envname("LOCH_READ_ONLY");
  add_path(app, "--tls-authority", globals.tls_authority, "Use TLS and trust certificates signed by this CA",
           "FILE", "LOCH_TLS_AUTHORITY");
  add_path(app, "--tls-certificate", globals.tls_certificate, "Client certificate, if the host asks for one",
           "FILE", "LOCH_TLS_CERTIFICATE");
  add_path(app, "--tls-key", globals.tls_key, "The key of that certificate", "FILE", "LOCH_TLS_KEY");
  let_need(app, "--tls-certificate", "--tls-key");
  let_need(app, "--tls-key", "--tls-certificate");
  add_duration(app, "--timeout", globals.timeout,
               "How long one call may take, and of a walk over all items each of its steps, 1ms to 1h "
               "(default: 5s for one key, 30s for a batch, 1h for a walk); opening a store of another host "
               "may take 5s more",
               timeout_max);
  // Read as soon as it is there, so that what is wrong with the words after it is told as JSON too.
  app.add_flag("-j,--json", globals.json, "Print JSON, for programs")->trigger_on_parse();
  add_flag(app, "-y,--yes", globals.yes, "Do not ask before irreversible actions");
  add_flag(app, "-q,--quiet", globals.quiet, "No progress or notes; silent about a missing key");
  app.set_version_flag("-V,--version", "loch " + library_version(), "Print the version");
}

void add_commands(CLI::App& app, Context& context) {
  const auto group = [&](const char* title, std::initializer_list<void (*)(CLI::App&, Context&)> commands) {
    for (const auto add : commands) {
      add(app, context);
      app.get_subcommands({}).back()->group(title);
    }
  };
  group("One key", {add_put, add_get, add_remove, add_exists, add_touch, add_incr});
  group("All items", {add_scan_all, add_count, add_load, add_dump});
  group("Stores", {add_create, add_ls, add_stat, add_inspect, add_rm});
  group("Clusters", {add_cluster});
  group("Upkeep", {add_gc, add_check, add_doctor, add_bench});
}

std::string complaint_about_command(const CLI::App& app, const std::string& word) {
  const auto* const known =
      std::ranges::find(synonyms, word, &std::pair<std::string_view, std::string_view>::first);
  if (known != synonyms.end() && app.get_parent() == nullptr)
    return fmt::format("unknown command '{}'; did you mean {}?", word, known->second);
  std::string names;
  for (const CLI::App* command : app.get_subcommands({}))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return fmt::format("unknown command '{}'; there are: {}", escaped(word), names);
}

// " (set by LOCH_READ_ONLY)" where the text names an option whose value is the environment's.
std::string inherited_in(const CLI::App& app, std::string_view text) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string variable = option->get_envname();
    const char* const value = variable.empty() ? nullptr : std::getenv(variable.c_str());
    const bool is_inherited = value != nullptr && option->results() == CLI::results_t{value};
    if (is_inherited && text.contains(option->get_name())) return fmt::format(" (set by {})", variable);
  }
  return "";
}

// What CLI11 says, with a hint where it says too little.
std::string complaint_about(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  for (const std::string& extra : app.remaining(true)) {
    if (extra == "--") continue;
    if (extra.starts_with('-')) {
      const char* hint = commands.empty() ? "" : " (a key or value that starts with '-' goes after '--')";
      return fmt::format("unknown option '{}'{}", escaped(extra), hint);
    }
    if (commands.empty()) return complaint_about_command(app, extra);
    const CLI::App& chosen = *commands.front();
    if (chosen.get_subcommands().empty() && !chosen.get_subcommands({}).empty())
      return complaint_about_command(chosen, extra);
    if (commands.front()->get_name() == "rm") {
      return fmt::format("rm destroys a whole store; a key: loch remove {} {}",
                         escaped(commands.front()->get_option("STORE")->as<std::string>()), escaped(extra));
    }
  }
  return error.what() + inherited_in(app, error.what());
}

// The words that name the command: "put", "cluster add"; empty if there was none.
std::string chosen_command(const CLI::App& app) {
  std::string words;
  for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = chosen.front()->get_subcommands()) {
    words += (words.empty() ? "" : " ") + chosen.front()->get_name();
  }
  return words;
}

// The option that this name stands for after a command; null if it stands for none.
const CLI::Option* option_of(const CLI::App* command, const std::string& name) {
  for (; command != nullptr; command = command->get_parent())
    if (const CLI::Option* option = command->get_option_no_throw(name)) return option;
  return nullptr;
}

bool takes_value(const CLI::Option* option) {
  return option != nullptr && option->get_items_expected_max() > 0;
}

// Whether the word is of options whose last one has its value in the next word.
bool awaits_value(const CLI::App* command, const std::string& word) {
  if (word.starts_with("--")) return takes_value(option_of(command, word));
  for (std::size_t at = 1; at < word.size(); ++at) {  // "-qn", "-qn7"
    const CLI::Option* option = option_of(command, {'-', word[at]});
    if (takes_value(option)) return at + 1 == word.size();
    if (option == nullptr) return false;
  }
  return false;
}

const CLI::App* subcommand_of(const CLI::App* command, const std::string& name) {
  for (const CLI::App* each : command->get_subcommands({}))
    if (each->get_name() == name) return each;
  return nullptr;
}

// The command line as CLI11 is to read it, which takes what follows "--option=" for its value, as of a
// script's variable that is empty: here it is two words, of which the second is empty. What is for loch-bench
// stays as it is.
struct CommandLine {
  std::vector<std::string> words;
  std::string flag;  // that stands there as "--flag="; empty if none does
};

CommandLine command_line_of(const CLI::App& app, int argc, char** argv) {
  CommandLine line;
  const CLI::App* command = &app;
  bool is_taken = true;  // the next word is no option, whatever it looks like; the first is the program
  bool are_options = true;
  for (const std::string word : std::span(argv, static_cast<std::size_t>(argc))) {
    line.words.push_back(word);
    if (std::exchange(is_taken, false) || !are_options) continue;
    if (word.starts_with("--") && word.find('=') == word.size() - 1) {
      const std::string name = word.substr(0, word.size() - 1);
      const CLI::Option* option = option_of(command, name);
      if (takes_value(option)) {
        line.words.back() = name;
        line.words.emplace_back();
      } else if (option != nullptr) {
        line.flag = name;
      }
    } else if (word.starts_with('-')) {
      are_options = word != "--";
      is_taken = awaits_value(command, word);
    } else if (const CLI::App* chosen = subcommand_of(command, word)) {
      command = chosen;
      are_options = !chosen->get_prefix_command();
    }
  }
  return line;
}

Exit complain_of_usage(Context& context, const CLI::App& app, std::string_view text) {
  context.command = chosen_command(app);
  const std::string of = context.command.empty() ? "" : " " + context.command;
  return context.complain(Exit::usage, fmt::format("{}\nSee: loch{} --help", text, of));
}

// What is left after the command line is read: an exit code if that was all.
std::optional<Exit> parse(CLI::App& app, Context& context, int argc, char** argv) {
  auto [words, flag] = command_line_of(app, argc, argv);
  try {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::CallForHelp&) {
    context.out.write(app.help());
    return Exit::ok;
  } catch (const CLI::CallForVersion& version) {
    context.out.write(std::string(version.what()) + "\n");
    return Exit::ok;
  } catch (const CLI::ParseError& error) {
    return complain_of_usage(context, app, complaint_about(app, error));
  }
  if (!flag.empty()) return complain_of_usage(context, app, fmt::format("{0}=: {0} takes no value", flag));
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

// The command's own code, unless its output could not be written. A reader that has had enough is no failure,
// and after an interrupt that is what is to be told.
Exit finish(Context& context, Exit exit) {
  context.out.flush();
  if (context.out.good() || context.out.reader_gone() || interrupted() || exit != Exit::ok) return exit;
  return context.complain(
      Exit::failed, fmt::format("cannot write standard output: {}", std::strerror(context.out.error())));
}

int run(int argc, char** argv) {
  occupy_standard_descriptors();
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);  // the write's error is told
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
