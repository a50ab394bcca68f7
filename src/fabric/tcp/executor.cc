#include "fabric/tcp/executor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace loch::fabric::tcp {
namespace {

std::uint64_t load(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, word_bytes);
  return word;
}

}  // namespace

const std::byte* Executor::fetch_ahead(const std::byte* from, const std::byte* end) const {
  constexpr int at_once = 32;
  constexpr std::uint64_t fetched_bytes_max = 256;  // of each; the processor goes on by itself
  const auto fetch = [&](RegionId region, std::uint64_t offset, std::uint64_t length) {
    const std::byte* at = regions_->mapped_before({region, offset}, length);
    if (at == nullptr) return;
    for (std::uint64_t line = 0; line < std::min(length, fetched_bytes_max); line += cache_line_bytes)
      __builtin_prefetch(at + line);
  };
  for (int i = 0; i < at_once && end - from >= static_cast<std::ptrdiff_t>(sizeof(OperationHead)); ++i) {
    OperationHead head;
    std::memcpy(&head, from, sizeof head);
    if (!is_operation(head)) break;
    const std::byte* rest = from + sizeof head;
    if (end - rest < static_cast<std::ptrdiff_t>(bytes_after(head))) break;
    const bool are_words = kind_of(head) == read_words_kind;
    if (!gathers(head)) fetch(head.region, head.offset_bytes, are_words ? word_bytes : head.length_bytes);
    for (std::size_t word = 1; are_words && word < head.length_bytes / word_bytes; ++word)
      fetch(head.region, load(rest + (word - 1) * word_bytes), word_bytes);
    from = rest + bytes_after(head);
  }
  return from;
}

void Executor::execute(const std::byte* operation) {
  OperationHead head;
  std::memcpy(&head, operation, sizeof head);
  const std::byte* rest = operation + sizeof head;
  if (kind_of(head) == read_words_kind) return read_words(head, rest);
  const auto kind = static_cast<Operation::Kind>(kind_of(head));
  const bool is_atomic = kind == Operation::Kind::compare_swap || kind == Operation::Kind::fetch_add;
  std::byte* at = regions_->mapped({head.region, head.offset_bytes}, head.length_bytes);
  if (is_atomic && head.offset_bytes % word_bytes != 0) at = nullptr;
  const bool changes = kind != Operation::Kind::read && kind != Operation::Kind::expect;
  if (changes && !settings_.may_change) {
    const bool is_its_own =
        !is_atomic && own_words_.contains({head.region, head.offset_bytes}, head.length_bytes);
    if (!is_its_own) at = nullptr;
  }
  const bool is_skipped = is_after_previous(head) && refused_last_;
  if (is_skipped) at = nullptr;
  refused_last_ = at == nullptr;
  if (at == nullptr) {
    if (!is_skipped) raise(counts_.bad_addresses, 1);
    return answer(head, Status::bad_address, {});
  }
  if (kind == Operation::Kind::read) return read(head, at);
  if (kind == Operation::Kind::expect) {
    raise(counts_.reads, 1);
    refused_last_ = !holds(at, rest, head.length_bytes);
    return answer(head, refused_last_ ? Status::bad_address : Status::done, {});
  }
  if (kind == Operation::Kind::write) {
    raise(counts_.writes, 1);
    copy_to_region(at, rest, head.length_bytes);
    return answer(head, Status::done, {});
  }
  raise(counts_.atomics, 1);
  const std::uint64_t before = kind == Operation::Kind::fetch_add
                                   ? add_to_word(at, load(rest))
                                   : swap_word(at, load(rest), load(rest + word_bytes));
  answer(head, Status::done, {&before, 1});
}

// An answer of so many words.
void Executor::answer(const OperationHead& head, Status status, std::span<const std::uint64_t> words) {
  std::byte* to = answers_.room();
  const AnswerHead told{.status = static_cast<std::uint8_t>(status),
                        .kind = kind_of(head),
                        .number = head.number,
                        .length_bytes = static_cast<std::uint32_t>(words.size_bytes())};
  std::memcpy(to, &told, sizeof told);
  if (!words.empty()) std::memcpy(to + sizeof told, words.data(), words.size_bytes());
  answers_.add(sizeof told + words.size_bytes());
}

void Executor::read(const OperationHead& head, std::byte* at) {
  raise(counts_.reads, 1);
  std::byte* to = answers_.room();
  const AnswerHead told{.status = static_cast<std::uint8_t>(Status::done),
                        .kind = kind_of(head),
                        .number = head.number,
                        .length_bytes = head.length_bytes};
  std::memcpy(to, &told, sizeof told);
  std::size_t here = sizeof told;
  if (gathers(head)) {
    answers_.add(std::exchange(here, 0));
    answers_.gather(at, head.length_bytes);
    to = answers_.room();
  } else {
    copy_from_region(to + here, at, head.length_bytes);
    here += head.length_bytes;
  }
  const std::size_t filled_up = whole_words(head.length_bytes) - head.length_bytes;
  std::memset(to + here, 0, filled_up);
  answers_.add(here + filled_up);
}

void Executor::read_words(const OperationHead& head, const std::byte* rest) {
  // Before them, if it was not done: which are none.
  std::array<std::uint64_t, 1 + words_at_once_max> words{};
  const std::size_t count = head.length_bytes / word_bytes;
  std::uint64_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t offset = i == 0 ? head.offset_bytes : load(rest + (i - 1) * word_bytes);
    const std::byte* at =
        offset % word_bytes == 0 ? regions_->mapped({head.region, offset}, word_bytes) : nullptr;
    if (at == nullptr) {
      bad |= std::uint64_t{1} << i;
    } else {
      words[1 + i] = load_word(at);
    }
  }
  const auto bad_count = static_cast<std::uint64_t>(std::popcount(bad));
  refused_last_ = bad != 0;
  raise(counts_.bad_addresses, bad_count);
  raise(counts_.reads, count - bad_count);
  words[0] = bad;
  const std::span<const std::uint64_t> all(words.data(), 1 + count);
  answer(head, bad == 0 ? Status::done : Status::bad_address, bad == 0 ? all.subspan(1) : all);
}

}  // namespace loch::fabric::tcp
