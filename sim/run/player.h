// Player: one client of a simulated run, a process of its own, which does what its seed says. What it can do
// is up to the store that it plays on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <loch/coro/task.h>
#include <loch/stats.h>

#include "base/random.h"
#include "fabric/endpoint.h"
#include "fabric/sim/sim_fabric.h"
#include "memory/attachment.h"
#include "sim/run/recorder.h"
#include "sim/run/setup.h"

namespace loch::sim {

// What the players of a run share.
struct Scene {
  const Setup& setup;
  std::shared_ptr<fabric::sim::SimStore> store;
  std::vector<std::string> keys;
  fabric::ClusterMap cluster{};     // as its coordinator has it; of a store of one host: nothing
  std::vector<std::string> kept{};  // never touched
  Recorder recorder{setup.tick_ns, setup.remote_chance != 0 ? setup.keeper_ns : 0};
  std::uint64_t acts = 0;      // that have ended
  bool has_copied = false;     // items of a node that was emptied: their versions are others then
  std::uint64_t absences = 0;  // of nodes that clients look for
  std::set<std::string, std::less<>> lost{};  // keys that were there, perhaps
  std::string violation{};                    // what was found wrong first
  std::string violation_key{};                // that it is about, if it is about one
  // Told which shard has another home, by the map.
  std::function<void(std::uint32_t shard)> on_arrival{};
  // The node's host learns of the map after a while.
  std::function<void(std::uint32_t node, base::Nanos wait_ns)> tell_host{};
  // Whether a shard is being moved from the node.
  std::function<bool(std::uint32_t node)> gives_away = [](std::uint32_t /*node*/) { return false; };
  // Told what the players ask and learn of a key; of no key: what concerns all.
  std::function<void(const std::string& key, const std::string& what)> say{};

  [[nodiscard]] memory::RegionMap region_map() const {
    return setup.shards == 0 ? memory::RegionMap::of_one_host() : memory::RegionMap::of_cluster(cluster);
  }
  // There is another map now, of which the hosts are told later.
  void change_map(fabric::ClusterMap map);
  // Whether a slot names what is on a node.
  [[nodiscard]] bool names(std::uint32_t node) const;
  [[nodiscard]] base::Nanos now() const { return store->simulation().now(); }
  void let_pass(base::Nanos wait_ns) const { store->simulation().run_until(now() + wait_ns); }
  void fail_with(std::string what, std::string_view key = {}) {
    if (!violation.empty()) return;
    violation = std::move(what);
    violation_key = key;
  }
};

class Player {
 public:
  using Place = fabric::sim::SimFabric::Place;
  // A client does what clients do; a mover moves shards and items about, as hosts do.
  enum class Role : std::uint8_t { client, mover };
  // Has `acts` to do, and begins when it is first run.
  Player(Scene& scene, std::uint32_t number, std::uint32_t acts, Place place);
  virtual ~Player() = default;
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // Goes on until everything that it can do waits. When its next timer is due; 0 if there is none.
  base::Nanos run();
  [[nodiscard]] bool done() const { return task_ && task_->done(); }
  [[nodiscard]] bool dead() const { return dead_; }
  // Whether it could open the store.
  [[nodiscard]] bool opened() { return endpoint() != nullptr; }
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] std::uint32_t acts_left() const { return acts_left_; }
  [[nodiscard]] bool was_fenced() const { return fenced_; }
  // Whether it has a session with that node of a cluster.
  [[nodiscard]] virtual bool is_attached_to(std::uint32_t /*node*/) const { return false; }
  [[nodiscard]] virtual Role role() const { return Role::client; }
  // Whether it moves a shard from that node, or did when it died, and may still change something there.
  [[nodiscard]] virtual bool moves_from(std::uint32_t /*node*/) const { return false; }
  [[nodiscard]] fabric::sim::SimFabric& fabric() { return *fabric_; }

  void kill();
  // A remote one is taken for dead by the store's host, or of a cluster by a node's, and is cut off. It ends
  // with what it does now.
  void fence(std::uint32_t node);
  void pause(base::Nanos lasts_ns) { paused_until_ = scene_.now() + lasts_ns; }
  [[nodiscard]] base::Nanos paused_until() const { return paused_until_; }
  // Closes the store, when it is done.
  void leave() { close(); }
  // When all is over: lets go of what it holds, wherever it stands.
  void bury();

  // Before anything goes wrong: puts there what is never touched.
  void fill();
  // When nothing goes wrong any more: whether all is in order. Tells the scene if not.
  virtual void judge() = 0;
  // What was counted in the store; zeros if it does not count.
  [[nodiscard]] virtual Stats totals() { return {}; }

 protected:
  // Also of a node that the attachment's map does not have.
  static bool has_session(const memory::Attachment& attachment, std::uint32_t node) {
    return node < attachment.region_map().nodes.size() && attachment.node(node) != nullptr;
  }
  // Null before the store is open, and after it was closed.
  [[nodiscard]] virtual fabric::Endpoint* endpoint() = 0;
  virtual void close() = 0;
  virtual coro::Task<void> act(Act what) = 0;
  // Whether it has to open the store anew before it goes on.
  [[nodiscard]] virtual bool is_behind() const { return false; }
  // A put that waits until it is done.
  virtual Result<void> put_at_once(std::string_view key, std::string_view value) = 0;

  // What it asks and learns is recorded by these.
  Recorder::Index ask(Kind kind, const std::string& key, ValueId written = no_value,
                      ValueId expected = no_value);
  void told(Recorder::Index asked, const Result<void>& result);
  void told_value(Recorder::Index asked, const Result<void>& result, std::string_view value);

  std::string make_new_value(ValueId id);
  const std::string& draw_key() { return scene_.keys[random_.below(scene_.keys.size())]; }
  [[nodiscard]] Scene& scene() { return scene_; }
  [[nodiscard]] base::Random& random() { return random_; }
  [[nodiscard]] const std::shared_ptr<fabric::sim::SimFabric>& shared_fabric() const { return fabric_; }
  // The store's host's, by which the store's times are.
  [[nodiscard]] base::Nanos clock() const { return scene_.store->simulation().clock().now(); }
  // The least that this player knows of that if it asks at `now`.
  [[nodiscard]] base::Nanos known_at(base::Nanos now) const {
    return scene_.recorder.known_at(now, fabric_->remote() ? scene_.recorder.lag_ns() : 0);
  }
  [[nodiscard]] bool fenced() const { return fenced_; }
  // Whether what it learns is not recorded any more.
  [[nodiscard]] bool silent() const { return silent_; }

 private:
  static coro::Task<void> play(Player* self);
  Act draw_act();
  void tell(Recorder::Index asked, const char* what) const;
  [[nodiscard]] bool stopped() const { return dead_ || paused_until_ > scene_.now(); }

  Scene& scene_;
  std::uint32_t number_;
  std::uint32_t acts_left_;
  base::Random random_;
  std::shared_ptr<fabric::sim::SimFabric> fabric_;
  std::optional<coro::Task<void>> task_;
  base::Nanos paused_until_ = 0;
  bool dead_ = false;
  bool fenced_ = false;
  bool silent_ = false;
};

}  // namespace loch::sim
