#include "hash/slot_group.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "coro/scope.h"

namespace loch::hash {
namespace {

coro::Task<Result<memory::ItemHeader>> known_already(Result<memory::ItemHeader> header) { co_return header; }

coro::Task<Result<memory::ItemHeader>> intact_header(const Items* items, memory::ItemRef item) {
  constexpr std::uint64_t usual_key_bytes = 64;
  const auto head = co_await items->fetch_intact_head(item, usual_key_bytes);
  if (!head) co_return std::unexpected(head.error());
  memory::ItemHeader header{};
  constexpr std::size_t state_bytes = sizeof header.state;  // which may change beside us
  std::memcpy(reinterpret_cast<std::byte*>(&header) + state_bytes, head->view.bytes() + state_bytes,
              sizeof header - state_bytes);
  co_return header;
}

}  // namespace

coro::Task<Result<void>> SlotGroup::read(SlotNumber first, SlotNumber end) {
  count_ = 0;
  during_.reset();
  if (auto fresh = co_await slots_.keep_fresh(); !fresh) co_return fresh;
  during_.emplace(slots_.attachment());
  constexpr std::size_t most_if_mapped = fabric::cache_line_bytes / sizeof(std::uint64_t);
  first_ = first;
  headers_.clear();
  const auto count =
      std::min<std::size_t>(slots_.home().remote() ? words_.size() : most_if_mapped, end - first);
  auto operation =
      fabric::Operation::read(slots_.place().slot(first), words_.data(), count * sizeof(std::uint64_t));
  for (memory::Attachment::Look look(slots_.attachment());;) {
    if (auto read = co_await slots_.endpoint().perform({&operation, 1}); !read) co_return read;
    if (look.holds()) [[likely]]
      break;
    if (auto more = look.again(slots_.timeout_ns(), "index"); !more) co_return more;
  }
  count_ = count;
  co_return Result<void>{};
}

coro::Task<Result<void>> SlotGroup::read_with_headers(SlotNumber first, SlotNumber end) {
  if (auto done = co_await read(first, end); !done || !slots_.home().remote()) co_return done;
  std::vector<coro::Task<Result<memory::ItemHeader>>> reading;
  for (std::size_t i = 0; i < count_; ++i) {
    if (const SlotWord word{words_[i]}; word.names_item())
      reading.push_back(intact_header(&items_, word.item()));
  }
  co_await coro::run_together(&slots_.endpoint().queue(), std::span(reading));
  auto next = reading.begin();
  for (std::size_t i = 0; i < count_; ++i) {
    const bool names_item = SlotWord{words_[i]}.names_item();
    headers_.push_back(names_item ? (next++)->take() : memory::ItemHeader{});
  }
  co_return Result<void>{};
}

coro::Task<Result<memory::ItemHeader>> SlotGroup::header_of(SlotNumber slot) const {
  return headers_.empty() ? intact_header(&items_, word(slot).item())
                          : known_already(headers_[slot - first_]);
}

}  // namespace loch::hash
