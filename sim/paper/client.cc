#include "sim/paper/client.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace loch::sim::paper {
namespace {

// The paper's "concurrent operation error", after which the caller tries again.
std::unexpected<Error> interference() {
  return fail(Errc::changed, "paper", "another operation is in the way");
}
bool is_interference(const Error& error) { return error.code == Errc::changed; }

constexpr std::uint32_t migrations_deep_max = 8;

}  // namespace

Result<std::unique_ptr<Client>> Client::open(const std::shared_ptr<fabric::Fabric>& fabric,
                                             std::uint32_t number, const Options& options) {
  if (number >= fabric::region_count_max - first_data_table)
    return fail(Errc::no_space, "open", "there is no data table for a further client");
  const auto data_table = static_cast<fabric::RegionId>(first_data_table + number);
  if (auto made = fabric->extend(data_table, data_table_bytes); !made)
    return std::unexpected(std::move(made.error()));
  return std::unique_ptr<Client>(new Client(fabric, data_table, options));
}

Client::Client(const std::shared_ptr<fabric::Fabric>& fabric, fabric::RegionId data_table,
               const Options& options)
    : endpoint_(fabric, fabric->connect()),
      data_table_(data_table),
      options_(options),
      random_(base::mix(options.index.hash_seed) + data_table) {
  endpoint_.set_timeout(options.timeout_ns);
}

coro::Task<Result<void>> Client::get(std::string_view key, std::string* into) {
  return carry_out({.kind = Request::Kind::get, .key = key, .into = into});
}
coro::Task<Result<void>> Client::put(std::string_view key, std::string_view value) {
  return carry_out({.kind = Request::Kind::put, .key = key, .value = value});
}
coro::Task<Result<void>> Client::remove(std::string_view key) {
  return carry_out({.kind = Request::Kind::remove, .key = key});
}

coro::Task<Result<void>> Client::carry_out(Request request) {
  const base::Nanos deadline = endpoint_.now() + options_.timeout_ns;
  for (std::uint32_t retries = 0;; ++retries) {
    auto done = request.kind == Request::Kind::get ? co_await attempt_get(&request)
                                                   : co_await attempt_write(&request);
    if (done) co_return done;
    // What was begun before there was no room may have had an effect.
    if (done.error().code == Errc::no_space && request.linked) done.error().code = Errc::timed_out;
    if (!is_interference(done.error())) co_return done;
    if (auto more = co_await back_off(retries, deadline); !more) co_return more;
  }
}

coro::Task<Result<void>> Client::back_off(std::uint32_t retries, base::Nanos deadline) {
  if (endpoint_.now() >= deadline) co_return fail(Errc::timed_out, "paper", "interfered with all the time");
  constexpr std::uint32_t exponent_max = 14;
  const base::Nanos wait_max = base::microsecond_ns << std::min(retries, exponent_max);
  co_await endpoint_.sleep_until(endpoint_.now() + 1 + random_.below(wait_max));
  co_return Result<void>{};
}

// 4.2.1, with the previous versions of 4.3.2.
coro::Task<Result<void>> Client::attempt_get(const Request* request) {
  Pass pass{.key = request->key};
  for (std::uint32_t way = 0; way < options_.index.ways; ++way) {
    auto ite = co_await read_ite(candidate(request->key, way));
    if (!ite) co_return std::unexpected(std::move(ite.error()));
    pass.seen[way] = *ite;
    if (ite->is_empty()) continue;
    auto dte = co_await read_dte(*ite);
    if (!dte) co_return std::unexpected(std::move(dte.error()));
    if (dte->key() != request->key) continue;
    if (!dte->valid() && !dte->previous().is_empty()) {
      dte = co_await read_dte(dte->previous());
      if (!dte) co_return std::unexpected(std::move(dte.error()));
    }
    if (!dte->valid() || dte->key() != request->key) co_return interference();
    request->into->assign(dte->value());
    co_return Result<void>{};
  }
  if (auto same = co_await reverse_pass(&pass); !same) co_return same;
  co_return fail(Errc::not_found, "get");
}

// 4.2.2, and 4.2.4 for DELETE.
coro::Task<Result<void>> Client::attempt_write(Request* request) {
  Pass pass{.key = request->key};
  auto done = co_await forward_pass(request, &pass);
  if (done && pass.candidate < 0) {
    auto freed = co_await migrate(draw_candidate(request->key), 0);
    if (!freed) co_return freed;
    co_return interference();  // begins again, now that there is room
  }
  request->linked = request->linked || pass.candidate >= 0;
  if (done) done = co_await reverse_pass(&pass);
  if (done && request->kind == Request::Kind::put) co_return co_await finish_put(&pass);
  if (done) co_return co_await finish_remove(&pass);
  if (pass.candidate >= 0 && is_interference(done.error())) co_await undo(&pass);
  co_return done;
}

// Links a new entry at the first candidate that is empty or the key's, and empties all further ones of the
// key.
coro::Task<Result<void>> Client::forward_pass(const Request* request, Pass* pass) {
  for (std::uint32_t way = 0; way < options_.index.ways; ++way) {
    auto ite = co_await read_ite(candidate(request->key, way));
    if (!ite) co_return std::unexpected(std::move(ite.error()));
    pass->seen[way] = *ite;
    const bool has_candidate = pass->candidate >= 0;
    if (ite->is_empty() && has_candidate) continue;
    if (!ite->is_empty()) {
      auto dte = co_await read_dte(*ite);
      if (!dte) co_return std::unexpected(std::move(dte.error()));
      if (dte->key() != request->key) continue;
      // 4.3.2: another PUT is under way.
      if (!has_candidate && !dte->valid()) co_return interference();
    }
    if (has_candidate) pass->seen[way] = empty;
    auto changed = has_candidate ? co_await swap_ite(candidate(request->key, way), *ite, empty)
                                 : co_await link(request, pass, way);
    if (!changed) co_return changed;
  }
  co_return Result<void>{};
}

coro::Task<Result<void>> Client::link(const Request* request, Pass* pass, std::uint32_t way) {
  const Ite old = pass->seen[way];
  auto mine = co_await write_dte(request->key, request->value, old);
  if (!mine) co_return std::unexpected(std::move(mine.error()));
  if (auto won = co_await swap_ite(candidate(request->key, way), old, *mine); !won) co_return won;
  pass->candidate = static_cast<int>(way);
  pass->old = old;
  pass->mine = *mine;
  pass->seen[way] = *mine;
  co_return Result<void>{};
}

// Whether all candidates are what they were.
coro::Task<Result<void>> Client::reverse_pass(const Pass* pass) {
  for (std::uint32_t way = options_.index.ways; way > 0; --way) {
    auto ite = co_await read_ite(candidate(pass->key, way - 1));
    if (!ite) co_return std::unexpected(std::move(ite.error()));
    if (*ite != pass->seen[way - 1]) co_return interference();
  }
  co_return Result<void>{};
}

coro::Task<Result<void>> Client::finish_put(const Pass* pass) {
  auto done = co_await set_valid(pass->mine, true);
  // 4.3.2: "the previous DTE is only invalidated ... once the PUT has completely finished".
  if (done && !pass->old.is_empty()) done = co_await set_valid(pass->old, false);
  co_return done;
}

coro::Task<Result<void>> Client::finish_remove(const Pass* pass) {
  co_return co_await swap_ite(candidate(pass->key, static_cast<std::uint32_t>(pass->candidate)), pass->mine,
                              empty);
}

// Whether it succeeds or not: if not, somebody else has changed the entry.
coro::Task<void> Client::undo(const Pass* pass) {
  if (options_.undo == Undo::nothing) co_return;
  const Ite before = options_.undo == Undo::restore ? pass->old : empty;
  const auto undone = co_await swap_ite(candidate(pass->key, static_cast<std::uint32_t>(pass->candidate)),
                                        pass->mine, before);
  static_cast<void>(undone);
}

// 4.2.3, and "Aborting migration" in 4.3.1. Makes `source` empty.
coro::Task<Result<void>> Client::migrate(fabric::Address source, std::uint32_t depth) {
  if (depth == migrations_deep_max) co_return fail(Errc::no_space, "migrate", "the index is too full");
  auto ite = co_await read_ite(source);
  if (!ite) co_return std::unexpected(std::move(ite.error()));
  if (ite->is_empty()) co_return Result<void>{};
  auto dte = co_await read_dte(*ite);
  if (!dte) co_return std::unexpected(std::move(dte.error()));
  if (!dte->valid()) co_return interference();
  auto copy = co_await write_dte(dte->key(), dte->value(), empty);
  if (!copy) co_return std::unexpected(std::move(copy.error()));

  fabric::Address destination = source;
  while (destination == source) destination = draw_candidate(dte->key());
  if (auto freed = co_await migrate(destination, depth + 1); !freed) co_return freed;
  if (auto placed = co_await swap_ite(destination, empty, *copy); !placed) co_return placed;
  if (auto cleared = co_await swap_ite(source, *ite, empty); !cleared) {
    if (is_interference(cleared.error())) {
      const auto undone = co_await swap_ite(destination, *copy, empty);
      static_cast<void>(undone);
    }
    co_return cleared;
  }
  co_return co_await set_valid(*copy, true);
}

coro::Task<Result<Ite>> Client::read_ite(fabric::Address at) {
  Ite ite;
  auto read = co_await endpoint_.read_words({&at, 1}, &ite.raw);
  if (!read) co_return std::unexpected(std::move(read.error()));
  co_return ite;
}

coro::Task<Result<void>> Client::swap_ite(fabric::Address at, Ite expected, Ite desired) {
  auto seen = co_await endpoint_.compare_swap(at, expected.raw, desired.raw);
  if (!seen) co_return std::unexpected(std::move(seen.error()));
  if (*seen != expected.raw) co_return interference();
  co_return Result<void>{};
}

coro::Task<Result<Dte>> Client::read_dte(Ite ite) {
  auto bytes = co_await endpoint_.fetch(ite.address(), dte_bytes);
  if (!bytes) co_return std::unexpected(std::move(bytes.error()));
  Dte dte(std::move(*bytes));
  if (!dte.fits()) co_return fail(Errc::corrupt, "paper", "a data entry that no client writes");
  co_return dte;
}

coro::Task<Result<Ite>> Client::write_dte(std::string_view key, std::string_view value, Ite previous) {
  const DteHeader header{.valid = 0,
                         .previous = previous.raw,
                         .key_bytes = static_cast<std::uint32_t>(key.size()),
                         .value_bytes = static_cast<std::uint32_t>(value.size())};
  if (sizeof header + key.size() + value.size() > dte_bytes)
    co_return fail(Errc::invalid_argument, "paper", "key and value do not fit into a data entry");
  if (dtes_used_ == data_table_bytes / dte_bytes)
    co_return fail(Errc::no_space, "paper", "the data table is used up");
  const Ite ite = Ite::of(data_table_, dtes_used_++);
  const auto bytes = std::make_unique<std::array<std::byte, dte_bytes>>();
  std::memcpy(bytes->data(), &header, sizeof header);
  const auto text = std::as_bytes(std::span(key));
  const auto rest = std::ranges::copy(text, bytes->data() + sizeof header).out;
  std::ranges::copy(std::as_bytes(std::span(value)), rest);
  if (auto written = co_await endpoint_.write(ite.address(), *bytes); !written)
    co_return std::unexpected(std::move(written.error()));
  co_return ite;
}

coro::Task<Result<void>> Client::set_valid(Ite ite, bool valid) {
  co_return co_await endpoint_.write_word(ite.address(), std::uint64_t{valid});
}

}  // namespace loch::sim::paper
