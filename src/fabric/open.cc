// The one place that knows which backends there are.
#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "fabric/cluster/cluster_fabric.h"
#include "fabric/fabric.h"
#include "fabric/map_message.h"
#include "fabric/remote/networks.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/shm/shm.h"
#include "fabric/tcp/tcp_port.h"
#include "fabric/verbs/verbs_port.h"
#include "net/credentials.h"
#include "net/socket.h"

namespace loch::fabric {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '-';
}

constexpr std::string_view create_there = "create it there: loch create {}";

// A URL whose store is in files of this host.
Result<Url> parse_here(std::string_view url, const char* operation, std::string_view instead) {
  Result<Url> parsed = parse_url(url);
  if (!parsed || parsed->scheme == "shm") return parsed;
  return fail(
      Errc::invalid_argument, operation,
      fmt::format("'{}' is on another host; {}", url, fmt::format(fmt::runtime(instead), parsed->name)));
}

Access with_directory(const Access& access, const Url& url) {
  Access result = access;
  if (!url.directory.empty()) result.directory = url.directory;
  return result;
}

// By one of the hosts of a URL; of a cluster, it says who the others are.
Result<std::shared_ptr<Fabric>> attach_by(remote::Target target, bool is_only, base::Nanos within_ns) {
  auto attached = remote::RemoteFabric::attach(target, within_ns);
  if (!attached) return attached;
  const auto said = (*attached)->membership();
  if (!said) return std::unexpected(said.error());
  if (said->map.is_null() && is_only) return attached;
  if (said->map.is_null()) {
    return fail(Errc::invalid_argument, "open",
                fmt::format("{} is of no cluster, so its URL names one host", target.text()));
  }
  target.read_only = (*attached)->read_only();
  auto map = cluster::map_of(said->map);
  if (!map) return fail(map.error().code, "open", fmt::format("{}: {}", target.text(), map.error().detail));
  return cluster::ClusterFabric::attach(target, std::move(*map));
}

bool is_silence(Errc code) { return code == Errc::unavailable || code == Errc::timed_out; }

// By the first of the hosts that will do. All of them together have as long as one. Errors: those of the
// first that answers, since it says what is wrong, or else of the first.
Result<std::shared_ptr<Fabric>> attach_remote(const Url& url, const Access& access) {
  auto credentials = net::ClientCredentials::open(access.key_file, access.tls, access.directory);
  if (!credentials) return std::unexpected(std::move(credentials.error()));
  const base::Clock clock;
  const base::Nanos deadline = clock.now() + remote::greeting_max_ns;
  std::size_t left = url.hosts.size();
  std::optional<Error> why;
  for (const net::HostPort& host : url.hosts) {
    const base::Nanos until = net::deadline_of_one(deadline, left--);
    const base::Nanos now = clock.now();
    auto attached = attach_by({.scheme = url.scheme,
                               .host = host,
                               .store = url.name,
                               .read_only = access.read_only,
                               .source = access.source,
                               .credentials = *credentials},
                              url.hosts.size() == 1, until > now ? until - now : 0);
    if (attached) return attached;
    Error& error = attached.error();
    if (!why || (is_silence(why->code) && !is_silence(error.code))) why = std::move(error);
  }
  if (url.hosts.size() > 1) {
    why->detail =
        is_silence(why->code)
            ? fmt::format("none of the {} hosts answers; of the first: {}", url.hosts.size(), why->detail)
            : fmt::format("none of the {} hosts will do; of the first that answers: {}", url.hosts.size(),
                          why->detail);
  }
  // Of a host, it is the store that was not found; a cluster's own hosts make its stores.
  if (why->code == Errc::not_found && access.would_create && url.hosts.size() == 1)
    why->detail += "; " + fmt::format(create_there, url.name);
  return std::unexpected(std::move(*why));
}

}  // namespace

bool is_store_name(std::string_view name) {
  constexpr std::size_t name_bytes_max = 64;
  return !name.empty() && name.size() <= name_bytes_max && name.front() != '.' &&
         std::ranges::all_of(name, is_name_character);
}

Result<Url> parse_url(std::string_view url) {
  const auto colon = url.find("://");
  if (colon == std::string_view::npos) {
    return fail(
        Errc::invalid_argument, "open",
        fmt::format("'{}' is no store URL; write shm://NAME, verbs://HOST/NAME or tcp://HOST/NAME", url));
  }
  Url parsed;
  parsed.scheme = url.substr(0, colon);
  const bool is_remote = parsed.scheme == "verbs" || parsed.scheme == "tcp";
  if (parsed.scheme != "shm" && !is_remote) {
    return fail(Errc::invalid_argument, "open",
                fmt::format("there is no fabric '{}'; '{}' must begin with shm://, verbs:// or tcp://",
                            parsed.scheme, url));
  }
  std::string_view rest = url.substr(colon + 3);
  const auto slash = rest.rfind('/');
  const std::string_view before =
      slash == std::string_view::npos ? std::string_view() : rest.substr(0, slash);
  if (is_remote) {
    if (slash == std::string_view::npos) {
      return fail(Errc::invalid_argument, "open",
                  fmt::format("'{0}' names no store; write {1}://HOST/NAME or {1}://HOST:PORT/NAME", url,
                              parsed.scheme));
    }
    for (std::string_view hosts = before;;) {
      const auto comma = hosts.find(',');
      auto host = net::parse_host_port(hosts.substr(0, comma), default_port);
      if (!host) return std::unexpected(std::move(host.error()));
      parsed.hosts.push_back(std::move(*host));
      if (comma == std::string_view::npos) break;
      hosts.remove_prefix(comma + 1);
    }
  } else if (slash != std::string_view::npos) {
    if (!before.starts_with('/')) {
      return fail(Errc::invalid_argument, "open",
                  fmt::format("the folder in '{}' must be absolute: shm:///folder/name", url));
    }
    parsed.directory = before;
  }
  if (slash != std::string_view::npos) rest = rest.substr(slash + 1);
  parsed.name = rest;
  if (!is_store_name(rest)) {
    return fail(
        Errc::invalid_argument, "open",
        fmt::format("'{}' is no store name; use 1 to 64 letters, digits, '.', '_' or '-', and no '.' first",
                    rest));
  }
  return parsed;
}

Result<std::shared_ptr<Fabric>> attach(std::string_view url, const Access& access) {
  const Result<Url> parsed = parse_url(url);
  if (!parsed) return std::unexpected(parsed.error());
  if (parsed->scheme != "shm") return attach_remote(*parsed, access);
  return shm::attach(parsed->name, with_directory(access, *parsed));
}

Result<std::shared_ptr<Fabric>> create(std::string_view url, const Access& access, const Plan& plan) {
  const Result<Url> parsed = parse_here(url, "create", create_there);
  if (!parsed) return std::unexpected(parsed.error());
  return shm::create(parsed->name, with_directory(access, *parsed), plan);
}

Result<void> destroy(std::string_view url, const Access& access) {
  const Result<Url> parsed = parse_here(url, "destroy", "remove it there: loch rm {}");
  if (!parsed) return std::unexpected(parsed.error());
  return shm::destroy(parsed->name, with_directory(access, *parsed));
}

Result<std::vector<std::string>> list(const Access& access) { return shm::list(access); }

namespace remote {

Result<void> check_network(const Target& target, Atomics atomics) {
  if (target.scheme != "tcp" || atomics != Atomics::device) return {};
  return fail(
      Errc::incompatible, "open",
      fmt::format("{}: the words of this store are changed by an RDMA device; open it as verbs://{}/{}",
                  target.text(), target.host.text(), target.store));
}

std::unique_ptr<RemotePort> make_port(RemoteFabric& fabric, const Target& target, std::shared_ptr<Link> link,
                                      Link::Joined joined, base::Nanos within_ns) {
  if (target.scheme == "verbs")
    return std::make_unique<verbs::VerbsPort>(fabric, target.source, link, std::move(joined), within_ns);
  return std::make_unique<tcp::TcpPort>(fabric, std::move(link), std::move(joined), within_ns);
}

}  // namespace remote

}  // namespace loch::fabric
