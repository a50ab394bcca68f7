// MovingPlayer: what hosts of a cluster do to move shards and items about, as a player. An act of it is one
// move; it goes on with what another one has begun, and opens the store anew after each. Where hosts come and
// go, it does for each of them what the map asks of it (server/rebalancer.h), and other moves when there is
// nothing to do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "hash/handover.h"
#include "hash/shards.h"
#include "memory/attachment.h"
#include "sim/run/player.h"

namespace loch::sim {

class MovingPlayer final : public Player {
 public:
  MovingPlayer(Scene& scene, std::uint32_t number, std::uint32_t acts);

  void judge() override {}
  [[nodiscard]] bool is_attached_to(std::uint32_t node) const override {
    return attachment_ != nullptr && has_session(*attachment_, node);
  }
  [[nodiscard]] Role role() const override { return Role::mover; }
  [[nodiscard]] bool moves_from(std::uint32_t node) const override {
    return moves_from_ == node && shared_fabric()->reaches(node);
  }
  // Whether some shard is on its way, or a host has to give away something.
  static bool is_unsettled(const Scene& scene);

 private:
  [[nodiscard]] fabric::Endpoint* endpoint() override {
    return attachment_ == nullptr ? nullptr : &attachment_->endpoint();
  }
  void close() override;
  coro::Task<void> act(Act what) override;
  [[nodiscard]] bool is_behind() const override { return has_moved_; }
  Result<void> put_at_once(std::string_view key, std::string_view value) override;

  static bool is_under_way(const Scene& scene);
  // A node that has more than it should.
  static std::optional<std::uint32_t> laden_node(const Scene& scene);
  // Whether it has a session with the host that this node is now.
  [[nodiscard]] bool reaches(std::uint32_t node) const;
  // Whether it may change the map: not one that was taken for dead, for which another one goes on.
  [[nodiscard]] bool is_current() const { return !silent() && !fenced(); }
  [[nodiscard]] bool may_copy_from(std::uint32_t node);
  coro::Task<Result<void>> settle();
  coro::Task<Result<void>> move_something();
  coro::Task<Result<void>> relieve(std::uint32_t node);
  coro::Task<Result<void>> move_all();
  coro::Task<Result<void>> move(std::uint32_t shard);
  coro::Task<Result<void>> hand_over(std::uint32_t shard);
  template <class Ask>
  coro::Task<Result<bool>> await_quiet(Ask is_quiet);
  coro::Task<Result<void>> empty(std::uint32_t node);
  coro::Task<Result<bool>> evacuate(std::uint32_t node);
  void announce(std::uint32_t shard, std::uint32_t node);
  void commit(std::uint32_t shard);
  void tell_hosts();
  void undo(std::uint32_t shard);
  void judge_empty(std::uint32_t node);

  std::unique_ptr<memory::Attachment> attachment_;
  std::unique_ptr<hash::Shards> shards_;
  bool has_moved_ = false;
  std::optional<std::uint32_t> moves_from_;
};

}  // namespace loch::sim
