#include "fabric/host/sessions.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fmt/format.h>
#include <tuple>
#include <utility>

#include "fabric/bus_guard.h"
#include "fabric/host/log.h"
#include "fabric/remote/protocol.h"
#include "fabric/remote/wait.h"

namespace loch::fabric::host {
namespace {

// What a host keeps of a session beyond its own end.
std::string note_of(const std::string& name, NodeSet reached) {
  return fmt::format("{} {:x}", name, reached);
}

std::pair<std::string, NodeSet> read_note(const std::string& note) {
  const std::size_t space = note.rfind(' ');
  NodeSet reached = all_nodes;
  if (space == std::string::npos) return {note, reached};
  std::from_chars(note.data() + space + 1, note.data() + note.size(), reached, 16);
  return {note.substr(0, space), reached};
}

}  // namespace

Sessions::Sessions(const Host::Options& options, verbs::Lender* lender, std::function<void()> wake,
                   std::shared_ptr<net::ClientCredentials> credentials)
    : options_(options),
      lender_(lender),
      wake_(std::move(wake)),
      credentials_(std::move(credentials)),
      agent_({.gone = [this](Id id) { note(&gone_, id); }}) {
  if (!options_.cluster_of) return;
  fencer_ = std::make_unique<Fencer>(
      options_, [this](Fencer::Id id) { note(&fenced_everywhere_, id); },
      [this](const Fencer::Other& other) { return find(other); });
}

// Of the agent's thread, and of the fencer's.
void Sessions::note(std::vector<Id>* list, Id id) {
  {
    const std::scoped_lock lock(mutex_);
    list->push_back(id);
  }
  wake_();
}

// Of the fencer's thread: where the node is now, which may have left and come back elsewhere; nowhere, if the
// cluster does without it.
std::optional<remote::Target> Sessions::find(const Fencer::Other& other) const {
  const auto of = options_.cluster_of(other.at.store);
  if (!of || !*of) return other.at;
  const auto& nodes = (*of)->map.nodes;
  if (other.node >= nodes.size()) return other.at;  // of a map that is older
  const ClusterMap::Node& now = nodes[other.node];
  if (now.state == ClusterMap::NodeState::gone || now.name != other.name) return std::nullopt;
  remote::Target at = other.at;
  at.host = now.at;
  return at;
}

void Sessions::begin(Id id, Id link, std::shared_ptr<OpenedStore> store, std::string name,
                     std::unique_ptr<net::Stream> stream) {
  const bool reads_only = store->reads_only;
  const auto may = reads_only ? tcp::Agent::May::write_own : tcp::Agent::May::change_all;
  const std::shared_ptr<Fabric> fabric = store->fabric;
  std::byte* const time = store->time;
  store->raise_time();
  sessions_[id] = {
      .link = link, .store = std::move(store), .reads_only = reads_only, .name = std::move(name)};
  count_.fetch_add(1);
  agent_.add(id, std::move(stream), fabric, time, may);
}

void Sessions::note_queue_pair(Id id) {
  Session& session = sessions_.at(id);
  if (!std::exchange(session.has_pair, true)) ++pairs_;
}

bool Sessions::has(Id link, Id id) const {
  const auto found = sessions_.find(id);
  return found != sessions_.end() && found->second.link == link;
}

std::size_t Sessions::size_by_read_key() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(sessions_, [](const auto& each) { return each.second.store->by_read_key; }));
}

// Of which each has one at most.
std::size_t Sessions::numbers_by_read_key(const std::string& store) const {
  const auto has_one = [&store](const auto& each) {
    const Session& session = each.second;
    return session.reads_only && session.store->by_read_key && session.store->name == store &&
           !session.clients.empty();
  };
  return static_cast<std::size_t>(std::ranges::count_if(sessions_, has_one) +
                                  std::ranges::count_if(condemned_, has_one));
}

Result<bool> Sessions::claim(Id id, std::uint32_t client, NodeSet reached) {
  Session& session = sessions_.at(id);
  OpenedStore& store = *session.store;
  // One, since it has the words of one to write.
  if (session.reads_only && !session.clients.empty())
    return fail(Errc::permission, "host", "a session that only reads has one client number");
  const std::size_t numbers_max = options_.readers.numbers_max;
  if (store.by_read_key && numbers_by_read_key(store.name) >= numbers_max) {
    return fail(Errc::no_space, "host",
                fmt::format("{} clients that know the key for reading alone have {} open, the most there can "
                            "be; close some",
                            numbers_max, store.name));
  }
  auto claimed = store.way->claim_presence(client);
  if (!claimed || !*claimed) return claimed;
  if (session.reads_only) {
    const auto words = options_.readers.admit(*store.fabric, client);
    if (!words || !*words) {
      store.way->release_presence(client);
      if (!words) return std::unexpected(words.error());
      return false;
    }
    agent_.set_own_words(id, **words);
  }
  // Unless it is noted, nobody ends it on the other hosts should this one end before it.
  if (!session.name.empty()) {
    if (auto noted = store.fabric->note_session(client, note_of(session.name, reached)); !noted) {
      if (session.reads_only) agent_.set_own_words(id, {});
      let_go(session, client);
      return std::unexpected(std::move(noted.error()));
    }
  }
  session.clients.insert(client);
  session.reached = reached;
  return true;
}

void Sessions::release(Id id, std::uint32_t client) {
  Session& session = sessions_.at(id);
  if (session.clients.erase(client) == 0) return;
  if (session.reads_only) agent_.set_own_words(id, {});
  let_go(session, client);
}

// Nothing that it posted anywhere happens any more. What is left of one that wrote, others settle; one that
// read has left nothing.
void Sessions::let_go(const Session& session, std::uint32_t client) {
  OpenedStore& store = *session.store;
  // A note that stays ends a session once more that has ended.
  if (!session.name.empty()) std::ignore = store.fabric->note_session(client, {});
  if (session.reads_only) options_.readers.dismiss(*store.fabric, client);
  store.way->release_presence(client);
}

void Sessions::end(Id id, End how) {
  agent_.remove(id);
  if (lender_ != nullptr) lender_->remove(id);
  // Nothing that it posted here happens any more.
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session session = std::move(found->second);
  sessions_.erase(found);
  count_.fetch_sub(1);
  if (session.has_pair) --pairs_;
  if (stopping_ && session.store->cluster) return;
  // One that holds no number here has seen nothing here that it could rely on elsewhere.
  const bool held_others_up = !session.clients.empty();
  if (how == End::is_dead && held_others_up) fenced_.fetch_add(1);
  if (how != End::leaves && session.store->cluster && held_others_up) return condemn(std::move(session));
  for (const std::uint32_t client : session.clients) let_go(session, client);
}

template <class IsMeant>
std::size_t Sessions::end_where(IsMeant is_meant, End how) {
  std::vector<Id> meant;
  for (const auto& [id, session] : sessions_) {
    if (is_meant(id, session)) meant.push_back(id);
  }
  for (const Id id : meant) end(id, how);
  return meant.size();
}

void Sessions::end_those_of(Id link) {
  end_where([link](Id, const Session& session) { return session.link == link; }, End::is_dead);
}

void Sessions::fence(const std::string& name) {
  if (name.empty()) return;  // so are all that are of no cluster
  end_where([&name](Id, const Session& session) { return session.name == name; }, End::is_dead);
}

// What it has posted to other hosts of the cluster may happen still, and rely on what it has here.
void Sessions::condemn(Session session) {
  const Fencer::Id id = next_condemned_++;
  std::vector<Fencer::Other> others;
  OpenedStore& store = *session.store;
  const Host::Options::Cluster& of = *cluster_of(store);
  for (std::uint32_t node = 0; node < of.map.nodes.size(); ++node) {
    const ClusterMap::Node& other = of.map.nodes[node];
    if (node == of.node || other.state == ClusterMap::NodeState::gone) continue;
    if ((session.reached & node_bit(node)) == 0) continue;
    others.push_back({.node = node,
                      .name = other.name,
                      .at = {.scheme = "tcp",
                             .host = other.at,
                             .store = store.name,
                             .credentials = credentials_,
                             .node = other.name}});
  }
  const std::string name = session.name;
  condemned_[id] = std::move(session);
  fencer_->fence(id, name, std::move(others));
}

Result<void> Sessions::end_those_of_before(const std::shared_ptr<OpenedStore>& store) {
  if (looked_for_those_of_before_.contains(store->name)) return {};
  const auto noted = store->fabric->noted_sessions();
  if (!noted) return std::unexpected(noted.error());
  for (const auto& [client, note] : *noted) {
    const auto [name, reached] = read_note(note);
    const auto claimed = store->way->claim_presence(client);
    if (!claimed) return std::unexpected(claimed.error());
    if (*claimed) {
      condemn({.link = 0, .store = store, .name = name, .reached = reached, .clients = {client}});
    } else if (!is_condemned(store->name, client)) {
      return fail(Errc::unavailable, "host",
                  fmt::format("the lochd that lent {} before has not ended yet; wait for it, or end it",
                              store->name));
    }
  }
  looked_for_those_of_before_.insert(store->name);
  return {};
}

bool Sessions::is_condemned(const std::string& store, std::uint32_t client) const {
  return std::ranges::any_of(condemned_, [&](const auto& each) {
    return each.second.store->name == store && each.second.clients.contains(client);
  });
}

void Sessions::pardon(Fencer::Id condemned) {
  const auto found = condemned_.find(condemned);
  if (found == condemned_.end()) return;
  for (const std::uint32_t client : found->second.clients) let_go(found->second, client);
  condemned_.erase(found);
}

const Host::Options::Cluster* Sessions::cluster_of(OpenedStore& store) const {
  if (!store.cluster) return nullptr;
  // What is there in a store that is of none any more is of no use to anybody, and stays as it is.
  if (auto now = options_.cluster_of(store.name); now && *now) store.cluster = std::move(*now);
  return &*store.cluster;
}

void Sessions::look() {
  std::vector<Id> gone;
  std::vector<Id> fenced_everywhere;
  {
    const std::scoped_lock lock(mutex_);
    gone = std::exchange(gone_, {});
    fenced_everywhere = std::exchange(fenced_everywhere_, {});
  }
  end_those_of_lost_stores();
  for (const Id id : gone) end(id, End::is_dead);
  for (const Fencer::Id condemned : fenced_everywhere) pardon(condemned);
  keep_time();
  look_closely();
  end_idle_now();
  end_those_of_paused_stores();
}

// Those are among them that the agent has broken off.
void Sessions::end_those_of_lost_stores() {
  if (!any_range_lost()) return;
  std::map<std::string, std::size_t> ended;  // by what is wrong with their store
  const auto is_lost = [&ended](Id /*id*/, const Session& session) {
    const auto intact = session.store->fabric->intact();
    if (!intact) ++ended[intact.error().detail];
    return !intact;
  };
  end_where(is_lost, End::is_sent_away);
  for (const auto& [why, count] : ended)
    log(options_, Host::Level::warning, fmt::format("{}; ended its sessions: {}", why, count));
}

std::optional<base::Nanos> Sessions::look_in() const {
  if (sessions_.empty()) return std::nullopt;
  base::Nanos due = looked_closely_ns_ + look_every_ns();
  if (pairs_ != 0) due = std::min(due, kept_time_ns_ + tick_ns);
  const base::Nanos now = remote::precise_now();
  return due - std::min(due, now);
}

// The agent sees to that of the others.
void Sessions::keep_time() {
  if (pairs_ == 0) return;
  const base::Nanos now = remote::precise_now();
  if (now - kept_time_ns_ < tick_ns) return;
  kept_time_ns_ = now;
  for (const auto& [id, session] : sessions_) {
    if (session.has_pair) session.store->raise_time();
  }
}

// At what nobody tells of.
void Sessions::look_closely() {
  const base::Nanos now = remote::precise_now();
  if (now - looked_closely_ns_ < look_every_ns()) return;
  looked_closely_ns_ = now;
  end_silent_for(options_.silence_max_ns, {}, End::is_dead);
  end_those_of_removed_stores();
}

// They would go on with memory that nobody else ever sees, and keep it.
void Sessions::end_those_of_removed_stores() {
  std::map<const OpenedStore*, bool> was_removed;  // one of many sessions is asked for once
  const auto is_of_removed = [&was_removed](Id /*id*/, const Session& session) {
    const auto [found, is_new] = was_removed.try_emplace(session.store.get());
    if (is_new) found->second = !session.store->fabric->is_published();
    return found->second;
  };
  if (const std::size_t ended = end_where(is_of_removed, End::is_sent_away); ended != 0)
    log(options_, Host::Level::info, fmt::format("ended {} sessions of stores that were removed", ended));
}

// Of one store, or of all if it is not named.
void Sessions::end_silent_for(base::Nanos longest_ns, const std::string& store, End how) {
  const base::Nanos now = base::Clock().now();
  const auto is_silent = [&](Id id, const Session& session) {
    if (session.clients.empty()) return false;  // it holds nobody up
    if (!store.empty() && session.store->name != store) return false;
    const base::Nanos heard = agent_.last_heard(id);
    return heard != 0 && heard + longest_ns < now;  // it may be heard from just now
  };
  const std::size_t ended = end_where(is_silent, how);
  if (ended != 0)
    log(options_, Host::Level::debug, fmt::format("{} sessions were silent for too long", ended));
}

void Sessions::end_idle(const std::string& store, base::Nanos longer_than_ns) {
  {
    const std::scoped_lock lock(mutex_);
    idle_max_ns_[store] = longer_than_ns;
  }
  wake_();
}

void Sessions::end_idle_now() {
  std::map<std::string, base::Nanos> asked;
  {
    const std::scoped_lock lock(mutex_);
    asked = std::exchange(idle_max_ns_, {});
  }
  for (const auto& [store, longest_ns] : asked) end_silent_for(longest_ns, store, End::is_sent_away);
}

Result<Host::Pause> Sessions::pause(const std::string& store) {
  std::unique_lock lock(mutex_);
  ++paused_[store].pauses;
  wake_();
  const bool is_still = paused_changed_.wait_for(lock, std::chrono::nanoseconds(remote::answer_max_ns),
                                                 [&] { return paused_[store].is_still; });
  lock.unlock();
  Host::Pause paused([this, store] { resume(store); });
  if (is_still) return paused;
  return fail(Errc::timed_out, "pause",
              fmt::format("the sessions of {} have not ended in time; it is tried again", store));
}

void Sessions::resume(const std::string& store) {
  const std::scoped_lock lock(mutex_);
  const auto found = paused_.find(store);
  if (--found->second.pauses == 0) paused_.erase(found);
}

bool Sessions::is_paused(const std::string& store) const {
  const std::scoped_lock lock(mutex_);
  return paused_.contains(store);
}

void Sessions::end_those_of_paused_stores() {
  std::vector<std::string> stores;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [store, paused] : paused_) {
      if (!paused.is_still) stores.push_back(store);
    }
  }
  for (const std::string& store : stores) {
    end_where([&store](Id, const Session& session) { return session.store->name == store; },
              End::is_sent_away);
    const std::scoped_lock lock(mutex_);
    if (const auto found = paused_.find(store); found != paused_.end()) found->second.is_still = true;
  }
  if (!stores.empty()) paused_changed_.notify_all();
}

}  // namespace loch::fabric::host
