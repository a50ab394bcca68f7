// lochd: lends the stores of this host to clients on others. One a host.
//
// It takes no part in what processes of this host do with their stores, and may be started and ended at any
// time: only clients on other hosts notice.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>

#include <loch/truncation.h>
#include <loch/version.h>

#include "fabric/host.h"
#include "net/credentials.h"
#include "server/config.h"
#include "server/daemon.h"
#include "server/member.h"

namespace loch::server {
namespace {

constexpr const char* usual_config = "/etc/loch/lochd.toml";

enum Exit : int { ok = 0, failed = 1, usage = 2 };

struct Arguments {
  std::string config_path;
  bool check_only = false;
  std::vector<std::string> listen;
  std::string directory;
  std::string key_file;
};

// For CLI11. An unset variable of a script is not to stand for the default.
std::string complaint_about_path(const std::string& path) { return path.empty() ? "the name is empty" : ""; }

// Where the configuration is; empty: there is none.
std::string path_of_config(const Arguments& arguments) {
  if (!arguments.config_path.empty()) return arguments.config_path;
  // If we may not even look for it, reading it says why.
  std::error_code unknown;
  return std::filesystem::exists(usual_config, unknown) || unknown ? usual_config : "";
}

// The file, and what the command line says instead.
Result<Config> configuration(const Arguments& arguments) {
  const std::string path = path_of_config(arguments);
  Result<Config> config = path.empty() ? default_config() : read_config(path);
  if (!config) return config;
  if (!arguments.listen.empty()) config->listen.clear();
  for (const std::string& each : arguments.listen) {
    auto address = net::parse_host_port(each, fabric::default_port);
    if (!address) return std::unexpected(std::move(address.error()));
    config->listen.push_back(std::move(*address));
  }
  if (!arguments.directory.empty()) config->directory = arguments.directory;
  if (!arguments.key_file.empty()) config->key_file = arguments.key_file;
  if (auto fits = check_config(*config, path); !fits) return std::unexpected(std::move(fits.error()));
  std::error_code why;
  if (!std::filesystem::is_directory(config->directory, why)) {
    const bool is_hidden = why == std::errc::permission_denied;
    return fail(Errc::invalid_argument, "configuration",
                is_hidden
                    ? fmt::format("the folder '{}' for the stores (directory) can not be looked at: {}",
                                  config->directory, why.message())
                    : fmt::format("there is no folder '{}' for the stores (directory)", config->directory));
  }
  return config;
}

void start_log() {
  // To standard error, where systemd and containers look for it.
  const auto log = spdlog::stderr_logger_mt("lochd");
  log->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  log->flush_on(spdlog::level::info);
  spdlog::set_default_logger(log);
}

void write_to_log(fabric::Host::Level level, const std::string& text) {
  switch (level) {
    case fabric::Host::Level::debug:
      return spdlog::debug(text);
    case fabric::Host::Level::info:
      return spdlog::info(text);
    case fabric::Host::Level::warning:
      return spdlog::warn(text);
  }
}

// Why lochd ends: said at any level of the log.
Exit complain(const Error& error, Exit exit) {
  spdlog::set_level(spdlog::level::info);
  spdlog::error(error.message());
  return exit;
}

// Waits for the signals that lochd heeds.
class Signals {
 public:
  // Before any other thread begins, so that none of them takes one.
  Signals() {
    sigemptyset(&set_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  }
  int wait() const {
    int signal = 0;
    return sigwait(&set_, &signal) == 0 ? signal : SIGTERM;
  }
  // Whether it was told to end, and nobody has waited for that yet.
  static bool is_told_to_end() {
    sigset_t pending{};
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
  }

 private:
  sigset_t set_{};
};

// Each connection takes one; what shells allow is far less than what they let a program have.
void raise_limit_of_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // if not, lochd takes fewer connections, and says so
}

// Whether the files that the configuration names are as they have to be; ZooKeeper is not asked.
Result<void> check_files(const Config& config) {
  if (config.cluster) {
    if (auto listed = Member::check_list(*config.cluster); !listed) return listed;
  }
  auto files = net::Credentials::of_server(
      {.key = config.key_file, .other = config.other_key_file, .read = config.read_key_file}, config.tls);
  if (!files) return std::unexpected(std::move(files.error()));
  return {};
}

void warn_of(const Config& config, const Arguments& arguments) {
  for (const std::string& warning : warnings_of(config, path_of_config(arguments)))
    spdlog::warn("{}", warning);
}

void reload(const Arguments& arguments, Daemon& daemon) {
  sd_notify(0, "RELOADING=1");
  const auto config = configuration(arguments);
  const auto taken = config ? daemon.reload(*config) : std::unexpected(config.error());
  if (taken) {
    spdlog::set_level(spdlog::level::from_str(config->log_level));
    spdlog::info(
        "read the configuration again: log level, stores of this host, and what is in the files of keys and "
        "certificates");
    const auto differ = settings_for_a_restart(daemon.config(), *config);
    if (!differ.empty())
      spdlog::warn("these settings have changed and need a restart: {}", fmt::join(differ, ", "));
    if (const auto sound = check_files(*config); !sound)
      spdlog::error("would not start with this configuration: {}", sound.error().message());
    warn_of(*config, arguments);
  } else {
    spdlog::error("goes on with what was before: {}", taken.error().message());
  }
  sd_notify(0, "READY=1");
}

// Who gets in, where neither a key nor a certificate says so.
const char* those_let_in(const Config& config) {
  if (has_cookie(config)) return ", to its own user and root alone";
  return config.key_file.empty() && config.tls.authority.empty() ? ", to everybody who gets there" : "";
}

void say_what_is_lent(const Config& config, const std::vector<std::uint16_t>& ports) {
  if (config.metrics) spdlog::info("metrics at http://{}/metrics", config.metrics->text());
  for (std::size_t i = 0; i < ports.size(); ++i) {
    spdlog::info("lends the stores in {} at tcp://{}{}{}", config.directory,
                 net::HostPort{config.listen[i].host, std::to_string(ports[i])}.text(),
                 config.verbs ? ", and as verbs://" : "", those_let_in(config));
  }
}

Exit run(const Arguments& arguments) {
  const Signals signals;
  start_log();
  const auto config = configuration(arguments);
  if (!config) return complain(config.error(), usage);
  if (const auto sound = check_files(*config); !sound) return complain(sound.error(), usage);
  if (!arguments.check_only) spdlog::set_level(spdlog::level::from_str(config->log_level));
  warn_of(*config, arguments);
  if (arguments.check_only) {
    const std::string path = path_of_config(arguments);
    if (path.empty()) {
      fmt::print("there is no {}; the defaults are sound\n", usual_config);
    } else {
      fmt::print("{} is sound\n", path);
    }
    return ok;
  }
  // Whoever may write to one of the stores is not to end the service of all.
  if (const auto survives = survive_truncation(); !survives) return complain(survives.error(), failed);
  raise_limit_of_descriptors();
  const auto daemon = Daemon::start(*config, {.log = write_to_log});
  if (!daemon && Signals::is_told_to_end()) return ok;
  if (!daemon) return complain(daemon.error(), failed);
  say_what_is_lent(*config, (*daemon)->host().ports());
  sd_notify(0, "READY=1");
  while (signals.wait() == SIGHUP) reload(arguments, **daemon);
  sd_notify(0, "STOPPING=1");
  spdlog::info("ends");
  return ok;
}

}  // namespace
}  // namespace loch::server

int main(int argc, char** argv) {
  loch::server::Arguments arguments;
  const loch::server::Config defaults = loch::server::default_config();
  const std::string listen = defaults.listen.front().text();
  CLI::App app("Serves this host's stores to clients on others, over TCP and RDMA.", "lochd");
  app.set_version_flag("-V,--version", "lochd " + loch::library_version());
  app.add_option(
         "-c,--config", arguments.config_path,
         "The configuration (default: " + std::string(loch::server::usual_config) + ", if it is there)")
      ->type_name("FILE")
      ->check(loch::server::complaint_about_path);
  app.add_flag("--check-config", arguments.check_only, "Check the configuration, then exit");
  app.add_option("-l,--listen", arguments.listen,
                 "Where to listen (default: " + listen + "); may be repeated")
      ->type_name("HOST[:PORT]");
  app.add_option("-d,--directory", arguments.directory,
                 "Where the stores are (default: " + defaults.directory + ")")
      ->type_name("DIR")
      ->check(loch::server::complaint_about_path);
  app.add_option("-k,--key-file", arguments.key_file, "The key that clients have to know")
      ->type_name("FILE")
      ->check(loch::server::complaint_about_path);
  app.footer(
      "--listen, --directory and --key-file override the configuration.\n"
      "Without key_file, tls.authority and open_to_all: lets in its own user and root, from this host.\n"
      "Signals: SIGHUP reads the configuration again, SIGTERM and SIGINT stop lochd.\n"
      "Exit codes: 0 stopped on request, 1 failed, 2 the command line or the configuration is wrong.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? loch::server::ok : loch::server::usage;
  }
  return loch::server::run(arguments);
}
