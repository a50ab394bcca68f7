// Actor: one client of the explored store, and what it has seen since it can remember.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hash/shards.h"
#include "memory/attachment.h"
#include "sim/explore/fabric.h"
#include "sim/explore/monitor.h"
#include "sim/explore/scenario.h"

namespace loch::explore {

class World;

class Actor {
 public:
  enum class Status : std::uint8_t { idle, running, stopped, done };

  // `number` tells its values and items apart from those of others.
  Actor(World& world, unsigned number, std::vector<ScriptOp> script, unsigned retries);
  ~Actor();
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  // Begins the next operation; it runs until its first operation on a slot waits, or to its end.
  void begin();
  // Carries out one waiting operation; if it was the last of its batch the client goes on.
  void execute(unsigned index);
  // It will do nothing more, and is not present any more.
  void stop();
  void append(ScriptOp op) {
    script_.push_back(op);
    status_ = Status::idle;
  }
  void set_retries(unsigned retries) { retries_max_ = retries; }

  [[nodiscard]] Status status() const { return status_; }
  [[nodiscard]] unsigned number() const { return number_; }
  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] ScriptOp op() const { return script_[position_]; }
  // Of the operation that ended last.
  [[nodiscard]] Answer answer() const { return answer_; }
  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] ExploredPort& port() const { return *port_; }
  [[nodiscard]] hash::Table& table() const { return *shards_->only(); }
  [[nodiscard]] memory::Session& session() const { return *attachment_->nodes().front().session; }
  [[nodiscard]] ValueId written() const { return static_cast<ValueId>(1 + number_ * script_max + position_); }

  // What the operation has learnt: words of slots, and notes (in the form of a damaged word).
  [[nodiscard]] const std::vector<std::uint64_t>& memory() const { return memory_; }
  static constexpr std::uint64_t note(std::uint64_t value) { return value << 3 | 7; }

 private:
  static coro::Task<Answer> run_op(Actor* self, ScriptOp op);
  void run_queue();
  [[nodiscard]] bool looks_at_upper_half(std::span<const fabric::Operation> words) const;
  void notice_completion(std::span<const fabric::Operation> words);
  void forget_what_is_dead();
  [[nodiscard]] std::uint64_t counted(Counter counter) const;

  World& world_;
  unsigned number_;
  std::vector<ScriptOp> script_;
  unsigned retries_max_;
  Status status_ = Status::idle;
  std::size_t position_ = 0;
  ExploredPort* port_ = nullptr;
  std::unique_ptr<memory::Attachment> attachment_;
  std::unique_ptr<hash::Shards> shards_;
  std::optional<coro::Task<Answer>> task_;
  std::string value_;
  Answer answer_;
  std::string error_;

  std::vector<std::uint64_t> memory_;
  std::size_t last_batch_at_ = 0;   // in memory_
  std::uint64_t pending_slot_ = 0;  // of the last pending insert
  std::uint64_t pending_word_ = 0;
  std::uint64_t retries_at_begin_ = 0;
  std::uint64_t retries_seen_ = 0;
  std::uint64_t pending_at_begin_ = 0;
  std::uint64_t withdrawn_at_begin_ = 0;
  unsigned batches_ = 0;  // of this operation
  unsigned looks_ = 0;    // of a split
};

}  // namespace loch::explore
