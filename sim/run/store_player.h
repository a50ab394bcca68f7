// StorePlayer: a player on the store of this project, by the calls of its client.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/client.h"
#include "sim/run/player.h"

namespace loch::sim {

class StorePlayer final : public Player {
 public:
  // It opens the store at once.
  StorePlayer(Scene& scene, std::uint32_t number, std::uint32_t acts, Player::Place place);

  void judge() override;
  [[nodiscard]] bool is_attached_to(std::uint32_t node) const override {
    return client_ != nullptr && has_session(client_->attachment(), node);
  }
  [[nodiscard]] Stats totals() override;

 private:
  [[nodiscard]] fabric::Endpoint* endpoint() override {
    return client_ == nullptr ? nullptr : &client_->attachment().endpoint();
  }
  void close() override { client_.reset(); }
  coro::Task<void> act(Act what) override;
  [[nodiscard]] bool is_behind() const override;
  Result<void> put_at_once(std::string_view key, std::string_view value) override;

  coro::Task<void> begin(Act what);
  // The store's host lets it do no more than read.
  [[nodiscard]] bool reads_only() { return shared_fabric()->read_only(); }
  // Whether a walk or a collection may fail so.
  [[nodiscard]] bool is_excused(Errc code);
  Result<void> note(Result<void> result);
  coro::Task<void> get(std::string key);
  coro::Task<void> exists(std::string key);
  coro::Task<void> put(std::string key, Kind kind);
  coro::Task<void> replace(std::string key);
  coro::Task<void> remove(std::string key);
  coro::Task<void> multi_get();
  coro::Task<void> multi_put();
  coro::Task<void> walk();
  coro::Task<void> collect();
  coro::Task<void> write(Recorder::Index asked, client::Write what);
  PutOptions draw_options();
  // The value that `asked` writes may be gone when its time is over, as of now; and is.
  void note_mortal(Recorder::Index asked, PutOptions options);
  void note_end(Recorder::Index asked, PutOptions options);

  void judge_memory();
  void judge_keys();

  hash::LocationCache locations_{std::size_t{1} << 16};
  std::unique_ptr<client::Client> client_;
  bool met_move_ = false;
};

}  // namespace loch::sim
