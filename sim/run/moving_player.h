// MovingPlayer: what hosts of a cluster do to move shards and items about, as a player. An act of it is one
// move; it goes on with what another one has begun, and opens the store anew after each.
#pragma once

#include <cstdint>
#include <memory>

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
    return attachment_ != nullptr && attachment_->node(node) != nullptr;
  }
  [[nodiscard]] Role role() const override { return Role::mover; }
  // Whether some shard is on its way.
  static bool is_unsettled(const Scene& scene);

 private:
  [[nodiscard]] fabric::Endpoint* endpoint() override {
    return attachment_ == nullptr ? nullptr : &attachment_->endpoint();
  }
  void close() override;
  coro::Task<void> act(Act what) override;
  [[nodiscard]] bool is_behind() const override { return has_moved_; }
  Result<void> put_at_once(std::string_view key, std::string_view value) override;

  coro::Task<Result<void>> settle();
  coro::Task<Result<void>> move(std::uint32_t shard);
  template <class Ask>
  coro::Task<Result<bool>> await_quiet(Ask is_quiet);
  coro::Task<Result<void>> empty(std::uint32_t node);
  void announce(std::uint32_t shard, std::uint32_t node);
  void commit(std::uint32_t shard);
  void undo(std::uint32_t shard);
  void judge_empty(std::uint32_t node);

  std::unique_ptr<memory::Attachment> attachment_;
  std::unique_ptr<hash::Shards> shards_;
  bool has_moved_ = false;
};

}  // namespace loch::sim
