#include "sim/explore/actor.h"

#include "base/check.h"
#include "memory/blocks.h"
#include "sim/explore/table_steps.h"
#include "sim/explore/world.h"

namespace loch::explore {
namespace {

constexpr unsigned batches_max = 400;         // of one operation; the longest ones split every slot
constexpr unsigned looks_beyond_retries = 3;  // at the upper slot, by a split that nobody disturbs
constexpr std::size_t value_bytes = 8;

template <class T>
Answer answer_of(const Result<T>& result, std::string& error) {
  if (result) return {.kind = Answer::Kind::ok};
  if (result.error().code == Errc::not_found) return {.kind = Answer::Kind::not_found};
  if (result.error().code == Errc::exists) return {.kind = Answer::Kind::exists};
  error = result.error().message();
  return {.kind = Answer::Kind::error};
}

}  // namespace

Actor::Actor(World& world, unsigned number, std::vector<ScriptOp> script, unsigned retries)
    : world_(world), number_(number), script_(std::move(script)), retries_max_(retries) {
  if (script_.empty()) status_ = Status::done;
  auto attachment = memory::Attachment::open(world_.memory_);
  LOCH_CHECK(attachment.has_value());
  attachment_ = std::move(*attachment);
  port_ = world_.fabric_->last_port();
  port_->on_complete = [this](auto words) { notice_completion(words); };
  // A block of its own, and no more of it than it needs: what is left of a block costs time when a session
  // ends.
  for (std::uint32_t i = 0; i < 2 * script_max; ++i) {
    const auto spare = memory::item_in_block(1 + number_, 0, 2 * script_max - 1 - i);
    LOCH_CHECK(attachment_->endpoint().run(attachment_->allocator_of(spare).discard(spare)).has_value());
  }
  shards_ = std::make_unique<hash::Shards>(*attachment_, hash::TableOptions{});
}

Actor::~Actor() { task_.reset(); }

void Actor::begin() {
  LOCH_CHECK(status_ == Status::idle);
  status_ = Status::running;
  memory_.assign(1, note(world_.growth_word()));
  last_batch_at_ = 0;
  batches_ = looks_ = 0;
  retries_at_begin_ = retries_seen_ = counted(Counter::backoffs);
  pending_at_begin_ = counted(Counter::pending_inserts);
  withdrawn_at_begin_ = counted(Counter::pending_withdrawn);
  value_.assign(value_bytes, static_cast<char>(written()));
  task_.emplace(run_op(this, op()));
  task_->start();
  run_queue();
}

void Actor::execute(unsigned index) {
  port_->execute(index);
  run_queue();
}

void Actor::stop() {
  status_ = Status::stopped;
  memory_.clear();
  world_.store_->kill(session().client());
}

void Actor::run_queue() {
  while (attachment_->endpoint().queue().run_one()) {
  }
  if (task_->done()) {
    answer_ = task_->take();
    task_.reset();
    memory_.clear();
    status_ = ++position_ < script_.size() ? Status::idle : Status::done;
    return;
  }
  LOCH_CHECK(port_->waiting() != 0);
  forget_what_is_dead();
  const std::uint64_t retries = counted(Counter::backoffs) - retries_at_begin_;
  if (retries > retries_max_ || batches_ > batches_max || looks_ > retries_max_ + looks_beyond_retries)
    stop();
}

std::uint64_t Actor::counted(Counter counter) const { return attachment_->stats()[counter]; }

// Each round of a split begins so.
bool Actor::looks_at_upper_half(std::span<const fabric::Operation> words) const {
  const hash::SlotNumber low_slots = world_.directory().low_slots();
  return words.size() == 1 && words[0].kind == fabric::Operation::Kind::read &&
         words[0].at.offset_bytes / sizeof(std::uint64_t) >= low_slots;
}

void Actor::notice_completion(std::span<const fabric::Operation> words) {
  ++batches_;
  if (op().act == Act::split && looks_at_upper_half(words)) ++looks_;
  last_batch_at_ = memory_.size();
  bool aborted = false;
  for (const fabric::Operation& operation : words) {
    std::uint64_t word = operation.result;
    if (operation.kind == fabric::Operation::Kind::read) std::memcpy(&word, operation.local, sizeof word);
    memory_.push_back(word);
    aborted = aborted || hash::SlotWord{word}.is(hash::SlotType::aborted);
    if (operation.kind == fabric::Operation::Kind::compare_swap && word == operation.compare &&
        hash::SlotWord{operation.operand}.is(hash::SlotType::pending)) {
      pending_slot_ = operation.at.offset_bytes;
      pending_word_ = operation.operand;
    }
  }
  memory_.push_back(note(world_.growth_word()));
  if (aborted) memory_.push_back(note(world_.presence_bits()));
}

// A put or remove that begins again knows nothing but its tag and its pending insert; a get knows its last
// collect.
void Actor::forget_what_is_dead() {
  const std::uint64_t retries = counted(Counter::backoffs);
  if (retries == retries_seen_ || !op().is_keyed()) return;
  retries_seen_ = retries;
  const std::uint64_t withdrawn = counted(Counter::pending_withdrawn) - withdrawn_at_begin_;
  const bool pending = counted(Counter::pending_inserts) - pending_at_begin_ > withdrawn;
  std::vector<std::uint64_t> kept{note(retries - retries_at_begin_), note(withdrawn)};
  if (pending) kept.insert(kept.end(), {note(pending_slot_), pending_word_});
  if (op().act == Act::get) {
    kept.insert(kept.end(), memory_.begin() + static_cast<std::ptrdiff_t>(last_batch_at_), memory_.end());
  } else {
    kept.push_back(note(world_.growth_word()));
  }
  memory_ = std::move(kept);
}

coro::Task<Answer> Actor::run_op(Actor* self, ScriptOp op) {
  const memory::Attachment::Operation during(*self->attachment_);
  hash::Table* table = &self->table();
  const auto key = hash::Key::of(self->world_.key_names_[op.key], self->session().geometry().hash_seed);
  switch (op.act) {
    case Act::put:
    case Act::insert: {
      const hash::WriteRequest request{
          .key = key,
          .value = self->value_,
          .condition = op.act == Act::put ? hash::Condition::none : hash::Condition::absent};
      auto put = co_await table->put(request);
      co_return answer_of(put, self->error_);
    }
    case Act::remove: {
      auto removed = co_await table->remove(key);
      co_return answer_of(removed, self->error_);
    }
    case Act::get: {
      auto found = co_await table->get(key);
      Answer answer = answer_of(found, self->error_);
      if (found)
        answer = {.kind = Answer::Kind::value, .value = static_cast<ValueId>(found->view.value()[0])};
      co_return answer;
    }
    case Act::move: {
      auto moved = co_await hash::steps::displace(table, key, op.candidate);
      co_return answer_of(moved, self->error_);
    }
    case Act::split: {
      if (self->world_.directory().level < base_level + self->world_.scenario_.growths) {
        auto begun = co_await hash::steps::begin_growth(table);
        if (!begun) co_return answer_of(begun, self->error_);
      }
      auto split = co_await hash::steps::split(table, key.hash, op.candidate);
      co_return answer_of(split, self->error_);
    }
    case Act::finish: {
      auto finished = co_await hash::steps::finish(table);
      co_return answer_of(finished, self->error_);
    }
  }
  co_return Answer{};
}

}  // namespace loch::explore
