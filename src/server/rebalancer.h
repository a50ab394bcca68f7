// Rebalancer: follows the cluster's map where it may change, and brings what is here to where the map wants
// it.
//
// Each host moves only what it has itself, so nobody leads. One that has more shards than it should says in
// the map where they go (cluster/changes.h), hands them over (hash/handover.h), and says that they are there.
// One that leaves gives away all its shards, then its items (Shards::evacuate), and says that it is drained.
// Shards go a few at a time, so that none is closed for long. What can not be done now is tried again; what a
// host began before it was killed it goes on with.
//
// One thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hash/handover.h"
#include "hash/shards.h"
#include "server/member.h"

namespace loch::server {

class Rebalancer {
 public:
  // How much of the stores' indexes is closed at once, if it is of several shards: what is copied in less
  // than a second.
  static constexpr std::uint64_t usual_bytes_together = std::uint64_t{16} << 20;
  // `others`: how to get to other hosts. `member` and `host` outlive it.
  Rebalancer(fabric::Access others, Member& member, fabric::Host& host,
             std::uint64_t bytes_together = usual_bytes_together);
  ~Rebalancer() = default;
  Rebalancer(const Rebalancer&) = delete;
  Rebalancer& operator=(const Rebalancer&) = delete;

 private:
  // A client of one store, with a session on each host that answers.
  struct Way {
    std::string store;
    std::unique_ptr<memory::Attachment> attachment;
    std::unique_ptr<hash::Shards> shards;
  };
  // A shard that is to be elsewhere, of all stores.
  struct Move {
    std::uint32_t shard = 0;
    memory::RegionMap::Shard from;
    memory::RegionMap::Shard to;

    [[nodiscard]] bool is_reached_on(const Way& way) const {
      return way.attachment->node(from.home) != nullptr && way.attachment->node(to.home) != nullptr;
    }
    [[nodiscard]] hash::Handover on(Way& way) const { return {*way.attachment, from, to}; }
  };
  using Ways = std::vector<Way>;
  using Moves = std::vector<Move>;

  void run(std::stop_token stop);
  void rest();
  // One look at the map, and what is to be done for it. Errors: why something is not done yet.
  Result<void> look();
  Result<void> follow_map();
  // Ends all sessions of the stores, and lets none begin, until this host goes by a map that has it.
  Result<void> pause_all();
  void note_absence();
  // `version`: of the map that the coordinator tells of; 0: it has none.
  void note_older_map(std::uint64_t version);
  Result<void> give_away_shards();
  // True if there may be more to do at once, by another map.
  Result<bool> try_to_give_away_shards();
  Result<void> announce_moves();
  // On the newest map, of the node that this host is; and goes by it.
  Result<void> change_map(
      const std::function<Result<fabric::ClusterMap>(const fabric::ClusterMap&, std::uint32_t node)>& how);
  static Moves moves_of(const Member::State& state);
  // Errors: unavailable, if the host that the shard is to go to goes by an older map.
  Result<void> check_heard(const Ways& all, const Move& move) const;
  static Result<bool> has_left(Ways& all, const Move& move);
  [[nodiscard]] Result<Moves> next_moves(Ways& all, const Moves& moves);
  // Of those that can go to another host instead; whether there were any.
  Result<bool> take_back(Ways& all, const Moves& moves);
  [[nodiscard]] bool is_to_be_taken_back(const Member::State& state, const Move& move) const;
  // To which this host gives nothing if it leaves. Never all that serve.
  [[nodiscard]] fabric::NodeSet full_nodes(const Member::State& state) const;
  Result<void> make_room(Ways& all, const Move& move) const;
  static void undo(Ways& all, const Move& move);
  Result<void> hand_over(Ways& all, const Moves& moves);
  Result<void> close(Ways& all, const Moves& moves);
  Result<void> copy(Ways& all, const Moves& moves);
  Result<void> clear(Ways& all, const Moves& moves);
  Result<void> arrive(Ways& all, const Moves& moves);
  Result<void> give_away_items();
  Result<void> empty(Way& way);
  bool goes_on();
  Result<void> check_settled(Way& way);
  Result<Ways> ways();
  Result<Way> way_to(const std::string& store, const Member::State& state);
  Result<void> freshen(Way& way, const Moves& moves);
  // False if it does not become so in time.
  template <class Ask>
  Result<bool> await(base::Nanos at_most_ns, Ask is_so);

  const fabric::Access others_;
  Member& member_;
  fabric::Host& host_;
  const std::uint64_t bytes_together_;
  base::Nanos looked_ns_ = 0;        // at the map, while something took long
  base::Nanos absent_since_ns_ = 0;  // from the map; 0: it is there
  // That this host was, if the map has told, and since when (ClusterMap::Node::since).
  std::optional<std::pair<std::uint32_t, std::uint64_t>> last_node_;
  std::vector<fabric::Host::Pause> paused_;    // the first stores
  std::optional<base::Nanos> older_since_ns_;  // the coordinator tells of an older map than this host's
  bool told_of_older_ = false;                 // and it was logged
  std::string told_;                           // the last error that was logged
  std::uint64_t read_version_ = 0;             // of the map as it was read last
  // Nodes that had no room for a shard, by number and ClusterMap::Node::since, and when.
  std::map<std::pair<std::uint32_t, std::uint64_t>, base::Nanos> full_;
  std::stop_token stop_;  // of the thread, and its own
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

}  // namespace loch::server
