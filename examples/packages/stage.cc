#include "examples/packages/stage.h"

#include <cstdio>
#include <fmt/format.h>
#include <poll.h>
#include <utility>

#include "bench/interrupt.h"

namespace loch::demo {

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

Result<void> await_success(Process& process, const Slot& slot, const char* role) {
  const auto code = process.wait(step_timeout);
  if (!code) return std::unexpected(code.error());
  if (*code != 0 || slot.error[0] != '\0') {
    return fail(Errc::io, role, fmt::format("ended with {}: {}", *code, slot.error.data()));
  }
  return {};
}

Result<void> await_load(const Board& board, std::size_t records, std::chrono::steady_clock::time_point end) {
  const auto deadline = std::chrono::steady_clock::now() + step_timeout;
  while (true) {
    std::uint64_t acknowledged = 0;
    for (const auto& count : board.acknowledged) acknowledged += count.load(std::memory_order_acquire);
    for (const Slot& slot : board.slots) {
      if (slot.error[0] != '\0') return fail(Errc::io, "load", slot.error.data());
    }
    const auto now = std::chrono::steady_clock::now();
    if (acknowledged == records && now >= end) return {};
    if (bench::interrupted()) return fail(Errc::cancelled, "load", "interrupted");
    if (now >= deadline) {
      return fail(Errc::timed_out, "load",
                  fmt::format("{} of {} records were stored", acknowledged, records));
    }
    ::poll(nullptr, 0, 20);
  }
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
