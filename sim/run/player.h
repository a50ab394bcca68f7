// Player: one client of a simulated run, a process of its own, which does what its seed says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <loch/coro/task.h>

#include "base/random.h"
#include "client/client.h"
#include "fabric/sim/sim_fabric.h"
#include "sim/run/recorder.h"
#include "sim/run/setup.h"

namespace loch::sim {

// What the players of a run share.
struct Scene {
  const Setup& setup;
  std::shared_ptr<fabric::sim::SimStore> store;
  std::vector<std::string> keys;
  std::vector<std::string> kept{};  // never touched
  Recorder recorder{};
  std::uint64_t acts = 0;  // that have ended
  std::uint64_t corrupt_reads = 0;
  std::string violation{};  // what was found wrong first
  // Told what the players ask and learn of a key.
  std::function<void(const std::string& key, const std::string& what)> say{};

  [[nodiscard]] base::Nanos now() const { return store->simulation().now(); }
  void fail_with(std::string what) {
    if (violation.empty()) violation = std::move(what);
  }
};

class Player {
 public:
  using Place = fabric::sim::SimFabric::Place;
  // Has `acts` to do. It opens the store at once, and begins when it is first run.
  Player(Scene& scene, std::uint32_t number, std::uint32_t acts, Place place = Place::host);
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // Goes on until everything that it can do waits. When its next timer is due; 0 if there is none.
  base::Nanos run();
  [[nodiscard]] bool done() const { return task_ && task_->done(); }
  [[nodiscard]] bool dead() const { return dead_; }
  // Whether it could open the store.
  [[nodiscard]] bool opened() const { return client_ != nullptr; }
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] std::uint32_t acts_left() const { return acts_left_; }
  [[nodiscard]] client::Client& client() { return *client_; }
  [[nodiscard]] fabric::sim::SimFabric& fabric() { return *fabric_; }

  void kill();
  // A remote one is taken for dead by the store's host, which cuts it off and gives away what it had. It ends
  // with what it does now.
  void fence();
  void pause(base::Nanos lasts_ns) { paused_until_ = scene_.now() + lasts_ns; }
  [[nodiscard]] base::Nanos paused_until() const { return paused_until_; }
  // Closes the store, when it is done.
  void leave() { client_.reset(); }
  // When all is over: lets go of what it holds, wherever it stands.
  void bury();

 private:
  static coro::Task<void> play(Player* self);
  coro::Task<void> act(Act what);
  coro::Task<void> get(std::string key);
  coro::Task<void> exists(std::string key);
  coro::Task<void> put(std::string key, Kind kind);
  coro::Task<void> replace(std::string key);
  coro::Task<void> remove(std::string key);
  coro::Task<void> multi_get();
  coro::Task<void> multi_put();
  coro::Task<void> walk();
  coro::Task<void> collect();

  Act draw_act();
  const std::string& draw_key() { return scene_.keys[random_.below(scene_.keys.size())]; }
  std::string make_new_value(ValueId id);
  PutOptions draw_options();
  Recorder::Index ask(Kind kind, const std::string& key, ValueId written = no_value,
                      ValueId expected = no_value);
  void told(Recorder::Index asked, const Result<void>& result);
  void told_value(Recorder::Index asked, const Result<void>& result, std::string_view value);
  void tell(Recorder::Index asked, const char* what) const;
  // The host's, by which the store's times are.
  [[nodiscard]] base::Nanos clock() const { return scene_.store->simulation().clock().now(); }
  // How far behind the host's clock the time may be that this player goes by.
  [[nodiscard]] base::Nanos lag() const { return fabric_->remote() ? scene_.setup.keeper_ns : 0; }

  [[nodiscard]] bool stopped() const { return dead_ || paused_until_ > scene_.now(); }

  Scene& scene_;
  std::uint32_t number_;
  std::uint32_t acts_left_;
  base::Random random_;
  std::shared_ptr<fabric::sim::SimFabric> fabric_;
  std::unique_ptr<client::Client> client_;
  std::optional<coro::Task<void>> task_;
  base::Nanos paused_until_ = 0;
  bool dead_ = false;
  bool fenced_ = false;
  bool silent_ = false;  // what it learns is not recorded any more
};

}  // namespace loch::sim
