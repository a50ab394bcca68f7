#include "cluster/zookeeper_session.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <utility>
#include <zookeeper/zookeeper.h>

#include "net/look_up.h"

namespace loch::cluster {
namespace {

constexpr std::uint16_t default_port = 2181;

ZooKeeperSession::Code code_of(int rc) {
  using Code = ZooKeeperSession::Code;
  switch (rc) {
    case ZOK:
      return Code::ok;
    case ZNONODE:
      return Code::missing;
    case ZNODEEXISTS:
      return Code::exists;
    case ZBADVERSION:
      return Code::changed;
    case ZNOAUTH:
    case ZAUTHFAILED:
    case ZINVALIDACL:
      return Code::forbidden;
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
    case ZINVALIDSTATE:
    case ZSESSIONEXPIRED:
    case ZSESSIONMOVED:
    case ZCLOSING:
    case ZNOTREADONLY:
      return Code::lost;
    default:
      return Code::other;
  }
}

std::unexpected<Error> wrong(std::string what) {
  return fail(Errc::invalid_argument, "cluster",
              fmt::format("{}; write zookeeper://HOST:PORT,HOST:PORT/PATH", what));
}

}  // namespace

Result<ZooKeeperAddress> ZooKeeperAddress::parse(std::string_view text) {
  ZooKeeperAddress address;
  // As in without_password: a password may have any characters.
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    address.credentials = text.substr(0, at);
    text.remove_prefix(at + 1);
    // Neither is repeated: the text of an error is for everybody.
    const std::size_t colon = address.credentials.find(':');
    if (colon == 0 || colon >= address.credentials.size() - 1)
      return wrong("what stands before the last '@' is no USER:PASSWORD");
  }
  const std::size_t slash = text.find('/');
  const std::string_view hosts = text.substr(0, slash);
  for (std::size_t begin = 0; begin <= hosts.size();) {
    const std::size_t end = std::min(hosts.find(',', begin), hosts.size());
    auto host = net::parse_host_port(hosts.substr(begin, end - begin), default_port);
    // Without a path it may be a password whose '@' was forgotten.
    if (!host && slash == std::string_view::npos)
      return wrong("what it names is no HOST:PORT,.../PATH, nor USER:PASSWORD@HOST:PORT,.../PATH");
    if (!host) return wrong(host.error().detail);
    address.hosts.push_back(std::move(*host));
    begin = end + 1;
  }
  address.path = slash == std::string_view::npos ? "" : text.substr(slash);
  if (address.path.ends_with('/')) address.path.pop_back();
  if (address.path.empty()) return wrong("ZooKeeper keeps a cluster under a path, such as /loch");
  const std::string ended = address.path + "/";
  for (const std::string_view bad : {"//", "/./", "/../"}) {
    if (ended.contains(bad)) return wrong(fmt::format("'{}' is no path", address.path));
  }
  return address;
}

std::string ZooKeeperAddress::servers() const {
  std::string text;
  for (const net::HostPort& host : hosts) text += (text.empty() ? "" : ",") + host.text();
  return text;
}

// Numbers, since the client would look up names before each attempt, and takes no [::1]. And an odd count of
// them: the client goes two addresses on when one fails, and pauses at the end of the list only; of an even
// count it tries every other one, without end and without a pause.
Result<std::string> ZooKeeperAddress::look_up(base::Nanos deadline) const {
  std::vector<std::string> found;
  std::string why;
  for (const net::HostPort& host : hosts) net::begin_look_up(host);
  for (const net::HostPort& host : hosts) {
    auto addresses = net::look_up_all(host, deadline);
    if (!addresses) {
      why = addresses.error().detail;
      continue;
    }
    for (net::SocketAddress& each : *addresses) {
      std::array<char, NI_MAXHOST> number{};
      if (::getnameinfo(each.get(), each.length, number.data(), number.size(), nullptr, 0, NI_NUMERICHOST) ==
          0)
        found.push_back(fmt::format("{}:{}", number.data(), host.port));
    }
  }
  if (found.empty())
    return fail(Errc::unavailable, "cluster",
                fmt::format("none of ZooKeeper's hosts {} can be found: {}", servers(), why));
  // The resolver's order is no news.
  std::ranges::sort(found);
  if (found.size() % 2 == 0) found.push_back(found.front());
  return fmt::format("{}", fmt::join(found, ","));
}

// An answer that is awaited. Both who waits and ZooKeeper's thread hold it; the last one lets go.
struct ZooKeeperSession::Pending {
  explicit Pending(ZooKeeperSignals& its_signals) : signals(its_signals) {}
  ZooKeeperSignals& signals;
  std::optional<Answer> answer{};
};

// What ZooKeeper's threads call.
struct ZooKeeperSession::Callbacks {
  using Held = std::shared_ptr<Pending>;

  static void finish(const void* data, int rc, const Stat* stat,
                     const std::function<void(Answer&)>& fill = {}) {
    const std::unique_ptr<const Held> held(static_cast<const Held*>(data));
    Answer answer{.code = code_of(rc), .text = zerror(rc)};
    if (answer.code == Code::ok && stat != nullptr) {
      answer.version = static_cast<std::uint64_t>(stat->version) + 1;
      answer.owner = static_cast<std::uint64_t>(stat->ephemeralOwner);
    }
    if (answer.code == Code::ok && fill) fill(answer);
    ZooKeeperSignals& signals = (*held)->signals;
    const std::scoped_lock lock(signals.mutex);
    (*held)->answer = std::move(answer);
    signals.changed.notify_all();
  }
  static void of_data(int rc, const char* value, int length, const Stat* stat, const void* data) {
    finish(data, rc, stat, [&](Answer& answer) {
      if (value != nullptr && length > 0) answer.data.assign(value, static_cast<std::size_t>(length));
    });
  }
  static void of_stat(int rc, const Stat* stat, const void* data) { finish(data, rc, stat); }
  static void of_strings(int rc, const String_vector* strings, const void* data) {
    finish(data, rc, nullptr, [&](Answer& answer) {
      if (strings != nullptr) answer.children.assign(strings->data, strings->data + strings->count);
    });
  }
  static void of_string(int rc, const char* /*name*/, const void* data) { finish(data, rc, nullptr); }
  static void of_event(zhandle_t* /*handle*/, int type, int /*state*/, const char* /*path*/, void* context) {
    auto& signals = *static_cast<ZooKeeperSignals*>(context);
    const std::scoped_lock lock(signals.mutex);
    if (type != ZOO_SESSION_EVENT) ++signals.watches_fired;
    signals.changed.notify_all();
  }
};

Result<std::shared_ptr<ZooKeeperSession>> ZooKeeperSession::begin(const ZooKeeperAddress& address,
                                                                  ZooKeeperSignals& signals,
                                                                  base::Nanos deadline) {
  // What it would write to standard error is in our errors.
  zoo_set_debug_level(static_cast<ZooLogLevel>(0));
  auto addresses = address.look_up(deadline);
  if (!addresses) return std::unexpected(std::move(addresses.error()));
  std::shared_ptr<ZooKeeperSession> session(
      new ZooKeeperSession(address.credentials, std::move(*addresses), signals));
  session->handle_ =
      zookeeper_init(session->addresses_.c_str(), &Callbacks::of_event,
                     static_cast<int>(timeout_ns / base::millisecond_ns), nullptr, &signals, 0);
  if (session->handle_ == nullptr)
    return fail(Errc::io, "cluster", fmt::format("ZooKeeper's client: {}", std::strerror(errno)));
  // Nothing is to be looked up in what are no names.
  zoo_set_servers_resolution_delay(session->handle_, -1);
  return session;
}

ZooKeeperSession::~ZooKeeperSession() {
  if (handle_ != nullptr) zookeeper_close(handle_);
}

bool ZooKeeperSession::is_over() const { return is_unrecoverable(handle_) != ZOK; }

bool ZooKeeperSession::await_connected(base::Nanos deadline) {
  const base::Clock clock;
  std::unique_lock lock(signals_.mutex);
  while (zoo_state(handle_) != ZOO_CONNECTED_STATE || !introduce()) {
    const base::Nanos now = clock.now();
    if (is_over() || now >= deadline) return false;
    signals_.changed.wait_for(lock, std::chrono::nanoseconds(deadline - now));
  }
  return true;
}

// Said before anything else; the client says it again whenever it connects anew. Before it has connected once
// it may refuse to take it. False if the connection is lost again.
bool ZooKeeperSession::introduce() {
  if (is_introduced_ || credentials_.empty()) return true;
  is_introduced_ = zoo_add_auth(handle_, "digest", credentials_.data(), static_cast<int>(credentials_.size()),
                                nullptr, nullptr) == ZOK;
  return is_introduced_;
}

std::uint64_t ZooKeeperSession::id() const {
  return static_cast<std::uint64_t>(zoo_client_id(handle_)->client_id);
}

ZooKeeperSession::Answer ZooKeeperSession::ask(base::Nanos deadline,
                                               const std::function<int(const void*)>& post) {
  const auto pending = std::make_shared<Pending>(signals_);
  // The callback deletes it, and is called in any case: by ~ZooKeeperSession at the latest.
  auto* const held = new Callbacks::Held(pending);
  if (const int rc = post(held); rc != ZOK) {
    delete held;
    return {.code = code_of(rc), .text = zerror(rc)};
  }
  const base::Clock clock;
  std::unique_lock lock(signals_.mutex);
  while (!pending->answer) {
    const base::Nanos now = clock.now();
    if (now >= deadline) return {.code = Code::lost, .text = "no answer"};
    signals_.changed.wait_for(lock, std::chrono::nanoseconds(deadline - now));
  }
  return *pending->answer;
}

ZooKeeperSession::Answer ZooKeeperSession::get(const std::string& path, base::Nanos deadline) {
  return ask(deadline, [&](const void* pending) {
    return zoo_aget(handle_, path.c_str(), 0, &Callbacks::of_data, pending);
  });
}

ZooKeeperSession::Answer ZooKeeperSession::exists(const std::string& path, bool watch, base::Nanos deadline) {
  return ask(deadline, [&](const void* pending) {
    return zoo_aexists(handle_, path.c_str(), watch ? 1 : 0, &Callbacks::of_stat, pending);
  });
}

ZooKeeperSession::Answer ZooKeeperSession::children(const std::string& path, base::Nanos deadline) {
  return ask(deadline, [&](const void* pending) {
    return zoo_aget_children(handle_, path.c_str(), 0, &Callbacks::of_strings, pending);
  });
}

ZooKeeperSession::Answer ZooKeeperSession::create(const std::string& path, const std::string& data,
                                                  Lifetime lifetime, base::Nanos deadline) {
  const ACL_vector& access = credentials_.empty() ? ZOO_OPEN_ACL_UNSAFE : ZOO_CREATOR_ALL_ACL;
  return ask(deadline, [&](const void* pending) {
    return zoo_acreate(handle_, path.c_str(), data.data(), static_cast<int>(data.size()), &access,
                       lifetime == Lifetime::of_session ? ZOO_EPHEMERAL : 0, &Callbacks::of_string, pending);
  });
}

ZooKeeperSession::Answer ZooKeeperSession::set(const std::string& path, const std::string& data,
                                               std::uint64_t version, base::Nanos deadline) {
  return ask(deadline, [&](const void* pending) {
    return zoo_aset(handle_, path.c_str(), data.data(), static_cast<int>(data.size()),
                    static_cast<int>(version) - 1, &Callbacks::of_stat, pending);
  });
}

}  // namespace loch::cluster
