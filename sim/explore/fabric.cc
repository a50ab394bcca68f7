#include "sim/explore/fabric.h"

#include <cstring>

#include "base/check.h"
#include "fabric/endpoint.h"
#include "memory/layout.h"

namespace loch::explore {

using fabric::Operation;
using fabric::word_bytes;

std::unique_ptr<fabric::Port> ExploredFabric::connect() {
  auto port = std::make_unique<ExploredPort>(*this);
  last_port_ = port.get();
  return port;
}

Result<fabric::Mapping> ExploredPort::map(fabric::RegionId region) {
  auto mapping = fabric_.map(region);
  if (mapping && region == memory::index_region) mapping->base = nullptr;
  return mapping;
}

void ExploredPort::post(std::span<Operation> batch, base::Nanos /*deadline*/, fabric::Completion& done) {
  LOCH_CHECK(done_ == nullptr);
  batch_ = batch;
  done_ = &done;
  waiting_ = 0;
  take_apart(batch);
  for (unsigned i = 0; i < words_.size(); ++i) {
    if (fabric_.waits(words_[i])) {
      waiting_ |= 1U << i;
    } else {
      carry_out(words_[i]);
    }
  }
  finish_if_done();
}

void ExploredPort::take_apart(std::span<const Operation> batch) {
  words_.clear();
  for (const Operation& operation : batch) {
    for (std::size_t at = 0; at < operation.length_bytes; at += word_bytes) {
      Operation& word = words_.emplace_back(operation);
      word.at = operation.at + at;
      word.length_bytes = word_bytes;
      if (word.local != nullptr) word.local += at;
    }
  }
  LOCH_CHECK(words_.size() <= words_max);
}

void ExploredPort::poll(base::Nanos /*wait_ns*/) { LOCH_CHECK(false); }

void ExploredPort::execute(unsigned index) {
  LOCH_CHECK((waiting_ >> index & 1) != 0);
  waiting_ &= ~(1U << index);
  carry_out(words_[index]);
  finish_if_done();
}

void ExploredPort::finish_if_done() {
  if (waiting_ != 0) return;
  if (on_complete) on_complete(words_);
  put_together();
  done_->complete(*std::exchange(done_, nullptr), {});
}

void ExploredPort::put_together() {
  auto word = words_.cbegin();
  for (Operation& operation : batch_) {
    for (std::size_t at = 0; at < operation.length_bytes; at += word_bytes, ++word) {
      operation.bad_address = operation.bad_address || word->bad_address;
      operation.result = word->result;
    }
  }
  words_.clear();
}

void ExploredPort::carry_out(Operation& operation) {
  std::byte* at = place_of(operation);
  operation.bad_address = at == nullptr;
  if (operation.bad_address) return;
  const std::uint64_t word = fabric::load_word(at);
  switch (operation.kind) {
    case Operation::Kind::read:
      std::memcpy(operation.local, &word, sizeof word);
      break;
    case Operation::Kind::compare_swap:
      operation.result = word;
      if (word == operation.compare) fabric::store_word(at, operation.operand);
      break;
    case Operation::Kind::write:
    case Operation::Kind::fetch_add:
    case Operation::Kind::expect:
      LOCH_CHECK(false);  // no slot is ever changed so
  }
}

}  // namespace loch::explore
