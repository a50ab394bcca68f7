#include "demo/stage.h"

#include <cstdio>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <utility>

#include "bench/machine.h"
#include "lab/interrupt.h"

namespace loch::demo {
namespace {

using Clock = std::chrono::steady_clock;

// What is stored at once, as a multiple of the records: two stores, one of them with items that were replaced
// and rest, a peer's, and the floor; and what stores of any size take.
constexpr std::uint64_t room_factor = 6;
constexpr std::uint64_t room_of_any_bytes = std::uint64_t{32} << 20;
// Between two looks whether the user wants out.
constexpr std::chrono::milliseconds look_pause{100};

std::string ending_text(const lab::Ending& ended, const Slot& slot) {
  std::string text = ended.signal != 0 ? fmt::format("was killed by signal {}", ended.signal)
                                       : fmt::format("ended with {}", ended.exit_code);
  if (!slot.what_failed().empty()) text += fmt::format(": {}", slot.what_failed());
  return text;
}

}  // namespace

void say(std::string_view text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

Result<std::unique_ptr<Packages>> read_source(const Settings& settings, const std::string& folder) {
  auto text = settings.source.empty() ? read_available_packages(folder) : read_index_file(settings.source);
  if (!text) return std::unexpected(std::move(text.error()));
  auto packages = std::make_unique<Packages>(std::move(*text));
  if (packages->size() < writer_count)
    return fail(Errc::not_found, "read", "there are no packages in the index");
  return packages;
}

Result<void> check_room(const std::string& directory, std::uint64_t bytes) {
  const std::uint64_t free_bytes = bench::describe_machine(directory).shared_bytes;
  const std::uint64_t needed_bytes = room_of_any_bytes + room_factor * bytes;
  if (free_bytes >= needed_bytes) return {};
  return fail(
      Errc::no_space, "demo",
      fmt::format("{} has {} MiB free, and {} MiB may be needed: name another folder (--directory DIR) or "
                  "a smaller index (--source FILE), or start the container with more (docker run "
                  "--shm-size=1g)",
                  directory, free_bytes >> 20, needed_bytes >> 20));
}

Result<void> all_began(std::span<const Member> crew) {
  for (const Member& member : crew) {
    if (!member.process) return std::unexpected(member.process.error());
  }
  return {};
}

Result<void> await_success(lab::Process& process, const Slot& slot, const char* role) {
  const auto deadline = Clock::now() + step_timeout;
  std::optional<lab::Ending> ended;
  while (!(ended = process.wait_for_end(look_pause))) {
    if (lab::interrupted()) return fail(Errc::cancelled, role, "interrupted");
    if (Clock::now() < deadline) continue;
    process.kill();
    return fail(Errc::timed_out, role, fmt::format("did not end in {} ms", step_timeout.count()));
  }
  if (ended->code() == 0 && slot.what_failed().empty()) return {};
  return fail(Errc::io, role, ending_text(*ended, slot));
}

Result<void> await(const char* what, const Board& board, std::span<Member> crew,
                   const std::function<bool()>& is_so) {
  const auto deadline = Clock::now() + step_timeout;
  while (!is_so()) {
    for (Member& member : crew) {
      const auto ended = member.process->wait_for_end({});
      if (ended && ended->code() != 0)
        return fail(Errc::io, member.role, ending_text(*ended, board.slots[member.slot]));
    }
    for (const Slot& slot : board.slots) {
      if (!slot.what_failed().empty()) return fail(Errc::io, what, std::string(slot.what_failed()));
    }
    if (lab::interrupted()) return fail(Errc::cancelled, what, "interrupted");
    if (Clock::now() >= deadline)
      return fail(Errc::timed_out, what,
                  fmt::format("not within {} s; {} records are stored",
                              step_timeout / std::chrono::seconds(1), board.stored()));
    ::poll(nullptr, 0, 10);
  }
  return {};
}

Result<void> await_load(const Board& board, std::span<Member> crew, std::size_t records,
                        Clock::time_point end) {
  return await("load", board, crew, [&] { return board.stored() == records && Clock::now() >= end; });
}

Result<void> dismiss(Board& board, std::span<Member> crew) {
  board.stop.store(true, std::memory_order_relaxed);
  for (Member& member : crew) {
    if (auto ended = await_success(*member.process, board.slots[member.slot], member.role); !ended)
      return ended;
  }
  return {};
}

Result<void> check_everything(const Scene& scene) {
  auto store = Store::open(scene.url, scene.options);
  if (!store) return std::unexpected(store.error());
  std::string value;
  for (std::size_t i = 0; i < scene.packages.size(); ++i) {
    const Package& package = scene.packages[i];
    const auto got = store->get(package.key, value);
    if (!got)
      return fail(got.error().code, "check", fmt::format("{}: {}", package.key, got.error().message()));
    if (value != package.stanza) return fail(Errc::corrupt, "check", package.key + " is not its source");
  }
  const auto count = store->count();
  if (!count) return std::unexpected(count.error());
  if (*count != scene.packages.size()) {
    return fail(Errc::corrupt, "check", fmt::format("{} items instead of {}", *count, scene.packages.size()));
  }
  const auto collected = store->collect();
  if (!collected) return std::unexpected(collected.error());
  const auto report = store->check();
  if (!report) return std::unexpected(report.error());
  if (report->items_corrupt + report->slots_corrupt + report->items_unaccounted > 0) {
    return fail(
        Errc::corrupt, "check",
        fmt::format("{} corrupt items, {} corrupt slots, {} items unaccounted for{}{}", report->items_corrupt,
                    report->slots_corrupt, report->items_unaccounted, report->findings.empty() ? "" : "; ",
                    report->findings.empty() ? "" : report->findings.front()));
  }
  say(fmt::format(
      "all {} records equal their source, and there is nothing else; the store accounts for everything",
      scene.packages.size()));
  return {};
}

}  // namespace loch::demo
