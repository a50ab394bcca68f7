#include "server/daemon.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fmt/format.h>
#include <iterator>
#include <string>
#include <sys/resource.h>
#include <system_error>
#include <utility>
#include <vector>

#include <loch/loch.h>

#include "server/differences.h"

namespace loch::server {
namespace {

// Whose it is does not matter then: everybody may change all of it anyway.
bool is_for_all(const Config::Store& store) { return store.mode == 0666U; }

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::start(Config config, Options options) {
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(config), options.log));
  // What has a thread of its own is there with it or not at all; what was begun before ends with the daemon.
  try {
    if (auto begun = daemon->begin(options); !begun) return std::unexpected(std::move(begun.error()));
  } catch (const std::system_error& error) {
    return fail(Errc::unavailable, "start",
                fmt::format("no thread for it: {}; raise `ulimit -u`, or TasksMax of the unit",
                            error.code().message()));
  }
  return daemon;
}

Result<void> Daemon::begin(Options& options) {
  if (auto failures = make_stores(config_); !failures.empty())
    return std::unexpected(std::move(failures.front()));
  if (auto joined = join(options); !joined) return joined;
  if (auto lends = lend(options); !lends) return lends;
  if (member_ != nullptr) {
    const fabric::Access others{.key_file = config_.key_file, .tls = config_.tls};
    if (options.sees_its_neighbours) neighbours_ = std::make_unique<Neighbours>(others, *member_, *host_);
    if (member_->coordinator().may_change())
      rebalancer_ = std::make_unique<Rebalancer>(others, *member_, *host_, options.bytes_together);
  }
  if (config_.metrics) {
    auto started = Metrics::start(*config_.metrics, *host_, *keeper_, member_.get());
    if (!started) return std::unexpected(std::move(started.error()));
    metrics_ = std::move(*started);
  }
  return {};
}

fabric::Access Daemon::here() const {
  return {.directory = config_.directory, .huge_pages = config_.huge_pages, .lends = true};
}

fabric::Access Daemon::own() const {
  fabric::Access access = here();
  access.not_of_others = true;
  return access;
}

std::vector<Error> Daemon::make_stores(const Config& config) const {
  std::vector<Error> failures;
  for (const Config::Store& wanted : config.stores) {
    if (wanted.of_cluster) continue;
    loch::Options options;
    options.candidates = wanted.candidates;
    options.max_bytes = wanted.max_bytes;
    options.expiry = wanted.expiry;
    options.directory = config_.directory;
    options.huge_pages = config_.huge_pages;
    options.atomics = wanted.atomics;
    if (wanted.mode) options.file_mode = *wanted.mode;
    options.group = wanted.group;
    const auto made = Store::create("shm://" + wanted.name, options);
    if (made) continue;
    if (made.error().code == Errc::exists) {
      warn_of_differences(wanted, is_for_all(wanted) ? here() : own(), memory::RegionMap::of_one_host(),
                          log_);
    } else {
      failures.push_back(made.error());
    }
  }
  return failures;
}

Result<void> Daemon::join(Options& options) {
  if (!config_.cluster) return {};
  auto of_member = Member::options_of(config_, own());
  if (!of_member) return std::unexpected(std::move(of_member.error()));
  of_member->log = options.log;
  auto member = options.coordinator != nullptr
                    ? Member::join(std::move(*of_member), std::move(options.coordinator))
                    : Member::join(std::move(*of_member));
  if (!member) return std::unexpected(std::move(member.error()));
  member_ = std::move(*member);
  return {};
}

Result<void> Daemon::lend(const Options& options) {
  Keeper::NodeOf node_of;
  decltype(fabric::Host::Options::cluster_of) cluster_of;
  if (member_ != nullptr) {
    node_of = [this](const std::string& store) { return member_->node_of(store); };
    cluster_of = [this](const std::string& store) { return member_->cluster_of(store); };
  }
  keeper_ = std::make_unique<Keeper>(here(), node_of);
  expect_stores(config_);
  auto host = fabric::Host::start(
      {.listen = config_.listen,
       .key_file = config_.key_file,
       .other_key_file = config_.other_key_file,
       .read_key_file = config_.read_key_file,
       .cookie_directory = has_cookie(config_) ? config_.directory : "",
       .tls = config_.tls,
       .verbs = config_.verbs,
       .open_store = [this](const std::string& name) { return keeper_->open(name); },
       .cluster_of = cluster_of,
       .bytes_max = [this](const auto& store) { return keeper_->bytes_max(store); },
       .time_of = [this](const auto& store) { return keeper_->time_of(store); },
       .readers = keeper_->readers(),
       .silence_max_ns = static_cast<base::Nanos>(config_.silence_max.count()) * base::millisecond_ns,
       .connections_max = connections_max(),
       .log = options.log});
  if (!host) return std::unexpected(std::move(host.error()));
  host_ = std::move(*host);
  return {};
}

std::size_t Daemon::connections_max() const {
  // Connections are not to keep lochd from its stores and files, which take some, too.
  constexpr std::size_t part_of_others = 4;
  constexpr std::size_t others_min = 32;  // but half of them at most
  constexpr std::size_t others_max = 256;
  constexpr std::size_t connections_min = 2;
  rlimit limit{};
  std::error_code unknown;
  const std::filesystem::directory_iterator open("/proc/self/fd", unknown);
  if (unknown || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return config_.connections_max;
  const auto taken = static_cast<std::size_t>(std::distance(open, std::filesystem::directory_iterator()));
  const std::size_t left = limit.rlim_cur - std::min<std::size_t>(limit.rlim_cur, taken);
  const std::size_t others = std::min(std::clamp(left / part_of_others, others_min, others_max), left / 2);
  const std::size_t may_be = std::max(left - others, connections_min);
  if (may_be < config_.connections_max && log_) {
    log_(fabric::Host::Level::warning,
         fmt::format("connections_max is {}, but there are descriptors for {} connections, and no more are "
                     "taken; raise LimitNOFILE (ulimit -n), or lower connections_max",
                     config_.connections_max, may_be));
  }
  return std::min(may_be, config_.connections_max);
}

void Daemon::expect_stores(const Config& config) {
  std::vector<Keeper::Expected> expected;
  for (const Config::Store& store : config.stores)
    expected.push_back({.name = store.name, .may_be_of_others = is_for_all(store)});
  keeper_->expect(std::move(expected));
}

Result<void> Daemon::reload(const Config& now) {
  if (auto taken = host_->reload(); !taken) return taken;
  const auto failures = make_stores(now);
  expect_stores(now);
  for (const Error& why : failures) {
    if (log_) log_(fabric::Host::Level::warning, why.message());
  }
  return {};
}

}  // namespace loch::server
