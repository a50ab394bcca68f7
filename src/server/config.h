// The configuration of lochd: a TOML file, all of whose settings have a default (packaging/lochd.toml
// documents them). A setting that is not known, of another type, or out of its range is an error that names
// the file and the line.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <loch/atomics.h>
#include <loch/error.h>

#include "fabric/fabric.h"

namespace loch::server {

struct Config {
  std::vector<net::HostPort> listen;
  std::string directory = "/dev/shm";
  std::string key_file;
  std::string other_key_file;
  std::string read_key_file;
  bool open_to_all = false;  // with neither key nor certificates: no cookie, and listens beyond this host
  std::chrono::milliseconds silence_max{10'000};
  std::size_t connections_max = 4'096;
  bool huge_pages = true;
  bool verbs = false;
  net::TlsFiles tls;
  std::string log_level = "info";
  std::optional<net::HostPort> metrics;  // none: nobody is told
  // The cluster that this host is one of.
  struct Cluster {
    std::string coordinator;  // cluster::Coordinator
    std::string node;         // its name there
    bool operator==(const Cluster&) const = default;
  };
  std::optional<Cluster> cluster;

  // Made when lochd starts, unless they are there.
  struct Store {
    std::string name;
    std::optional<std::uint32_t> candidates{};
    std::optional<std::uint64_t> max_bytes{};
    std::optional<std::chrono::milliseconds> expiry{};
    Atomics atomics = Atomics::processor;
    std::optional<std::uint32_t> mode{};  // of its files, for programs of this host; 0600 unless told,
    std::string group{};                  // and their group; "": lochd's own
    bool of_cluster = false;              // else of this host alone
    bool operator==(const Store&) const = default;
  };
  std::vector<Store> stores;
};

// What the file says, unchecked: the command line may say otherwise. Errors: invalid_argument ("lochd.toml:7:
// ..."), not_found, permission, io.
Result<Config> read_config(const std::string& path);
// Whether this user and root alone get in, by a cookie (net/cookie.h).
bool has_cookie(const Config& config);
// What holds without a file.
Config default_config();
// Whether the settings fit together; `path` is the file that they are of, if there is one. Errors:
// invalid_argument.
Result<void> check_config(const Config& config, const std::string& path = {});
// What is allowed and hardly meant, a line each, for the log; `path` as of check_config. What the files say
// that it names is looked at, too, as far as they can be read.
std::vector<std::string> warnings_of(const Config& config, const std::string& path = {});
// Settings that differ, and that a lochd which runs goes by as they were when it started.
std::vector<std::string> settings_for_a_restart(const Config& running, const Config& now);

}  // namespace loch::server
