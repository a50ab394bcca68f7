#include "demo/stage.h"

#include <cstdio>
#include <fmt/format.h>
#include <poll.h>
#include <utility>

#include "lab/interrupt.h"

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

Result<void> await_success(lab::Process& process, const Slot& slot, const char* role) {
  const auto ended = process.wait_for_end(step_timeout);
  if (!ended) {
    process.kill();
    return fail(Errc::timed_out, role, fmt::format("did not end in {} ms", step_timeout.count()));
  }
  if (ended->code() != 0 || !slot.what_failed().empty())
    return fail(Errc::io, role, fmt::format("ended with {}: {}", ended->code(), slot.what_failed()));
  return {};
}

Result<void> await(const char* what, const Board& board, const std::function<bool()>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + step_timeout;
  while (!is_so()) {
    for (const Slot& slot : board.slots) {
      if (!slot.what_failed().empty()) return fail(Errc::io, what, std::string(slot.what_failed()));
    }
    if (lab::interrupted()) return fail(Errc::cancelled, what, "interrupted");
    if (std::chrono::steady_clock::now() >= deadline)
      return fail(Errc::timed_out, what,
                  fmt::format("not within {} s; {} records are stored",
                              step_timeout / std::chrono::seconds(1), board.stored()));
    ::poll(nullptr, 0, 10);
  }
  return {};
}

Result<void> await_load(const Board& board, std::size_t records, std::chrono::steady_clock::time_point end) {
  return await("load", board,
               [&] { return board.stored() == records && std::chrono::steady_clock::now() >= end; });
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
