#include "cluster/zookeeper_coordinator.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <system_error>
#include <utility>

#include "fabric/cluster_map.h"
#include "fabric/map_message.h"
#include "net/message.h"

namespace loch::cluster {
namespace {

using Code = ZooKeeperSession::Code;
using Lifetime = ZooKeeperSession::Lifetime;

constexpr base::Nanos patience_ns = 5 * base::second_ns;
constexpr base::Nanos pause_ns = 100 * base::millisecond_ns;
// Between looks at what nothing tells of: whether ZooKeeper answers again, whether a name is free.
constexpr base::Nanos again_ns = base::second_ns;

std::chrono::nanoseconds up_to(base::Nanos wanted, base::Nanos now, base::Nanos deadline) {
  return std::chrono::nanoseconds(std::min(wanted, deadline - std::min(now, deadline)));
}

}  // namespace

Result<std::unique_ptr<Coordinator>> ZooKeeperCoordinator::open(std::string_view where) {
  auto address = ZooKeeperAddress::parse(where);
  if (!address) return std::unexpected(std::move(address.error()));
  return std::make_unique<ZooKeeperCoordinator>(std::move(*address));
}

ZooKeeperCoordinator::~ZooKeeperCoordinator() {
  {
    const std::scoped_lock lock(signals_.mutex);
    stop_ = true;
    signals_.changed.notify_all();
  }
  if (announcer_.joinable()) announcer_.join();
  session_.reset();  // while the signals are there that its threads touch
}

std::unexpected<Error> ZooKeeperCoordinator::failure(Errc code, const std::string& path,
                                                     std::string_view what) const {
  return fail(code, "cluster", fmt::format("ZooKeeper at {}, {}: {}", address_.servers(), path, what));
}

// Sessions are begun and end without the lock: names are looked up, and threads end that take the same one.
Result<std::shared_ptr<ZooKeeperSession>> ZooKeeperCoordinator::session(base::Nanos deadline) {
  const auto is_of_use = [this] { return session_ != nullptr && !session_->is_over(); };
  {
    const std::scoped_lock lock(signals_.mutex);
    if (is_of_use()) return session_;
  }
  auto begun = Session::begin(address_, signals_, deadline);
  if (!begun) return begun;
  std::shared_ptr<Session> former;
  const std::scoped_lock lock(signals_.mutex);
  if (is_of_use()) return session_;  // another thread began one meanwhile
  former = std::exchange(session_, *begun);
  return begun;
}

// If the servers' names mean other addresses by now, the next call has a session there.
void ZooKeeperCoordinator::drop_if_moved(const std::shared_ptr<Session>& silent) {
  const auto addresses = address_.look_up(clock_.now() + base::second_ns);
  if (!addresses || *addresses == silent->addresses()) return;
  const std::scoped_lock lock(signals_.mutex);
  if (session_ == silent) session_.reset();  // not the last one: the caller has it
}

template <class Ask>
Result<ZooKeeperCoordinator::Asked> ZooKeeperCoordinator::ask(const std::string& path, base::Nanos deadline,
                                                              Ask ask) {
  Asked asked{.answer = {}};
  while (true) {
    auto open = session(deadline);
    // A resolver may be there later than this host, as at a boot.
    if (!open && open.error().code != Errc::unavailable) return std::unexpected(std::move(open.error()));
    if (open && (*open)->await_connected(deadline)) {
      asked.answer = ask(**open, deadline);
      asked.session = (*open)->id();
    } else {
      asked.answer = {.code = Code::lost};
    }
    switch (asked.answer.code) {
      case Code::lost:
        break;
      case Code::forbidden:
        return failure(Errc::permission, path,
                       address_.credentials.empty() ? "it is for a user; write zookeeper://USER:PASSWORD@..."
                                                    : "it is not for this user, or with another password");
      case Code::other:
        return failure(Errc::io, path, asked.answer.text);
      default:
        return asked;
    }
    asked.is_unsure |= open.has_value();
    std::unique_lock lock(signals_.mutex);
    if (stop_ || clock_.now() >= deadline) {
      lock.unlock();
      if (!open) return std::unexpected(std::move(open.error()));
      drop_if_moved(*open);
      return failure(Errc::unavailable, path, "no answer in time");
    }
    signals_.changed.wait_for(lock, up_to(pause_ns, clock_.now(), deadline));
  }
}

// With the nodes above it, if they are missing.
Result<ZooKeeperCoordinator::Asked> ZooKeeperCoordinator::create(const std::string& path,
                                                                 const std::string& data, Lifetime lifetime,
                                                                 base::Nanos deadline) {
  const auto create_itself = [&] {
    return ask(path, deadline, [&](Session& session, base::Nanos until) {
      return session.create(path, data, lifetime, until);
    });
  };
  auto created = create_itself();
  const std::size_t slash = path.rfind('/');
  if (!created || created->answer.code != Code::missing || slash == 0) return created;
  if (auto above = create(path.substr(0, slash), "", Lifetime::lasting, deadline); !above) return above;
  return create_itself();
}

Result<Versioned> ZooKeeperCoordinator::read_map() {
  const auto got =
      ask(map_path(), clock_.now() + patience_ns,
          [this](Session& session, base::Nanos deadline) { return session.get(map_path(), deadline); });
  if (!got) return std::unexpected(got.error());
  if (got->answer.code != Code::ok)
    return failure(Errc::not_found, map_path(), "there is no cluster yet; `loch cluster add` makes one");
  const auto message = net::parse_message(got->answer.data);
  if (!message) return failure(Errc::corrupt, map_path(), message.error().detail);
  auto map = fabric::cluster::map_of(*message);
  if (!map) return failure(Errc::corrupt, map_path(), map.error().detail);
  return Versioned{.map = std::move(*map), .version = got->answer.version};
}

Result<void> ZooKeeperCoordinator::write_map(const fabric::ClusterMap& map, std::uint64_t version) {
  const base::Nanos deadline = clock_.now() + patience_ns;
  const std::string data = fabric::cluster::to_message(map).dump();
  const auto written = version == 0 ? create(map_path(), data, Lifetime::lasting, deadline)
                                    : ask(map_path(), deadline, [&](Session& session, base::Nanos until) {
                                        return session.set(map_path(), data, version, until);
                                      });
  if (!written) return std::unexpected(written.error());
  if (written->answer.code == Code::ok) return {};
  if (written->is_unsure) {
    // It may be our own from before the connection was lost.
    const auto got = ask(map_path(), deadline, [this](Session& session, base::Nanos until) {
      return session.get(map_path(), until);
    });
    if (!got) return std::unexpected(got.error());
    if (got->answer.code == Code::ok && got->answer.version == version + 1 && got->answer.data == data)
      return {};
  }
  return failure(Errc::changed, map_path(), "another map is there than the one that was read");
}

Result<bool> ZooKeeperCoordinator::announce_once(const Present& self, base::Nanos deadline) {
  const std::string path = members_path() + "/" + self.name;
  const std::string data = net::Message{{"at", self.at.text()}}.dump();
  auto asked = create(path, data, Lifetime::of_session, deadline);
  if (!asked) return std::unexpected(std::move(asked.error()));
  if (asked->answer.code == Code::exists) {
    const std::uint64_t mine = asked->session;
    asked =
        ask(path, deadline, [&](Session& session, base::Nanos until) { return session.get(path, until); });
    if (!asked) return std::unexpected(std::move(asked.error()));
    if (asked->answer.code != Code::ok || asked->answer.owner != mine || asked->session != mine) return false;
    if (asked->answer.data != data) {
      const std::uint64_t version = asked->answer.version;
      asked = ask(path, deadline, [&](Session& session, base::Nanos until) {
        return session.set(path, data, version, until);
      });
      if (!asked) return std::unexpected(std::move(asked.error()));
    }
  }
  if (asked->answer.code != Code::ok) return false;
  const std::scoped_lock lock(signals_.mutex);
  announced_in_ = asked->session;
  return true;
}

Result<void> ZooKeeperCoordinator::announce(const Present& self) {
  if (!fabric::is_node_name(self.name))
    return fail(Errc::invalid_argument, "cluster", fmt::format("{:?} is no name of a node", self.name));
  const std::scoped_lock announcing(announcing_);
  const base::Nanos until = clock_.now() + 2 * Session::timeout_ns;
  while (true) {
    const auto done = announce_once(self, clock_.now() + patience_ns);
    if (!done) return std::unexpected(done.error());
    std::unique_lock lock(signals_.mutex);
    if (*done) {
      self_ = self;
      return start_announcer();
    }
    if (clock_.now() >= until) return name_is_taken(self.name);
    signals_.changed.wait_for(lock, up_to(pause_ns, clock_.now(), until));
  }
}

Result<void> ZooKeeperCoordinator::start_announcer() {
  if (announcer_.joinable()) return {};
  try {
    announcer_ = std::thread([this] { keep_announced(); });
  } catch (const std::system_error& error) {
    return fail(Errc::unavailable, "cluster",
                fmt::format("no thread that announces '{}' again: {}; raise `ulimit -u`, or TasksMax of the "
                            "unit",
                            self_->name, error.code().message()));
  }
  return {};
}

std::unexpected<Error> ZooKeeperCoordinator::name_is_taken(const std::string& name) const {
  return failure(Errc::exists, members_path() + "/" + name,
                 "another lochd that runs says that it is this node");
}

Result<bool> ZooKeeperCoordinator::announce_again() {
  const std::scoped_lock announcing(announcing_);
  auto done = announce_once(*self_, clock_.now() + again_ns);
  if (done && !*done) return name_is_taken(self_->name);
  return done;
}

void ZooKeeperCoordinator::keep_announced() {
  std::string told;
  std::optional<base::Nanos> taken_since;
  std::unique_lock lock(signals_.mutex);
  while (!stop_) {
    if (session_ != nullptr && !session_->is_over() && session_->id() == announced_in_) {
      signals_.changed.wait_for(lock, std::chrono::nanoseconds(again_ns));
      continue;
    }
    lock.unlock();
    const auto done = announce_again();
    // It may be this host's own of a session that is over, which servers that were lost have not ended.
    const bool is_taken = !done && done.error().code == Errc::exists;
    if (!is_taken) {
      taken_since.reset();
    } else if (!taken_since) {
      taken_since = clock_.now();
    }
    const bool may_be_own = is_taken && clock_.now() - *taken_since < 2 * Session::timeout_ns;
    const bool is_trouble = !done && done.error().code != Errc::unavailable && !may_be_own;
    const bool is_news = is_trouble && done.error().detail != told;
    if (is_news && lost_name_) lost_name_(done.error().message());
    if (is_news || done) told = done ? "" : done.error().detail;
    lock.lock();
    if (!done && !stop_) signals_.changed.wait_for(lock, std::chrono::nanoseconds(again_ns));
  }
}

Result<std::vector<Present>> ZooKeeperCoordinator::present() {
  const base::Nanos deadline = clock_.now() + patience_ns;
  auto names = ask(members_path(), deadline, [this](Session& session, base::Nanos until) {
    return session.children(members_path(), until);
  });
  if (!names) return std::unexpected(std::move(names.error()));
  std::ranges::sort(names->answer.children);
  std::vector<Present> present;
  for (const std::string& name : names->answer.children) {
    if (!fabric::is_node_name(name)) continue;  // no host announces itself by it
    const std::string path = members_path() + "/" + name;
    const auto got =
        ask(path, deadline, [&](Session& session, base::Nanos until) { return session.get(path, until); });
    if (!got) return std::unexpected(got.error());
    if (got->answer.code == Code::missing) continue;  // it has gone meanwhile
    const auto said = net::parse_message(got->answer.data);
    if (!said)
      return failure(Errc::corrupt, path,
                     fmt::format("no host of a cluster says this ({}); remove it", said.error().detail));
    auto at = net::parse_host_port(net::text_of(*said, "at"), fabric::default_port);
    if (!at) return failure(Errc::corrupt, path, "no host of a cluster says this; remove it");
    present.push_back({.name = name, .at = std::move(*at)});
  }
  return present;
}

void ZooKeeperCoordinator::wait_for_change(std::uint64_t version, base::Nanos at_most_ns) {
  const base::Nanos deadline = clock_.now() + at_most_ns;
  while (clock_.now() < deadline) {
    std::unique_lock lock(signals_.mutex);
    const std::uint64_t fired = signals_.watches_fired;
    lock.unlock();
    const auto found =
        ask(map_path(), std::min(deadline, clock_.now() + patience_ns),
            [this](Session& session, base::Nanos until) { return session.exists(map_path(), true, until); });
    // A node that is missing has version 0, like its answer.
    if (found && found->answer.version != version) return;
    lock.lock();
    // A new session has no watch; and without an answer there may be none.
    const auto has_watch = [&] { return session_ != nullptr && !session_->is_over(); };
    const base::Nanos look_again_at = found ? deadline : std::min(deadline, clock_.now() + again_ns);
    while (!stop_ && signals_.watches_fired == fired && (!found || has_watch()) &&
           clock_.now() < look_again_at)
      signals_.changed.wait_for(lock, up_to(at_most_ns, clock_.now(), look_again_at));
    if (stop_) return;
  }
}

}  // namespace loch::cluster
